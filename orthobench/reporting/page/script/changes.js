// What the tools of a figure change: the unit of x, a logarithmic y axis and smoothing.

import { smoothed } from "./smoothing.js";
import { plain } from "./traces.js";

export const UNITS = ["epoch", "iteration", "seconds"];

/**
 * @param {Layout} layout
 * @param {"xaxis" | "yaxis"} name
 */
export function axisTitle(layout, name) {
  const title = layout[name]?.title;
  return plain(typeof title === "string" ? title : title?.text ?? "");
}

/**
 * Return the unit of a figure's x axis, if it shows the progress of training.
 * @param {Layout} layout
 */
export function unitOf(layout) {
  const title = axisTitle(layout, "xaxis").toLowerCase().replace(/s$/, "");
  return UNITS.find((unit) => title === unit || title === unit.replace(/s$/, "")) ?? null;
}

/**
 * Return the factor that converts a trace's x to a unit; null if it is not known.
 * @param {Plot} container
 * @param {Trace} trace
 * @param {string} unit
 */
function factor(container, trace, unit) {
  const [perEpoch, seconds] = container.rates[trace.meta?.label] ?? Object.values(container.rates)[0] ?? [];
  const from = unitOf(container.base.layout);
  /** @type {Record<string, number | null>} */
  const perUnit = { epoch: 1, iteration: perEpoch, seconds };
  return perUnit[from] && perUnit[unit] ? perUnit[unit] / perUnit[from] : null;
}

/**
 * @param {Plot} container
 * @param {string} unit
 */
export function canConvert(container, unit) {
  return container.base.data.every((trace) => factor(container, trace, unit) !== null);
}

/**
 * Return the figure with the changes from its tools.
 * @param {Plot} container
 * @param {Figure} figure
 * @returns {Figure}
 */
export function tooled(container, figure) {
  const tools = container.tools;
  if (!tools || !(tools.unit || tools.log !== null || tools.smooth || tools.whole)) return figure;
  const layout = { ...figure.layout, xaxis: { ...figure.layout.xaxis }, yaxis: { ...figure.layout.yaxis } };
  const isLog = tools.log ?? figure.layout.yaxis?.type === "log";
  let data = tools.smooth ? figure.data.flatMap((trace) => smoothed(trace, tools.smooth, isLog)) : figure.data;
  if (tools.unit && tools.unit !== unitOf(container.base.layout)) {
    data = data.map((trace) => ({ ...trace, x: trace.x.map((x) => x * factor(container, trace, tools.unit)) }));
    layout.xaxis.title = { text: tools.unit === "seconds" ? "seconds of training" : tools.unit };
    delete layout.xaxis.range;
  }
  if (tools.log !== null) {
    layout.yaxis.type = tools.log ? "log" : "linear";
    if (tools.log !== (figure.layout.yaxis?.type === "log")) delete layout.yaxis.range;
    if (tools.log) delete layout.yaxis.rangemode;
  }
  if (tools.whole) delete layout.yaxis.range;
  return { data, layout };
}
