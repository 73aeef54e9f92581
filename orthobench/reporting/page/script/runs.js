// All runs of the page, as records.

import { unpack, unpackIndex } from "./data.js";
import { duration, shownNumber } from "./words.js";

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
    return { ...record, label: own.label, model: own.model, group: own.key, parameters: own.parameters, stands: own.stands, settings: own.settings, title: condition.title, task: condition.task, metric: condition.metric, baseline: condition.baseline, condition };
  });
  return allRuns;
}

/**
 * @param {string} key
 * @returns {Promise<RunRecord | null>}
 */
export async function runRecord(key) {
  const run = (await loadRuns()).find((other) => other.key === key);
  if (!run) return null;
  const { runs, axes } = await unpack("runs-" + run.condition.key);
  return { ...run, ...runs[key], axes };
}

/**
 * Return the seconds that a run still trains, if it goes on as fast; null before its first test.
 * @param {Run} run
 */
export function timeLeft({ seconds, iterations, total }) {
  return iterations ? (seconds * (total - iterations)) / iterations : null;
}

/**
 * Return how far a running run is, and the time that is left.
 * @param {Run} run
 */
export function progressOf(run) {
  return run.iterations ? `epoch ${run.epochs.toFixed(2)} of ${shownNumber((run.epochs * run.total) / run.iterations)} · ${duration(timeLeft(run))} left` : "starting";
}

/** @param {Run} run */
export function secondsPerEpoch(run) {
  return run.epochs ? run.seconds / run.epochs : null;
}
