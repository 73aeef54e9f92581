// Loads the library that draws figures, which the page holds in a block.

import { unpack } from "./data.js";
import { element } from "./elements.js";

/**
 * Plotly is inserted as a script whose hash is in the page's content security policy.
 * @type {Promise<PlotlyLibrary>}
 */
let library;

export function plotly() {
  library ??= unpack("plotly", "text").then((source) => {
    document.head.append(element("script", source));
    return window.Plotly;
  });
  return library;
}
