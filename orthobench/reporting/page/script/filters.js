// The filters of the page of tasks, what they let pass, and the model that stands out.

import { isEdge } from "./traces.js";

export const measuredForm = /** @type {PageForm | null} */ (document.getElementById("measured-filters"));

/**
 * @param {string} name
 * @returns {string}
 */
export function measuredChoice(name) {
  return measuredForm?.elements[name]?.value ?? "";
}

/**
 * Return whether the filters next to a figure let a line pass.
 * @param {Plot} container
 * @param {Trace} trace
 */
export function passes(container, { meta }) {
  if (!meta?.model || !container.closest("#view-measured")) return true;
  const [model, tag] = ["model", "tag"].map(measuredChoice);
  return (!model || meta.model === model) && (!tag || (meta.tags ?? []).includes(tag));
}

/** The condition that the page of tasks shows, and the model whose lines are thick; "" for none. */
export const chosen = { condition: "", model: "" };

/**
 * Return the traces with the chosen model's thick and on top, and the others thin and without bands.
 * @param {Plot} container
 * @param {Trace[]} data
 */
export function emphasized(container, data) {
  /** @param {Trace} trace */
  const isChosen = ({ meta }) => meta?.model === chosen.model;
  if (!chosen.model || !container.closest("#view-measured") || !data.some(isChosen)) return data;
  /** @type {(trace: Trace) => Trace} */
  const restyled = (trace) => {
    if (isEdge(trace) || !trace.meta?.model) return trace;
    const width = isChosen(trace) ? 4 : 1;
    return { ...trace, opacity: isChosen(trace) ? 1 : 0.5, ...(trace.line && { line: { ...trace.line, width } }) };
  };
  const kept = data.filter((trace) => !isEdge(trace) || isChosen(trace)).map(restyled);
  return [...kept.filter((trace) => !isChosen(trace)), ...kept.filter(isChosen)];
}
