// Printing: every figure whose data the page has unpacked is drawn, in light colours, and tables are uncut.

import { theme } from "./colours.js";
import { drawNow, purge, redraw } from "./figures.js";
import { renderAllRows, restoreRows } from "./table.js";
import { plotsIn } from "./traces.js";
import { shownView } from "./views.js";

export function beforePrint() {
  if ("alone" in document.documentElement.dataset) return;
  theme.printing = true;
  const view = shownView();
  if (!view) return;
  /** @type {NodeListOf<HTMLDetailsElement>} */
  const folded = view.querySelectorAll("details:is(.paper-claims, .claims-of-all, .board)");
  for (const details of folded) {
    if (!details.open) details.dataset.closed = "";
    details.open = true;
  }
  if (view.id === "runs") renderAllRows();
  if (!window.Plotly) return;
  for (const container of plotsIn(view)) if (container.offsetParent && container.base) drawForPrint(container);
}

/**
 * Draw a figure whose data is loaded. A page is not as wide as the window, so the picture is made scalable.
 * @param {Plot} container
 */
function drawForPrint(container) {
  container.isForPrint = !container.drawn;
  drawNow(container);
  for (const svg of container.querySelectorAll(".main-svg")) svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
}

export function afterPrint() {
  if ("alone" in document.documentElement.dataset) return;
  theme.printing = false;
  /** @type {NodeListOf<HTMLDetailsElement>} */
  const closed = document.querySelectorAll("details[data-closed]");
  for (const details of closed) {
    details.open = false;
    delete details.dataset.closed;
  }
  for (const container of plotsIn(document)) {
    if (container.isForPrint) purge(container);
    container.isForPrint = false;
    for (const svg of container.querySelectorAll(".main-svg")) svg.removeAttribute("viewBox");
  }
  restoreRows();
  redraw();
}
