// Pictures of a figure for a paper, and the figure alone in print.

import { tooled } from "./changes.js";
import { element, withAttributes } from "./elements.js";
import { passes } from "./filters.js";
import { plotly } from "./plotly.js";
import { broken, entryOf, LOG_TICKS, withFewBands, withGaps } from "./traces.js";

/** @type {Record<string, number>} */
export const WIDTHS = { "6.75 in": 6.75, "3.25 in": 3.25 }; // of two columns of a paper, and of one

/**
 * Return a picture for a paper: of the width of one or two columns, with 8 pt text, in light colours, its legend below.
 * @param {Plot} container
 * @param {"svg" | "png"} format
 */
export async function picture(container, format) {
  const { data, layout } = tooled(container, { ...container.base, data: container.base.data.filter((trace) => passes(container, trace)) }), { inches } = container.tools;
  const text = 32 / 3, width = 96 * inches; // pixels
  /** @type {(trace: Trace) => Trace} */
  const small = ({ line, marker, ...trace }) => ({
    ...trace, ...(line && { line: { ...line, width: 0.65 * (line.width ?? 2) } }),
    ...(marker && { marker: { ...marker, size: Array.isArray(marker.size) ? marker.size.map((size) => 0.6 * size) : 0.6 * (marker.size ?? 6) } }),
  });
  const shown = withFewBands(container, data).filter((trace) => !container.off?.has(entryOf(trace))).map((trace) => small(withGaps(trace, layout)));
  const names = layout.showlegend === false ? [] : shown.filter(({ showlegend, name }) => showlegend !== false && name).map(entryOf);
  let [lines, filled] = [names.length && 1, 0]; // of the legend, 20 pixels high, with about 6 pixels a letter
  for (const name of names) {
    const wide = 6 * name.length + 62;
    if (filled && filled + wide > width) [lines, filled] = [lines + 1, 0];
    filled += wide;
  }
  const rows = layout.yaxis?.ticktext?.length ?? 0;
  const plot = Math.max(inches > 4 ? 250 : 190, 15 * rows + 50), height = plot + 20 * lines + 6;
  /** @type {(own: Axis, letters: number) => Axis} */
  const axis = (own, letters) => ({ ...own, ...(own?.type === "log" && { nticks: LOG_TICKS }), automargin: true, title: { ...broken(own?.title, letters), font: { size: text }, standoff: 4 }, tickfont: { size: own?.type === "log" ? text / 1.25 : text }, gridcolor: "#e4e4e4", linecolor: "#000000", showline: true, zeroline: false });
  const light = {
    ...layout, paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", showlegend: names.length > 0,
    font: { size: text, family: "Arial, Liberation Sans, sans-serif", color: "#000000" }, margin: { l: 40, r: 14, t: 8, b: 34 + 20 * lines },
    xaxis: axis(layout.xaxis, width / 6), yaxis: axis(layout.yaxis, (plot - 50) / 6),
    legend: { orientation: "h", xref: "container", x: 0, yref: "container", y: 5 / height, yanchor: "bottom", maxheight: 20 * lines + 20, tracegroupgap: 0, font: { size: text } },
  };
  await plotly();
  return Plotly.toImage({ data: shown, layout: light }, { format, width, height, scale: format === "png" ? 600 / 96 : 1 });
}

/**
 * Print one figure alone on a page of its own size: what the browser saves as PDF then has lines, not pixels.
 * @param {Plot} container
 * @param {string} name
 */
export async function printAlone(container, name) {
  const image = element("img", null), { title } = document;
  image.src = await picture(container, "svg");
  await image.decode();
  const size = `${image.naturalWidth}px ${image.naturalHeight}px`;
  const sheet = withAttributes(element("div", null, element("style", `@page { size: ${size}; margin: 0; }`), image), { class: "alone" });
  document.body.append(sheet);
  document.documentElement.dataset.alone = "";
  document.title = name;
  window.print();
  delete document.documentElement.dataset.alone;
  document.title = title;
  sheet.remove();
}
