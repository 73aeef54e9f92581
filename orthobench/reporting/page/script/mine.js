// The page of one model, such as a cell under development: its runs, and its place between its nearest rivals.

import { unpackIndex } from "./data.js";
import { chip, copyButton, element, link, tableOf, withAttributes } from "./elements.js";
import { loadRuns, progressOf, runRecord } from "./runs.js";
import { overSeeds } from "./seeds.js";
import { sparkOf, strip } from "./sparks.js";
import { duration, seedsCommand, shownNumber } from "./words.js";

const RIVALS = 5;
const MOST_RUNS = 12; // of a task, because each has a curve
const FEWEST_SEEDS = 3;
const OPEN = 3; // of the tasks, the last ones; the others are folded

// Return the only model of another program that a sweep trains now; undefined if there is none or more than one.
export async function modelOfSweep() {
  const { sweeps, own } = await unpackIndex();
  const models = new Set(sweeps.flat().map(({ model }) => model).filter((model) => model && (model.includes(":") || own.includes(model))));
  return models.size === 1 ? [...models][0] : undefined;
}

/**
 * Fill the page of a model; without a name, of the one that trains or ran last. Return whether it exists.
 * @param {Record<string, string>} state
 */
export async function fillMine(state) {
  const { own, names, earlier, sweeps, appearances } = await unpackIndex();
  const model = state.model || (await modelOfSweep()) || own[0] || "";
  const all = await loadRuns();
  const runs = all.filter((run) => run.model === model);
  const planned = sweeps.flat().filter((run) => run.model === model && run.state === "planned");
  if (state.model && !runs.length && !planned.length) return false;
  const conditions = [...new Set(runs.map(({ condition }) => condition))];
  /** @param {Condition} condition */
  const lastOf = (condition) => runs.filter((run) => run.condition === condition).map(({ status, started }) => (status === "running" ? "9" : started)).sort().at(-1);
  conditions.sort((first, second) => lastOf(second).localeCompare(lastOf(first)));
  const sections = await Promise.all(conditions.map((condition, number) => sectionOf(model, condition, all.filter((run) => run.condition === condition), planned.filter(({ task }) => task === condition.task).length, number < OPEN)));
  const papers = new Map(runs.flatMap(({ key }) => appearances[key] ?? []));
  const parts = [
    ...(model in earlier ? [withAttributes(element("p", null, "Runs of earlier versions are hidden; ", element("code", "--all-versions"), " shows them. ", element("bdi", earlier[model])), { class: "note left-out" })] : []),
    ...(papers.size ? [withAttributes(element("p", null, "In the papers' tables and figures: ", ...[...papers].flatMap(([place, text], number) => [...(number ? [" · "] : []), link(`#${place}`, text)])), { class: "note" })] : []),
    ...(planned.length ? [toCome(planned)] : []),
    ...sections,
    ...(model ? [] : howToAdd()),
  ];
  const view = document.getElementById("mine");
  if (!view.firstChild) view.append(element("h2", null), modelForm(), element("div", null));
  const [heading, form, body] = /** @type {[HTMLElement, HTMLFormElement, HTMLElement]} */ ([...view.children]);
  const name = element("bdi", names[model] ?? model), isOwn = !model || own.includes(model) || model.includes(":");
  heading.replaceChildren(...(isOwn ? ["My cell", ...(model ? [": ", name] : [])] : [name, " among its nearest rivals"]));
  fillModels(form.querySelector("select"), [...new Set([...own, ...(model ? [model] : []), ...Object.keys(names)])], names, model);
  const folds = new Map([...body.querySelectorAll("details")].map((part) => [part.dataset.condition ?? "", part.open]));
  if (heading.dataset.model === model) for (const part of parts) if (part instanceof HTMLDetailsElement) part.open = folds.get(part.dataset.condition ?? "") ?? part.open;
  heading.dataset.model = model;
  body.replaceChildren(...parts);
  return true;
}

const EXAMPLE = `import torch
from torch import nn


class MyCell(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.inputs = nn.Linear(input_size, hidden_size)
        self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, x, h):  # one step: [batch, input_size], [batch, hidden_size]
        return torch.tanh(self.inputs(x) + self.recurrent(h))`;

const COMMANDS = `orthobench sweep adding --models ./cell.py:MyCell,lstm --preset quick
orthobench place ./cell.py:MyCell
orthobench report --html`;

function howToAdd() {
  return [
    element("p", null, "No layer of your own has run yet. Any ", element("code", "torch.nn.Module"), " with one step can be a cell. Save this one as ", element("code", "cell.py"), ":"),
    element("pre", EXAMPLE), copyButton(EXAMPLE),
    element("p", "The first command trains it next to the LSTM; the second searches its learning rate as for the built-in cells, and shows where it stands among them. The report then shows it here, between its nearest rivals."),
    element("pre", COMMANDS), copyButton(COMMANDS),
    element("p", "To see a built-in model among its rivals, choose it above."),
  ];
}

function modelForm() {
  const select = element("select", null);
  select.addEventListener("change", () => { location.hash = `#mine?${new URLSearchParams({ model: select.value })}`; });
  return withAttributes(element("form", null, element("label", null, "model ", select)), { class: "filters", "aria-label": "Choose the model" });
}

/**
 * @param {HTMLSelectElement} select
 * @param {string[]} models
 * @param {Record<string, string>} names
 * @param {string} model
 */
function fillModels(select, models, names, model) {
  if ([...select.options].map(({ value }) => value).join("\n") !== models.join("\n")) {
    select.replaceChildren(...models.map((each) => withAttributes(element("option", names[each] ?? each), { value: each })));
  }
  select.value = model;
}

/** @param {PlannedRun[]} planned */
function toCome(planned) {
  const list = element("ol", null, ...planned.map(({ label, task, seconds }) => element("li", null, element("bdi", `${label} on ${task}`), ...(seconds ? [`, about ${duration(seconds)}`] : []))));
  return element("details", null, element("summary", `${planned.length} run${planned.length === 1 ? "" : "s"} to come`), list);
}

/**
 * Return a model's part on one task: its runs, its place, and the command that adds seeds.
 * @param {string} model
 * @param {Condition} condition
 * @param {Run[]} all the runs of all models
 * @param {number} planned the number of its runs to come
 * @param {boolean} isOpen
 */
async function sectionOf(model, condition, all, planned, isOpen) {
  const runs = all.filter((run) => run.model === model).reverse();
  /** @param {Run} run */
  const isRunning = ({ status }) => Number(status === "running");
  runs.sort((first, second) => isRunning(second) - isRunning(first));
  const several = new Set(runs.map(({ label }) => label)).size > 1;
  const cards = await Promise.all(runs.slice(0, MOST_RUNS).map((run) => card(run, several)));
  const query = new URLSearchParams({ model, condition: condition.key });
  const more = runs.length > MOST_RUNS ? [withAttributes(element("p", null, link(`#runs?${query}`, `${runs.length - MOST_RUNS} more runs`)), { class: "note" })] : [];
  const { rows, rivals, models } = ranked(overSeeds(all, "median"), runs[0], condition);
  const [last] = runs;
  const seeds = await enough(runs.filter(({ group }) => group === last.group).length + planned, rivals);
  const command = seedsCommand(condition.task, model, seeds.count, last.settings, (await unpackIndex()).plugins[model]);
  const own = rows.find(({ group, rank }) => group.model === model && rank !== null);
  const place = own ? `rank ${own.rank} of ${models} · ${condition.metric} ${shownNumber(own.group.end)}` : "no result yet";
  const part = withAttributes(element("details", null,
    element("summary", null, element("h3", condition.label), " ", withAttributes(element("span", place), { class: "note" })),
    withAttributes(element("ul", null, ...cards), { class: "cards" }), ...more,
    table(rows, condition, model),
    withAttributes(element("p", null, seeds.words, " ", several ? "This command trains the variant of the last run." : "This command trains the model.", " Seeds that have run are not trained again. If they are not in results.db, add --db. ", link(`#${condition.key}?${new URLSearchParams({ model })}`, "All models on this task")), { class: "note" }),
    element("pre", command), copyButton(command),
  ), { class: "mine", "data-condition": condition.key });
  part.open = isOpen;
  return part;
}

/**
 * Return a run with a small curve, and the time left or its result.
 * @param {Run} run
 * @param {boolean} several whether the model has several variants here
 */
async function card(run, several) {
  const record = await runRecord(run.key);
  const curve = record.curves.find(({ name }) => name === `test ${run.metric}`);
  const words = run.status === "running" ? progressOf(run) : run.end === null ? "no result" : `${run.metric} ${shownNumber(run.end)}`;
  return element("li", null, withAttributes(element("a", null,
    ...(curve ? [sparkOf(record.axes[curve.x], curve.y, run.baseline, run.condition.goal)] : []),
    element("span", null, `seed ${run.seed} `, ...(run.status === "finished" ? [] : [chip(run.status), " "]), element("bdi", words)),
    ...(several ? [element("small", null, element("bdi", run.label))] : []),
  ), { href: `#run-${run.key}` }));
}

/**
 * Return the variant that stands for the model and that of its last run, and those that stand for its nearest rivals, the
 * best first, with their ranks.
 * @param {Group[]} groups
 * @param {Run} last the model's last run
 * @param {Condition} condition
 * @returns {{ rows: { group: Group, rank: number | null }[], rivals: number, models: number }}
 */
function ranked(groups, { model, group: newest }, { goal }) {
  const sign = goal === "min" ? 1 : -1;
  const valued = groups.filter(({ end }) => end !== null).sort((first, second) => sign * (first.end - second.end));
  const order = valued.filter(({ stands }) => stands);
  /** @param {Group} group */
  const rankOf = (group) => order.findIndex(({ end }) => shownNumber(end) === shownNumber(group.end)) + 1;
  const place = order.findIndex((group) => group.model === model);
  const from = place < 0 ? 0 : place;
  const near = order.filter((group) => group.model !== model).sort((first, second) => Math.abs(order.indexOf(first) - from) - Math.abs(order.indexOf(second) - from) || order.indexOf(first) - order.indexOf(second)).slice(0, RIVALS);
  const shown = valued.filter((group) => group === order[place] || group.key === newest || near.includes(group));
  const open = groups.filter((group) => group.key === newest && group.end === null);
  return { rows: [...shown, ...open].map((group) => ({ group, rank: group.stands ? rankOf(group) : null })), rivals: near.length, models: order.length };
}

/**
 * Return the number of seeds to train, and why.
 * @param {number} count the seeds that have run, train or are to come
 * @param {number} rivals
 */
async function enough(count, rivals) {
  const { deciding } = await unpackIndex();
  const needed = deciding[rivals - 1] ?? FEWEST_SEEDS;
  if (count < FEWEST_SEEDS) return { count: FEWEST_SEEDS, words: "There are too few seeds to rank the model." };
  if (count < needed) return { count: needed, words: "With more seeds of each a test can decide between these models." };
  return { count: 2 * count, words: "There are enough seeds for a test; more make the interval of the median narrower." };
}

/**
 * @param {{ group: Group, rank: number | null }[]} rows
 * @param {Condition} condition
 * @param {string} model
 */
function table(rows, { baseline, metric, goal, label }, model) {
  /** @param {Group} group */
  const valuesOf = ({ runs }) => runs.filter(({ end, status }) => end !== null && status !== "diverged").map(({ end }) => end);
  const drawn = strip(rows.flatMap(({ group }) => valuesOf(group)), baseline);
  const lines = rows.map(({ group, rank }) => {
    const finished = (group.counts.get("finished") ?? 0) + (group.counts.get("diverged") ?? 0);
    const lost = group.counts.get("diverged") ? `, ${group.counts.get("diverged")} diverged` : "";
    const own = group.model === model;
    const name = element("span", null, withAttributes(element("span", rank === null ? "" : String(rank)), { class: "rank" }), own ? element("strong", null, element("bdi", group.label)) : element("bdi", group.label));
    return { own, value: group.end, cells: [name, shownNumber(group.end), drawn(valuesOf(group), own), `${finished} of ${group.runs.length}${lost}`, group.parameters.toLocaleString("en")] };
  });
  if (baseline !== null) {
    const worse = lines.findIndex(({ value }) => value === null || (goal === "min" ? value > baseline : value < baseline));
    const name = element("span", null, withAttributes(element("span", ""), { class: "rank" }), "baseline, without memory");
    lines.splice(worse < 0 ? lines.length : worse, 0, { own: false, value: baseline, cells: [name, shownNumber(baseline), "", "", ""] });
  }
  const node = tableOf(`The model and its nearest rivals on ${label}`, ["model", `${metric}, median`, "each seed", "seeds", "parameters"], lines.map(({ cells }) => cells));
  const drawnRows = node.querySelector("tbody").rows;
  for (const [number, { own }] of lines.entries()) if (own) drawnRows[number].setAttribute("aria-current", "true");
  return node;
}
