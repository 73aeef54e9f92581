// The filters of the page of tasks, and what they let pass.

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
