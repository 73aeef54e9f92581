// The moving mean of curves.

/**
 * Return smoothing widths of about 3, 9 and 27 tests, at least 1, 3 and 10 % of x, rounded to 1, 2 or 5 times a power of ten.
 * @param {Figure} figure
 */
export function windowsOf({ data }) {
  const curves = data.filter(isSmoothed).map(({ x }) => x);
  if (!curves.length) return [];
  const [span, tests] = curves.map((along) => [along.at(-1) - along[0], along.length]).reduce((most, other) => (other[0] > most[0] ? other : most));
  /** @param {number} width */
  const round = (width) => Number([1, 2, 5, 10].map((factor) => factor * 10 ** Math.floor(Math.log10(width))).reduce((near, other) => (Math.abs(Math.log(other / width)) < Math.abs(Math.log(near / width)) ? other : near)).toPrecision(1));
  const widths = [0.01, 0.03, 0.1].map((share, number) => round(span * Math.max(share, 3 ** (number + 1) / tests)));
  return span > 0 ? [...new Set(widths)].filter((width) => width <= span / 2) : [];
}

/** @param {Trace} trace */
function isSmoothed({ mode, line, fill, x, y }) {
  return mode?.includes("lines") && line?.width !== 0 && !fill && y.length > 2 && typeof x[0] === "number";
}

/**
 * Return a faint copy of a line, and its moving mean over an interval of x; bands and marks do not change. A test counts by its
 * share of x, not by the number of its neighbours. Near an end the interval is shorter on both sides. On a logarithmic axis
 * the mean is taken of the logarithms.
 * @param {Trace} trace
 * @param {number} width
 * @param {boolean} isLog
 * @returns {Trace[]}
 */
export function smoothed(trace, width, isLog) {
  if (!isSmoothed(trace)) return [trace];
  const { x: along, y: raw } = trace;
  const last = along.length - 1;
  /** @param {number | null} value */
  const isShown = (value) => typeof value === "number" && Number.isFinite(isLog ? Math.log(value) : value);
  const sums = [0], weights = [0];
  for (let at = 0; at <= last; at += 1) {
    const value = isLog ? Math.log(raw[at]) : raw[at];
    const weight = isShown(raw[at]) ? (along[Math.min(at + 1, last)] - along[Math.max(at - 1, 0)]) / 2 : 0;
    sums.push(sums[at] + (weight && weight * value));
    weights.push(weights[at] + weight);
  }
  let [from, to] = [0, 0];
  const mean = along.map((middle, at) => {
    const reach = Math.min(width / 2, middle - along[0], along[last] - middle) * (1 + 1e-9);
    while (along[from] < middle - reach) from += 1;
    while (to <= last && along[to] <= middle + reach) to += 1;
    const weight = weights[to] - weights[from];
    if (!(weight > 0) || !isShown(raw[at])) return null;
    const value = (sums[to] - sums[from]) / weight;
    return isLog ? Math.exp(value) : value;
  });
  return [{ ...trace, opacity: 0.25, showlegend: false, hoverinfo: "skip" }, { ...trace, y: mean, isMean: true }];
}
