// A served page: asks the server whether the page has changed, and loads it again, with what the reader has set.

import { unpackIndex } from "./data.js";
import { element, withAttributes } from "./elements.js";
import { restore, save } from "./kept.js";
import { modelOfSweep } from "./mine.js";
import { loadRuns, progressOf, timeLeft } from "./runs.js";
import { duration } from "./words.js";

const ASK_EVERY = 2000, REST = 2000; // milliseconds; a reader who does something is not interrupted
const SHOWN = 10; // times as long as it takes to load, a page is shown at least
const ACTS = ["keydown", "pointerdown", "pointermove", "wheel", "scroll"];
let lastAct = -REST, lastAnswer = Date.now(), loaded = 0;
const pulse = withAttributes(element("p", ""), { id: "pulse" });
const training = withAttributes(element("section", null), { id: "training", "aria-label": "Training now" });

async function ask() {
  const { dataset } = document.documentElement;
  try {
    const answer = await fetch("", { method: "HEAD", headers: { "If-None-Match": `"${dataset.tag}"` }, cache: "no-store" });
    const isOn = answer.ok || answer.status === 304;
    if (isOn) lastAnswer = Date.now();
    if (answer.ok) dataset.news = "";
    dataset.live = isOn ? "on" : "off";
  } catch {
    dataset.live = "off"; // the server has stopped: the page stays open but stops updating
  }
  const now = performance.now();
  if ("news" in dataset && dataset.live === "on" && now > lastAct + REST && now > SHOWN * loaded) {
    save();
    return location.reload();
  }
  setTimeout(ask, document.hidden ? 5 * ASK_EVERY : ASK_EVERY);
}

// Say how old the page is, or that it does not change any more.
function showPulse() {
  const seconds = Math.round((Date.now() - lastAnswer) / 1000);
  const isGone = document.documentElement.dataset.live === "off";
  pulse.textContent = isGone ? `the server is gone; seconds without an answer: ${seconds}` : `live, ${seconds} s ago`;
}

// Show the head of a served page, before its view is shown below.
export async function showHead() {
  document.querySelector("header").append(pulse);
  document.querySelector("header").after(training);
  await showTraining();
}

// Restore what the reader has set, and ask for changes from now on.
export function startAsking() {
  restore();
  loaded = performance.now();
  for (const act of ACTS) window.addEventListener(act, () => { lastAct = performance.now(); }, { passive: true, capture: true });
  setInterval(showPulse, 1000);
  ask();
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
  return element("div", null, summary, element("details", null, element("summary", `the ${planned.length} runs to come`), list));
}
