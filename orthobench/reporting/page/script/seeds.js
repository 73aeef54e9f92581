// Rows for the runs that differ by the seed alone.

/**
 * Return a row for the runs that differ by the seed alone, with the median or the mean of their results and the range.
 * @param {Run[]} runs
 * @param {string} kind
 * @returns {Group[]}
 */
export function overSeeds(runs, kind) {
  /** @type {Map<string, Run[]>} */
  const groups = new Map();
  for (const run of runs) groups.set(run.group, [...(groups.get(run.group) ?? []), run]);
  return [...groups].map(([key, own]) => {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const { status } of own) counts.set(status, (counts.get(status) ?? 0) + 1);
    const [end, best, validated] = /** @type {const} */ (["end", "best", "validated"]).map((name) => middle(own, name, kind));
    const seconds = own.reduce((sum, run) => sum + run.seconds, 0) / own.length;
    const tags = [...new Set(own.flatMap((run) => run.tags))];
    return { ...own[0], key, runs: own, counts, end: end.value, ends: end, best: best.value, bests: best, validated: validated.value, validateds: validated, seconds, tags };
  });
}

/**
 * Return the median or the mean of a result over seeds, with its range. A diverged run is the worst of a median; a mean
 * leaves it out, and runs without a result count nowhere.
 * @param {Run[]} runs
 * @param {"end" | "best" | "validated"} name
 * @param {string} kind
 * @returns {Spread}
 */
function middle(runs, name, kind) {
  const sign = runs[0].condition.goal === "min" ? 1 : -1;
  const own = runs.filter((run) => run[name] !== null && run.status !== "diverged");
  const values = own.map((run) => run[name]).sort((first, second) => sign * (first - second));
  const lost = runs.filter(({ status }) => status === "diverged").length;
  const range = { low: Math.min(...values), high: Math.max(...values), count: values.length + lost };
  if (kind === "mean") return { ...range, value: values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null };
  const ranked = [...values, ...Array(lost).fill(null)];
  const [first, second] = [Math.floor((ranked.length - 1) / 2), Math.ceil((ranked.length - 1) / 2)].map((at) => ranked[at] ?? null);
  return { ...range, value: first === null || second === null ? null : (first + second) / 2 };
}
