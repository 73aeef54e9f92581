// Figures for the pages that the script builds.

import { GREY } from "./colours.js";
import { element, withAttributes } from "./elements.js";
import { escaped, extent } from "./traces.js";
import { shownNumber } from "./words.js";

/**
 * Return a figure for a page that the script builds. `lines` have a name, x, y, a color, optionally their number of points
 * where some are left out (`of`), and optionally other properties of a trace.
 * @param {string} title
 * @param {Line[]} lines
 * @param {{x: string, y: string, logarithmic?: boolean, baseline?: number | null, small?: boolean, rates?: Rates, command?: string}} about
 */
export function plot(title, lines, { x, y, logarithmic = false, baseline = null, small = true, rates = {}, command = "" }) {
  const container = /** @type {Plot} */ (withAttributes(element("div", null), { class: small ? "plot small" : "plot", role: "img", "aria-label": title }));
  container.dataset.command = command;
  container.longest = Math.max(0, ...lines.map(({ of }) => of ?? 0));
  const data = lines.map(({ name, color, dash = "solid", width = 2, of, ...others }) => ({ mode: "lines", name: escaped(name), line: { color, width, dash }, ...others }));
  if (baseline !== null && data.length) {
    const ends = data.map(({ x: along }) => along).filter((along) => along.length);
    const last = Math.max(...ends.map((along) => along[along.length - 1]));
    data.push({ x: [0, last], y: [baseline, baseline], name: `baseline ${shownNumber(baseline)}`, mode: "lines", line: { color: GREY, width: 1.5, dash: "dash" } });
  }
  /** @type {Layout} */
  const layout = {
    xaxis: { title: { text: escaped(x) }, automargin: true },
    yaxis: { title: { text: escaped(y ?? "") }, automargin: true, type: logarithmic ? "log" : "linear", exponentformat: "power" },
    margin: { l: 60, r: 16, t: 24, b: 48 }, hovermode: lines.length > 12 ? "closest" : "x unified", showlegend: data.filter((trace) => trace.showlegend !== false).length > 1,
  };
  const [low, high] = extent(data);
  if (low === high && !logarithmic) layout.yaxis.range = low === 0 ? [-0.05, 1.05] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  container.figure = { data, layout };
  container.rates = rates;
  const drawn = container.longest ? `; drawn through the first and the most extreme points, of up to ${container.longest}` : "";
  return element("figure", null, container, element("figcaption", title + drawn));
}
