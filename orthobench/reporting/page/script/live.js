// Updates a served page: asks the server for changes, and inserts new points, rows and numbers into the open page.

import { theme } from "./colours.js";
import { forget, unpackIndex } from "./data.js";
import { element, withAttributes } from "./elements.js";
import { draw } from "./figures.js";
import { measuredForm } from "./filters.js";
import { filterMatrix, matrixForm } from "./matrix.js";
import { filterMeasured } from "./measured.js";
import { fillMine, modelOfSweep } from "./mine.js";
import "./page.js";
import { FILLED, route } from "./routes.js";
import { loadRuns, progressOf, timeLeft } from "./runs.js";
import { watch } from "./sight.js";
import { renewRuns } from "./table.js";
import { plotsIn } from "./traces.js";
import { shownView, views } from "./views.js";
import { duration } from "./words.js";

const ASK_EVERY = 2000; // milliseconds
const MADE_HERE = ["view-mine", "view-run", "view-compare", "view-search", "view-missing"]; // views that the script fills in
let newsTag = "";
let lastAnswer = Date.now();
const pulse = withAttributes(element("p", ""), { id: "pulse" });
const training = withAttributes(element("section", null), { id: "training", "aria-label": "Training now" });

async function askForNews() {
  try {
    const answer = await fetch("news", { headers: newsTag ? { "If-None-Match": newsTag } : {}, cache: "no-store" });
    if (answer.status === 200) {
      const isFirst = newsTag === "";
      newsTag = answer.headers.get("ETag") ?? "";
      await renew(new DOMParser().parseFromString(await answer.text(), "text/html"), isFirst);
    }
    const isOn = answer.ok || answer.status === 304;
    if (isOn) lastAnswer = Date.now();
    document.documentElement.dataset.live = isOn ? "on" : "off";
  } catch {
    document.documentElement.dataset.live = "off"; // the server has stopped: the page stays open but stops updating
  }
  setTimeout(askForNews, document.hidden ? 5 * ASK_EVERY : ASK_EVERY);
}

// Say how old the page is, or that it does not change any more.
function showPulse() {
  const seconds = Math.round((Date.now() - lastAnswer) / 1000);
  const isGone = document.documentElement.dataset.live === "off";
  pulse.textContent = isGone ? `the server is gone: no answer for ${seconds} s` : `live, ${seconds} s ago`;
}

// Show the runs that train, and the runs to come of a sweep. A run is as far as its last test.
async function showTraining() {
  const { sweeps } = await unpackIndex();
  const runs = await loadRuns();
  const byKey = new Map(runs.map((run) => [run.key, run]));
  const active = runs.filter(({ status }) => status === "running");
  const rows = active.map((run) => element("li", null,
    withAttributes(element("a", null, element("bdi", `${run.label} on ${run.condition.label}, seed ${run.seed}`)), { href: `#run-${run.key}` }),
    withAttributes(element("progress", ""), { max: run.total, value: run.iterations, "aria-label": "share of the training" }),
    element("span", progressOf(run))));
  training.replaceChildren(...(rows.length ? [element("ul", null, ...rows)] : []), ...sweeps.map((sweep) => queue(sweep, byKey)));
  training.hidden = !training.childNodes.length;
  await showMineFirst();
}

// Show the link to the user's own model if there is one, and put it first once a sweep trains it.
async function showMineFirst() {
  const nav = document.querySelector("nav"), mine = nav.querySelector("[href='#mine']");
  const trains = Boolean(await modelOfSweep());
  mine.hidden = !trains && !(await unpackIndex()).own.length;
  if (trains && nav.firstElementChild !== mine) nav.prepend(mine);
}

/**
 * Return a sweep: how many of its runs have ended, the time that is left, and the runs to come. A run without an
 * estimate is expected to take as long as the others of the sweep.
 * @param {PlannedRun[]} sweep
 * @param {Map<string, Run>} byKey
 */
function queue(sweep, byKey) {
  const [ended, running, planned] = ["ended", "running", "planned"].map((state) => sweep.filter((run) => run.state === state));
  const times = [...ended, ...running].map(({ key }) => byKey.get(key)).filter((run) => run?.iterations).map((run) => run.seconds + (run.status === "running" ? timeLeft(run) : 0));
  const usual = times.length ? times.reduce((sum, time) => sum + time, 0) / times.length : null;
  const rest = [...running.map(({ key }) => (byKey.has(key) ? timeLeft(byKey.get(key)) : null) ?? usual), ...planned.map(({ seconds }) => seconds ?? usual)];
  const seconds = rest.some((time) => time === null) ? null : rest.reduce((sum, time) => sum + time, 0) / Math.max(1, running.length);
  const shares = running.map(({ key }) => byKey.get(key)).reduce((sum, run) => sum + (run ? run.iterations / run.total : 0), 0);
  const words = `${ended.length} of ${sweep.length} runs done · ${running.length ? `${running.length} training` : ended.length < sweep.length ? "starting" : "finished"}`;
  const summary = element("p", words + (seconds ? `; about ${duration(seconds)} left` : ""), " ", withAttributes(element("progress", ""), { max: sweep.length, value: ended.length + shares, "aria-label": "share of the sweep's runs" }));
  if (!planned.length) return summary;
  const list = element("ol", null, ...planned.map(({ label, task }) => element("li", null, element("bdi", `${label} on ${task}`))));
  const details = element("details", null, element("summary", `the ${planned.length} runs to come`), list);
  details.open = training.querySelector("details")?.open ?? false;
  return element("div", null, summary, details);
}

/**
 * Apply the changes to the page. New views, such as those of the first run, require loading the whole page again.
 * @param {Document} fresh
 * @param {boolean} isFirst
 */
async function renew(fresh, isFirst) {
  /** @param {Document} root */
  const names = (root) => [...root.querySelectorAll(".view")].map(({ id }) => id).join();
  if (names(fresh) !== names(document)) return location.reload();
  const changed = renewBlocks(fresh);
  if (!changed.size) return;
  const y = window.scrollY;
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  for (const part of [".masthead", "#view-runs > .statuses"]) renewPart(part, fresh);
  for (const view of views) {
    if (!MADE_HERE.includes(view.id) && view.id !== "view-runs") renewView(view, document.adoptNode(fresh.getElementById(view.id)));
  }
  theme.palette = (await unpackIndex()).palette;
  for (const container of plotsIn(document, ".plot[data-condition]")) {
    if (!changed.has("figures-" + container.dataset.condition) || !container.base) continue;
    const before = container.layout && ranges(container.layout);
    container.base = null;
    if (!container.drawn) continue;
    await draw(container);
    if (before) Plotly.relayout(container, before);
  }
  await renewRuns();
  await showTraining();
  const { name, state } = route() ?? {};
  const [, kind, key] = /^(run|search)-(.+)$/s.exec(name ?? "") ?? [];
  if (kind) await FILLED[kind](key);
  if (name === "mine") await fillMine(state);
  watch(shownView());
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  window.scrollTo(0, y);
  if (!isFirst) document.documentElement.dataset.renewed = String(Number(document.documentElement.dataset.renewed ?? 0) + 1);
}

/**
 * Replace the data blocks that differ, and return their names.
 * @param {Document} fresh
 * @returns {Set<string>}
 */
function renewBlocks(fresh) {
  const changed = new Set();
  for (const block of fresh.querySelectorAll('script[type="text/plain"][id^="data-"]')) {
    const own = document.getElementById(block.id);
    if (own?.textContent === block.textContent) continue;
    if (own) own.textContent = block.textContent;
    else document.body.append(document.adoptNode(block));
    changed.add(block.id.slice("data-".length));
    forget(block.id.slice("data-".length));
  }
  return changed;
}

/**
 * @param {string} selector
 * @param {Document} fresh
 */
function renewPart(selector, fresh) {
  const [own, other] = [document, fresh].map((root) => root.querySelector(selector));
  if (own && other) own.replaceWith(document.adoptNode(other));
  else if (other) document.getElementById("main").prepend(document.adoptNode(other));
  else own?.remove();
}

/**
 * Replace a view's content, but keep the elements of figures and forms, with what the reader has set in them.
 * @param {HTMLElement} view
 * @param {HTMLElement} other
 */
function renewView(view, other) {
  const figures = new Map([...view.querySelectorAll("figure")].map((figure) => [figureName(figure), figure]));
  for (const figure of other.querySelectorAll("figure")) {
    const own = figures.get(figureName(figure));
    if (!own) continue;
    const [caption, words] = [own, figure].map((root) => root.querySelector("figcaption"));
    if (caption && words) caption.textContent = words.textContent;
    const [before, after] = [own, figure].map((root) => root.querySelector(".plot")?.dataset);
    if (before && after?.models) before.models = after.models;
    figure.replaceWith(own);
  }
  for (const form of other.querySelectorAll("form[id]")) {
    /** @type {PageForm | null} */
    const own = view.querySelector("#" + form.id);
    if (!own) continue;
    for (const list of form.querySelectorAll("select")) addOptions(own.elements[list.name], [...list.options].map(({ value, text }) => value || text));
    form.replaceWith(own);
  }
  const open = new Set([...view.querySelectorAll("details[open]")].map(summaryOf));
  for (const details of other.querySelectorAll("details")) if (open.has(summaryOf(details))) details.open = true;
  view.replaceChildren(...other.childNodes);
  if (view.id === "view-measured" && measuredForm) filterMeasured();
  if (view.id === "view-overview" && matrixForm) filterMatrix();
}

/** @param {HTMLElement} figure */
function figureName(figure) {
  const { condition, figure: name } = figure.querySelector(".plot")?.dataset ?? {};
  return condition ? `${condition} ${name}` : figure;
}

/** @param {HTMLElement} details */
function summaryOf(details) {
  return details.querySelector("summary")?.textContent ?? "";
}

/**
 * @param {HTMLSelectElement} select
 * @param {string[]} values
 */
function addOptions(select, values) {
  const known = new Set([...(select?.options ?? [])].map(({ value, text }) => value || text));
  for (const value of values) if (select && !known.has(value)) select.append(element("option", value));
}

/**
 * Return the ranges of the axes that the reader has set.
 * @param {Layout} layout
 * @returns {Record<string, number[]> | null}
 */
function ranges(layout) {
  const zoomed = /** @type {const} */ (["xaxis", "yaxis"]).filter((axis) => layout[axis]?.autorange === false && layout[axis].range);
  const own = Object.fromEntries(zoomed.map((axis) => [axis + ".range", [...layout[axis].range]]));
  return zoomed.length ? own : null;
}

document.querySelector("header").append(pulse);
document.querySelector("header").after(training);
showTraining();
setInterval(showPulse, 1000);
askForNews();
