// All runs of the page, as records.

import { unpackIndex, unpackRun } from "./data.js";

/** @type {Run[] | null} */
let allRuns = null;

// Return all runs as records that include their variant and condition.
export async function loadRuns() {
  if (allRuns) return allRuns;
  const { columns, rows, variants, conditions } = await unpackIndex();
  allRuns = rows.map((row) => {
    const record = /** @type {Run} */ (/** @type {unknown} */ (Object.fromEntries(columns.map((name, number) => [name, row[number]]))));
    const own = variants[record.variant];
    const condition = conditions[own.condition];
    return { ...record, label: own.label, model: own.model, group: own.key, parameters: own.parameters, settings: own.settings, title: condition.title, task: condition.task, metric: condition.metric, baseline: condition.baseline, condition };
  });
  return allRuns;
}

// Forget the runs, so that they are read again.
export function forgetRuns() {
  allRuns = null;
}

/**
 * @param {string} key
 * @returns {Promise<RunRecord | null>}
 */
export async function runRecord(key) {
  const run = (await loadRuns()).find((other) => other.key === key);
  if (!run) return null;
  return { ...run, ...(await unpackRun("runs-" + run.condition.key, key)) };
}

/** @param {Run} run */
export function secondsPerEpoch(run) {
  return run.epochs ? run.seconds / run.epochs : null;
}
