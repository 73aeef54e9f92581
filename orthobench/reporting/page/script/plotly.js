// Loads the library that draws figures, which the page holds in a block.

import { unpack, unpackNow } from "./data.js";
import { element } from "./elements.js";

/**
 * Plotly is inserted as a script whose hash is in the page's content security policy.
 * @type {Promise<PlotlyLibrary>}
 */
let library;

export function plotly() {
  library ??= unpack("plotly", "text").then(insert);
  return library;
}

// Load the library before this function returns, for print.
export function plotlyNow() {
  library = Promise.resolve(window.Plotly ?? insert(unpackNow("plotly")));
}

/** @param {string} source */
function insert(source) {
  if (!window.Plotly) document.head.append(element("script", source));
  return window.Plotly;
}
