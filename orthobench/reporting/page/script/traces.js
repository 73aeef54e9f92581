// What the traces of a figure are: curves, edges of bands, marks and floors.

import { element } from "./elements.js";

/**
 * Return the elements of the figures in a part of the page.
 * @param {ParentNode} root
 * @param {string} [selector]
 * @returns {Plot[]}
 */
export function plotsIn(root, selector = ".plot") {
  return [...root.querySelectorAll(selector)];
}

/** @param {Trace} trace */
export function entryOf(trace) {
  return trace.meta?.label ?? plain(trace.name ?? "");
}

/**
 * Return the text of a name, which Plotly reads as markup.
 * @param {string} markup
 */
export function plain(markup) {
  return new DOMParser().parseFromString(markup, "text/html").body.textContent;
}

/** @param {unknown} text */
export function escaped(text) {
  return element("i", String(text)).innerHTML; // Plotly interprets a few tags in names
}

/**
 * Return whether a trace marks places on a line, where seeds end; it has no points of its own.
 * @param {Trace} trace
 */
export function isMark({ mode, text, showlegend, legendgroup }) {
  return mode === "markers" && Array.isArray(text) && showlegend === false && Boolean(legendgroup);
}

/**
 * Return whether a trace is the line below a logarithmic figure, at which edges of bands are drawn that are 0.
 * @param {Trace} trace
 */
export function isFloor({ name }) {
  return name?.startsWith("gaps: ") ?? false;
}

export const BANDS = 4; // the most bands that a figure shows unless asked for all

/** @param {Trace} trace */
export function isEdge({ mode, line, legendgroup }) {
  return mode === "lines" && line?.width === 0 && legendgroup !== undefined;
}

/**
 * Return the traces without the bands after the first four of the shown curves, because more of them hide each other.
 * @param {Plot} container
 * @param {Trace[]} data
 */
export function withFewBands(container, data) {
  if (container.tools?.bands) return data;
  const banded = [...new Set(data.filter((trace) => isEdge(trace) && !container.off?.has(entryOf(trace))).map(({ legendgroup }) => legendgroup))].slice(0, BANDS);
  return data.filter((trace) => !isEdge(trace) || banded.includes(trace.legendgroup));
}

/**
 * Return a line with gaps in place of values that a logarithmic axis has not; Plotly would draw it down to the frame.
 * @param {Trace} trace
 * @param {Layout} layout
 * @returns {Trace}
 */
export function withGaps(trace, { yaxis }) {
  if (yaxis?.type !== "log" || !trace.mode?.includes("lines")) return trace;
  return trace.y.some((value) => value <= 0) ? { ...trace, y: trace.y.map((value) => (value > 0 ? value : null)) } : trace;
}

/**
 * Return the words of a line's marks by x.
 * @param {Trace[]} data
 * @param {Trace} trace
 */
export function notesOf(data, { name, mode }) {
  const marks = mode?.includes("lines") && name ? data.filter((trace) => isMark(trace) && trace.legendgroup === name) : [];
  return new Map(marks.flatMap(({ x, text }) => x.map((along, at) => /** @type {const} */ ([along, text[at]]))));
}

/**
 * Return an axis title, in two lines if it has more letters than fit.
 * @param {Title} title
 * @param {number} letters
 * @returns {{text: string}}
 */
export function broken(title, letters) {
  const text = typeof title === "string" ? title : title?.text ?? "";
  const about = typeof title === "string" ? {} : title;
  if (text.length <= letters || text.includes("<") || !text.includes(" ")) return { ...about, text };
  const spaces = Array.from(text.matchAll(/ /g), ({ index }) => index);
  const middle = spaces.reduce((near, at) => (Math.abs(at - text.length / 2) < Math.abs(near - text.length / 2) ? at : near));
  return { ...about, text: `${text.slice(0, middle)}<br>${text.slice(middle + 1)}` };
}

export const LEAST_WIDTH = 480; // pixels of a figure with names next to its axis, or at the ends of its lines

// How many labels a logarithmic axis may have. Plotly then leaves out digits between two powers of ten, which would else
// be printed over each other.
export const LOG_TICKS = 4;

/**
 * Return whether the names of a figure's rows would leave too little width for its symbols. They are then above these.
 * @param {Layout} layout
 * @param {number} width
 */
export function hasNamedRows({ yaxis }, width) {
  return Boolean(yaxis?.ticktext) && width < LEAST_WIDTH;
}

/**
 * Return the lowest and the highest finite value of lines.
 * @param {Trace[]} lines
 */
export function extent(lines) {
  const values = lines.flatMap(({ y }) => y).filter((value) => Number.isFinite(value));
  return [values.reduce((least, value) => Math.min(least, value), Infinity), values.reduce((most, value) => Math.max(most, value), -Infinity)];
}
