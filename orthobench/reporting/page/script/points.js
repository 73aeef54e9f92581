// The points of a figure as rows: for its table and for its CSV file.

import { axisTitle, tooled } from "./changes.js";
import { element, tableOf } from "./elements.js";
import { entryOf, isFloor, isMark, notesOf, plain } from "./traces.js";
import { shownNumber } from "./words.js";

const ROWS = 500; // the most rows in the data table; the CSV file has all

/**
 * Return a row for each point of the shown lines: its line, x, y, and for maps its value or for curves the words of its mark or point.
 * @param {Plot} container
 * @returns {Generator<(string | number)[]>}
 */
function* points(container) {
  const { data } = tooled(container, container.base);
  const columns = headings(container).length;
  const floor = data.filter(isFloor).map(({ y }) => y[0] * 1.001).at(0) ?? 0; // curves have five digits
  for (const trace of data.filter((other) => !isMark(other) && !isFloor(other))) {
    const edge = trace.meta && trace.showlegend === false && trace.line?.width === 0 && (trace.fill ? "lowest seed" : "highest seed");
    const published = trace.meta?.published && trace.showlegend === false && "published"; // else its own entry says so
    const label = [entryOf(trace), edge, published, trace.isMean && "moving mean"].filter(Boolean).join(", ");
    if (trace.type === "heatmap") {
      for (const [row, values] of trace.z.entries()) for (const [column, exponent] of values.entries()) if (Number.isFinite(exponent)) yield [label || "value", trace.x[column], trace.y[row], 10 ** exponent];
    } else {
      const { x: along, y: up } = trace, notes = notesOf(data, trace);
      for (let at = 0; at < up.length; at += 1) yield [label, along[at], edge && up[at] <= floor ? 0 : up[at], trace.hovertext ? plain(trace.hovertext[at]) : notes.get(along[at]) ?? ""].slice(0, columns);
    }
  }
}

/** @param {Plot} container */
function headings({ base: { data, layout } }) {
  const last = data.some(({ type }) => type === "heatmap") ? ["value"] : data.some((trace) => isMark(trace) && trace.text.some(Boolean)) || data.some(({ hovertext }) => Array.isArray(hovertext)) ? ["note"] : [];
  return ["line", axisTitle(layout, "xaxis") || "x", axisTitle(layout, "yaxis") || "y", ...last];
}

/**
 * Return the points as CSV, with names escaped so that no spreadsheet takes them for formulas.
 * @param {Plot} container
 */
export function csvOf(container) {
  /** @param {string | number | undefined} value */
  const quoted = (value) => {
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value ?? "") ? "'" + value : value ?? "";
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [headings(container), ...points(container)].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}

/** @param {Plot} container */
export function dataTable(container) {
  const rows = [];
  let left = 0;
  for (const point of points(container)) {
    if (rows.length < ROWS) rows.push(point.map((value) => (typeof value === "number" ? shownNumber(value) : value)));
    else left += 1;
  }
  return [tableOf("Data of the figure", headings(container), rows), ...(left ? [element("p", `Further rows, in the CSV file: ${left}`)] : [])];
}
