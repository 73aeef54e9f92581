// Small pictures without axes: the curve of a run, and the seeds of a model as dots.

import { withAttributes } from "./elements.js";
import { shownNumber } from "./words.js";

const [WIDTH, HEIGHT] = [240, 56];
const [STRIP, ROW] = [180, 18];
const WIDE = 50; // from this ratio of the largest to the smallest value, dots stand on a logarithmic scale

/** @type {(kind: string, attributes: Record<string, string | number>) => Element} */
const make = (kind, attributes) => withAttributes(document.createElementNS("http://www.w3.org/2000/svg", kind), attributes);

/**
 * Draw a metric over the iterations, with the baseline dashed. An untrained model may be far off, so the range ends half
 * above the baseline of a metric whose low values are good, unless the whole curve is above.
 * @param {number[]} x
 * @param {number[]} y
 * @param {number | null} baseline
 * @param {"min" | "max"} goal
 */
export function sparkOf(x, y, baseline, goal) {
  const finite = y.filter((value) => Number.isFinite(value));
  let [low, high] = [Math.min(...finite, baseline ?? Infinity), Math.max(...finite, baseline ?? -Infinity)];
  if (goal === "min" && baseline > 0 && Math.min(...finite) < 1.5 * baseline) [low, high] = [Math.min(low, 0), Math.min(high, 1.5 * baseline)];
  const [first, last] = [x[0], x[x.length - 1]];
  /** @param {number} value */
  const height = (value) => Math.round(HEIGHT - 4 - Math.min(1, Math.max(0, (value - low) / (high - low || 1))) * (HEIGHT - 8));
  const points = x.map((at, number) => [Math.round(4 + ((at - first) / (last - first || 1)) * (WIDTH - 8)), y[number]]).filter(([, value]) => Number.isFinite(value));
  const svg = make("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  if (baseline !== null) svg.append(make("path", { class: "level", d: `M4 ${height(baseline)}H${WIDTH - 4}` }));
  svg.append(make("path", { class: "own", d: points.map(([at, value], number) => `${number ? "L" : "M"}${at} ${height(value)}`).join("") }));
  return svg;
}

/**
 * Return a function that draws values as dots on the scale that all of them share, with the baseline as a line.
 * @param {number[]} all
 * @param {number | null} baseline
 * @returns {(values: number[], own: boolean) => Element}
 */
export function strip(all, baseline) {
  const whole = baseline === null ? all : [...all, baseline];
  const isWide = Math.min(...whole) > 0 && Math.max(...whole) > WIDE * Math.min(...whole);
  /** @param {number} value */
  const scale = (value) => (isWide ? Math.log(value) : value);
  const [low, high] = [scale(Math.min(...whole)), scale(Math.max(...whole))];
  /** @param {number} value */
  const place = (value) => Number((6 + ((scale(value) - low) / (high - low || 1)) * (STRIP - 12)).toFixed(1));
  return (values, own) => {
    const svg = make("svg", { class: "strip", viewBox: `0 0 ${STRIP} ${ROW}`, role: "img", "aria-label": values.map(shownNumber).join(", ") || "none" });
    if (baseline !== null) svg.append(make("path", { class: "level", d: `M${place(baseline)} 1V${ROW - 1}` }));
    svg.append(...values.map((value) => make("circle", { class: own ? "own" : "rival", cx: place(value), cy: ROW / 2, r: 4 })));
    return svg;
  };
}
