// What the reader has set and the address does not have, kept while a served page is loaded again.

import { axisTitle } from "./changes.js";
import { fillForm, formState } from "./forms.js";
import { filterMatrix, matrixForm } from "./matrix.js";
import { plotsIn } from "./traces.js";

const NAME = "orthobench page";
const FOCUSABLE = "a, button, input, select, summary, [tabindex]";

// Whether a server updates this page, which then has the tag of its state.
export const isLive = "tag" in document.documentElement.dataset;

/** @type {Kept | null} */
const kept = isLive ? JSON.parse(sessionStorage.getItem(NAME)) : null;
if (kept) sessionStorage.removeItem(NAME);

// Keep the reader's settings for the next page of this address.
export function save() {
  /** @type {Kept} */
  const settings = {
    scroll: [window.scrollY, document.getElementById("run-table")?.scrollTop ?? 0],
    matrix: matrixForm && formState(matrixForm),
    tab: document.querySelector("[role=tab][aria-selected=true]")?.textContent,
    folds: [...document.querySelectorAll("details")].map((details) => [foldOf(details), details.open]),
    focus: [placeOf(document.activeElement), document.activeElement.textContent],
    figures: Object.fromEntries(plotsIn(document).filter(({ tools }) => tools).map((container) => [nameOf(container), { tools: container.tools, off: [...container.off ?? []], ranges: rangesOf(container) }])),
  };
  sessionStorage.setItem(NAME, JSON.stringify(settings));
}

// Restore the settings of the page that was loaded before; those of figures follow when these get their data.
export function restore() {
  if (!kept) return;
  if (kept.matrix) {
    fillForm(matrixForm, kept.matrix);
    filterMatrix();
  }
  const folds = new Map(kept.folds);
  for (const details of document.querySelectorAll("details")) details.open = folds.get(foldOf(details)) ?? details.open;
  const tab = [...document.querySelectorAll("[role=tab][aria-selected=false]")].find(({ textContent }) => textContent === kept.tab);
  tab?.click();
  const [place, text] = kept.focus, focused = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(FOCUSABLE))[place];
  if (focused?.textContent === text) focused.focus({ preventScroll: true });
  else /** @type {HTMLElement} */ (document.activeElement).blur();
  const [page, table] = kept.scroll;
  document.getElementById("run-table")?.scrollTo(0, table);
  window.scrollTo(0, page);
}

/**
 * Give a figure the lines, tools and ranges that the reader has chosen.
 * @param {Plot} container
 */
export function restoreFigure(container) {
  const { tools, off, ranges } = kept?.figures[nameOf(container)] ?? {};
  container.tools = tools;
  container.off = new Set(off);
  container.ranges = ranges;
}

/** @param {Plot} container */
function nameOf({ dataset, ariaLabel }) {
  return [dataset.condition, dataset.figure ?? ariaLabel].join(" ");
}

/** @param {HTMLElement} details */
function foldOf(details) {
  return (details.dataset.condition ?? "") + details.querySelector("summary")?.textContent.replace(/\d+/g, ""); // the number of runs to come changes
}

/** @param {Element} node */
function placeOf(node) {
  return [...document.querySelectorAll(FOCUSABLE)].indexOf(/** @type {HTMLElement} */ (node));
}

/**
 * Return the ranges that the reader has set, of the axes that the next drawing shows as the last one did.
 * @param {Plot} container
 * @param {Pick<Layout, "xaxis" | "yaxis">} next
 * @returns {Record<string, number[]> | null}
 */
export function rangesOf({ drawn, layout, ranges }, next = drawn) {
  if (ranges || !drawn) return ranges;
  /** @type {(axes: Pick<Layout, "xaxis" | "yaxis">, axis: "xaxis" | "yaxis") => string} */
  const shown = (axes, axis) => String([axisTitle(axes, axis), axes[axis].type, axes[axis].range]);
  const zoomed = /** @type {const} */ (["xaxis", "yaxis"]).filter((axis) => layout[axis].autorange === false && String(layout[axis].range) !== String(drawn[axis].range) && shown(drawn, axis) === shown(next, axis));
  return zoomed.length ? Object.fromEntries(zoomed.map((axis) => [axis + ".range", [...layout[axis].range]])) : null;
}
