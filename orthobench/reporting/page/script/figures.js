// Draws figures in the page's colours, and purges them.

import { tooled } from "./changes.js";
import { inPageColours, themed } from "./colours.js";
import { unpack } from "./data.js";
import { chosen, emphasized, passes } from "./filters.js";
import { rangesOf, restoreFigure } from "./kept.js";
import { workByKeys } from "./keys.js";
import { placeEnds, roomForEnds, showLegend } from "./legend.js";
import { plotly } from "./plotly.js";
import { addTools } from "./tools.js";
import { entryOf, hasNamedRows, plotsIn, withFewBands, withGaps } from "./traces.js";

const options = { responsive: true, displaylogo: false, displayModeBar: false };
const NAMED_ROW = 36, ROW = 16; // pixels of a row with its name above its symbols, and left of them
const MOST_ROWS = 20; // of models in the figure of seeds, unless the reader asks for all

/**
 * Load a figure's data, and draw it.
 * @param {Plot} container
 */
export async function draw(container) {
  await load(container);
  await plotly();
  if (container.isConnected) drawNow(container);
}

/**
 * Load a figure's data, unless it has them.
 * @param {Plot} container
 */
async function load(container) {
  if (container.base) return;
  if (container.figure) return prepare(container, container.figure);
  const { figures, rates } = await unpack("figures-" + container.dataset.condition);
  if (container.base) return; // loaded meanwhile
  container.rates = rates;
  prepare(container, figures[container.dataset.figure]);
}

/**
 * Load the figures that a view shows, because printing draws them all and waits for nothing.
 * @param {HTMLElement} view
 */
export async function loadAhead(view) {
  const containers = plotsIn(view).filter(({ offsetParent }) => offsetParent);
  if (containers.length) await plotly();
  for (const container of containers) {
    if (container.offsetParent) await load(container).catch(console.error);
    await new Promise((resume) => setTimeout(resume)); // what the reader does comes first
  }
}

/**
 * Give a figure its data, keys and tools.
 * @param {Plot} container
 * @param {Figure} figure
 */
function prepare(container, figure) {
  container.base = figure;
  if (figure.longest) container.longest = figure.longest;
  container.rates ??= {};
  restoreFigure(container);
  workByKeys(container);
  addTools(container, draw);
}

/**
 * Draw a figure whose data is loaded, applying its tools and the filters next to it, in the ranges that the reader has set.
 * @param {Plot} container
 */
export function drawNow(container) {
  const figure = tooled(container, withoutEmptyRows({ ...container.base, data: container.base.data.filter((trace) => passes(container, trace)) }, container.tools.all));
  const data = withFewBands(container, emphasized(container, figure.data)).map((trace) => withGaps(themed(trace), figure.layout));
  for (const trace of data) if (container.off.has(entryOf(trace))) trace.visible = false;
  const all = figure.layout.yaxis?.ticktext?.length ?? 0, rows = hasNamedRows(figure.layout, container.clientWidth) ? all : 0;
  container.style.height = rows ? `${NAMED_ROW * rows + 80}px` : all > MOST_ROWS ? `${ROW * all + 80}px` : "";
  const layout = inPageColours(figure.layout, container.clientWidth, container.clientHeight);
  if (rows) layout.yaxis.range = [0.7 - rows, 0.9]; // room for the first row's name
  if (figure.layout.showlegend !== false) {
    showLegend(container, data, draw);
    container.ends = roomForEnds(container, data);
    if (container.ends) layout.margin.r = container.ends + 10;
  }
  container.ranges = rangesOf(container, layout);
  const drawn = { xaxis: { ...layout.xaxis }, yaxis: { ...layout.yaxis } }; // copied because Plotly writes the ranges it chooses into the layout
  Plotly.react(container, data, layout, options);
  if (!container.drawn) container.on("plotly_afterplot", () => { if (container.ends !== undefined) placeEnds(container, drawNow); });
  container.drawn = drawn;
  if (container.ranges) Plotly.relayout(container, container.ranges);
  container.ranges = null;
  placeEnds(container, drawNow);
}

/**
 * Return the figure of seeds without the rows of the models that the filters hide, and with the best ones of the others
 * and that of the chosen model.
 * @param {Figure} figure
 * @param {boolean} isWhole whether to keep more than the best rows
 * @returns {Figure}
 */
function withoutEmptyRows(figure, isWhole) {
  const { tickvals, ticktext } = figure.layout.yaxis ?? {};
  const used = new Map(figure.data.filter(({ meta }) => meta?.model).flatMap(({ y, meta }) => y.map((row) => [row, meta.model])));
  const kept = (tickvals ?? []).filter((row) => used.has(row)).filter((row, number) => isWhole || number < MOST_ROWS || used.get(row) === chosen.model);
  if (!kept.length || kept.length === tickvals.length) return figure;
  const moved = new Map(kept.map((row, number) => [row, -number]));
  const data = figure.data.map((trace) => ({ ...trace, y: trace.meta?.model ? trace.y.map((row) => moved.get(row) ?? null) : [0.5, 0.5 - kept.length] }));
  const yaxis = { ...figure.layout.yaxis, tickvals: kept.map((row) => moved.get(row)), ticktext: ticktext.filter((_, at) => moved.has(tickvals[at])), range: [0.5 - kept.length, 0.5] };
  return { ...figure, data, layout: { ...figure.layout, yaxis } };
}

/** @param {Plot} container */
export function purge(container) {
  if (!container.drawn) return;
  container.ranges = rangesOf(container);
  Plotly.purge(container);
  container.replaceChildren();
  container.drawn = null;
}

export function redraw() {
  for (const container of plotsIn(document)) {
    if (!container.drawn) continue;
    if (container.offsetParent) drawNow(container);
    else purge(container);
  }
}
