// The filters of the page of tasks, what they let pass, and the model that stands out.

import { colour, GREY } from "./colours.js";
import { isEdge } from "./traces.js";

export const measuredForm = /** @type {PageForm | null} */ (document.getElementById("measured-filters"));

/**
 * @param {string} name
 * @returns {string}
 */
export function measuredChoice(name) {
  return measuredForm?.elements[name]?.value ?? "";
}

/** @type {WeakMap<Element, Set<string>>} */
const ranked = new WeakMap();

/**
 * Return the labels of the variants that the ranking next to a figure shows, of each model one; empty without a ranking.
 * @param {Plot} container
 */
function rankedNextTo(container) {
  const section = container.closest("#measured .filtered");
  if (!section) return new Set();
  if (!ranked.has(section)) ranked.set(section, new Set([...section.querySelectorAll(".board tr[data-model] a bdi")].filter((name) => !name.closest(".further")).map(({ textContent }) => textContent)));
  return ranked.get(section);
}

/**
 * Return whether a figure has lines of variants that the ranking does not show, such as trials.
 * @param {Plot} container
 */
export function hasFurther(container) {
  const own = rankedNextTo(container);
  return own.size > 0 && container.base.data.some(({ meta }) => meta?.variant && !own.has(meta.variant));
}

/**
 * Return whether the filters next to a figure let a line pass. Without a model or a tag these are the lines of the
 * variants that the ranking shows, unless the reader asks for all.
 * @param {Plot} container
 * @param {Trace} trace
 */
export function passes(container, { meta }) {
  if (!meta?.model || !container.closest("#measured")) return true;
  const [model, tag] = ["model", "tag"].map(measuredChoice);
  if (model || tag) return (!model || meta.model === model) && (!tag || (meta.tags ?? []).includes(tag));
  const own = rankedNextTo(container);
  return container.tools?.all || !own.size || own.has(meta.variant);
}

/** The condition that the page of tasks shows, and the model whose lines are thick; "" for none. */
export const chosen = { condition: "", model: "" };

/**
 * Return the traces with the chosen model's thick, on top and never grey, and the others thin and without bands.
 * @param {Plot} container
 * @param {Trace[]} data
 */
export function emphasized(container, data) {
  /** @param {Trace} trace */
  const isChosen = ({ meta }) => meta?.model === chosen.model;
  if (!chosen.model || !container.closest("#measured") || !data.some(isChosen)) return data;
  /** @type {(trace: Trace) => Trace} */
  const restyled = (trace) => {
    if (isEdge(trace) || !trace.meta?.model) return trace;
    if (!isChosen(trace)) return { ...trace, opacity: 0.4, ...(trace.line && { line: { ...trace.line, width: 1 } }) };
    /** @type {<P extends { color?: unknown }>(part: P) => P} */
    const inSight = (part) => (part.color === GREY ? { ...part, color: colour("--ink") } : part);
    return { ...trace, ...(trace.line && { line: { ...inSight(trace.line), width: 4 } }), ...(trace.marker && { marker: { ...inSight(trace.marker), ...(typeof trace.marker.size === "number" && !trace.line && { size: 1.4 * trace.marker.size }) } }) };
  };
  const kept = data.filter((trace) => !isEdge(trace) || isChosen(trace)).map(restyled);
  return [...kept.filter((trace) => !isChosen(trace)), ...kept.filter(isChosen)];
}
