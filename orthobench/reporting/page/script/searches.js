// The page of a search: parallel coordinates, slices and the importance of settings.

import { lineStyle, theme } from "./colours.js";
import { unpackIndex } from "./data.js";
import { element, link, tableOf, withAttributes } from "./elements.js";
import { plot } from "./plot.js";
import { escaped, plotsIn } from "./traces.js";
import { shownNumber } from "./words.js";

const BEST = 10; // number of trials in the legend of a search

/** @param {string} key */
export async function fillSearch(key) {
  const { searches, conditions } = await unpackIndex();
  const search = searches.find((other) => other.key === key);
  const view = document.getElementById("search");
  if (!search) return false;
  const condition = conditions.find((other) => other.key === search.condition);
  const valued = search.trials.filter(({ rank }) => rank > 0);
  const header = ["rank", `${search.split} ${search.metric}, best`, ...search.axes.map(({ name }) => name), "run"];
  /** @param {Trial} trial */
  const row = (trial) => [trial.rank || "–", trial.value === null ? trial.status : shownNumber(trial.value), ...trial.settings, withAttributes(element("a", trial.run.slice(0, 10)), { href: `#run-${trial.run}` })];
  const goal = search.goal === "min" ? "lowest" : "highest";
  const slices = withAttributes(element("div", null), { class: "pair" });
  search.axes.forEach((axis, number) => slices.append(slicePlot(search, axis, number, valued)));
  view.replaceChildren(
    element("h2", `Search of ${search.axes.map(({ name }) => name).join(", ")}`),
    element("p", null, element("bdi", search.model), " on ", link(`#${condition.key}`, condition.title), `; trials: ${search.trials.length}, with a value: ${valued.length}; objective: ${goal} ${search.split} ${search.metric}`),
    ...(valued.length ? [parallelPlot(search, valued)] : []),
    element("h3", `The ${Math.min(BEST, valued.length)} best`), tableOf("The best trials", header, valued.slice(0, BEST).map(row)),
    element("h3", "Which settings matter"), importance(search),
    element("h3", "Each setting alone"), slices,
    element("h3", "All trials"), tableOf("All trials", header, search.trials.map(row)),
  );
  return true;
}

/**
 * Return a setting's position on its axis, from 0 to 1.
 * @param {SearchAxis} axis
 * @param {string | number} text
 */
function position(axis, text) {
  if (axis.choices) return axis.choices.length < 2 ? 0.5 : axis.choices.indexOf(String(text)) / (axis.choices.length - 1);
  /** @type {(value: number) => number} */
  const scale = axis.log ? Math.log : (value) => value;
  return axis.high === axis.low ? 0.5 : (scale(Number(text)) - scale(axis.low)) / (scale(axis.high) - scale(axis.low));
}

/**
 * Draw a line for each trial through its settings and its value; the ten best are named.
 * @param {Search} search
 * @param {Trial[]} valued
 */
function parallelPlot(search, valued) {
  const values = valued.map(({ value }) => value);
  const isWide = Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) >= 20;
  const objective = { name: search.metric, low: Math.min(...values), high: Math.max(...values), log: isWide };
  const axes = [...search.axes, objective];
  /** @param {Trial} trial */
  const places = (trial) => axes.map((axis, number) => position(axis, number < search.axes.length ? trial.settings[number] : trial.value));
  const rest = valued.slice(BEST);
  const grey = { name: "other trials", x: rest.flatMap(() => [...axes.keys(), null]), y: rest.flatMap((trial) => [...places(trial), null]), color: "#9aa4ae", width: 1, hoverinfo: "skip" };
  const best = valued.slice(0, BEST).map((trial, number) => ({ name: `${trial.rank}: ${shownNumber(trial.value)}`, x: [...axes.keys()], y: places(trial), ...lineStyle(number), text: [...trial.settings, shownNumber(trial.value)], hoverinfo: "text+name" }));
  const figure = plot("Parallel coordinates: a line for each trial through its settings and its value; the legend has the ten best.", [...(rest.length ? [grey] : []), ...best.reverse()], { x: "", y: "", small: false });
  const [{ figure: { layout } }] = plotsIn(figure);
  /** @type {(axis: SearchAxis, high: boolean) => string} */
  const end = (axis, high) => escaped(axis.choices ? axis.choices[high ? axis.choices.length - 1 : 0] : shownNumber(high ? axis.high : axis.low));
  Object.assign(layout, { hovermode: "closest", annotations: axes.flatMap((axis, at) => [true, false].map((high) => ({ x: at, y: high ? 1.07 : -0.07, text: end(axis, high), showarrow: false }))) });
  Object.assign(layout.xaxis, { tickvals: [...axes.keys()], ticktext: axes.map((axis) => escaped(axis.name + (axis.log ? " (log)" : ""))), range: [-0.3, axes.length - 0.7] });
  Object.assign(layout.yaxis, { showticklabels: false, range: [-0.12, 1.12], showgrid: false });
  return figure;
}

/**
 * @param {Search} search
 * @param {SearchAxis} axis
 * @param {number} number
 * @param {Trial[]} valued
 */
function slicePlot(search, axis, number, valued) {
  const line = { name: axis.name, x: valued.map(/** @returns {any} */ (trial) => (axis.choices ? trial.settings[number] : Number(trial.settings[number]))), y: valued.map(({ value }) => value), mode: "markers", marker: { color: theme.palette[0], size: 7 } };
  const figure = plot(`${search.split} ${search.metric} by ${axis.name}`, [line], { x: axis.name, y: search.metric });
  const [{ figure: { layout } }] = plotsIn(figure);
  layout.hovermode = "closest";
  if (axis.log) layout.xaxis.type = "log";
  return figure;
}

/** @param {Search} search */
function importance(search) {
  if (!search.importance) return element("p", "Not estimated: this needs optuna when the page is built, and five finished trials or more.");
  const shares = Object.entries(search.importance).sort(([, first], [, second]) => second - first);
  const bars = shares.map(([name, share]) => {
    const bar = element("i", null);
    bar.style.width = `${Math.round(100 * share)}%`;
    return element("li", null, element("span", `${name} ${Math.round(100 * share)} %`), withAttributes(element("span", null, bar), { class: "share" }));
  });
  return element("div", null, withAttributes(element("ul", null, ...bars), { class: "importance" }), withAttributes(element("p", "The share of each setting, by optuna's PED-ANOVA over the finished trials."), { class: "note" }));
}
