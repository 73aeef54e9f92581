// What is in the search box above the table of runs: words and pairs such as name=value.

import { shownValue } from "./words.js";

/** @param {Run} run */
function haystack(run) {
  run.words ??= [run.key, run.label, run.model, run.task, run.title, run.status, `seed=${run.seed}`, run.message, ...run.tags, ...Object.entries(run.settings).map(([name, value]) => `${name}=${value}`)].join(" ").toLowerCase();
  return run.words;
}

/**
 * Return the values of a run by name: its settings, and what its title and label show, such as the T of "T = 200".
 * @param {Run} run
 */
function valuesOf(run) {
  if (run.values) return run.values;
  run.values = new Map();
  /** @type {(name: string, value: unknown) => void} */
  const add = (name, value) => run.values.set(name.toLowerCase(), [...(run.values.get(name.toLowerCase()) ?? []), String(value).toLowerCase()]);
  for (const text of [run.title, run.condition.label, run.label]) for (const [, name, value] of text.matchAll(/([^\s=,;()]+)\s*=\s*([^\s=,;()]+)/g)) add(name, value);
  for (const name of /** @type {const} */ (["key", "model", "task", "metric", "status", "seed"])) add(name, run[name]);
  for (const [name, value] of Object.entries(run.settings)) for (const text of new Set([value === null ? "none" : String(value), shownValue(value)])) add(name, text);
  return run.values;
}

/**
 * Return a test of a run for what is in the search box: words, of which parts count, and pairs such as name=value, of
 * which the whole value counts. A value with spaces is in quotes.
 * @param {string} text
 * @returns {(run: Run) => boolean}
 */
export function searchOf(text) {
  /** @type {[string, string][]} */
  const pairs = [];
  const rest = text.toLowerCase().replace(/([^\s=]+)\s*=\s*(?:"([^"]*)"|([^\s="]+))/g, (_, name, quoted, value) => {
    pairs.push([name, quoted ?? value]);
    return " ";
  });
  const words = rest.split(/\s+/).filter(Boolean);
  /** @type {(own: string, wanted: string) => boolean} */
  const isEqual = (own, wanted) => own === wanted || (Number(own) === Number(wanted) && wanted !== "");
  return (run) => words.every((word) => haystack(run).includes(word)) &&
    pairs.every(([name, wanted]) => (valuesOf(run).get(name) ?? []).some((own) => isEqual(own, wanted)));
}
