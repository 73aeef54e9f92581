// The table of runs, or of models over their seeds: filters, search, columns, order and ticks are all in the address, and
// rows are created as they scroll into view.

import { button, chip, element, withAttributes } from "./elements.js";
import { fillForm, formState, rememberIn } from "./forms.js";
import { searchOf } from "./query.js";
import { loadRuns } from "./runs.js";
import { overSeeds } from "./seeds.js";
import { duration, shownNumber, shownValue } from "./words.js";

export const runForm = /** @type {PageForm | null} */ (document.getElementById("run-filters"));
const runBox = document.getElementById("run-table");
const ROW_HEIGHT = 52; // as in the style sheet
const MOST_SETTINGS = 8, LEAST_SETTINGS = 3; // the least where the runs are of one task, because settings tell them apart
const USUAL_WIDTH = 88, SETTING_WIDTH = 8; // rem: of the page's margins and the columns that are no settings, and of a setting
const isNarrow = window.matchMedia("(max-width: 44rem)");
const runState = { sort: "", desc: false, condition: "", variant: "", columns: /** @type {string[]} */ ([]), picks: /** @type {Set<string>} */ (new Set()) };

/** @type {Run[] | null} */
let tableRuns = null; // all runs, once the table was shown

/** @type {Row[]} */
let shownRuns = [];

/** @type {Column[]} */
let runColumns = [];

// Read the runs, and fill in the statuses that they have.
async function loadTable() {
  tableRuns = await loadRuns();
  const { status } = runForm.elements;
  status.length = 1; // keep "all"
  status.append(...[...new Set(tableRuns.map((run) => run.status))].sort().map((text) => element("option", text)));
}

/** @param {Record<string, string>} state */
export async function showRuns(state) {
  if (!runForm) return;
  await loadTable();
  fillForm(runForm, state);
  runState.sort = state.sort ?? "";
  runState.desc = state.desc === "1";
  runState.condition = state.condition ?? "";
  runState.variant = state.variant ?? "";
  runState.columns = (state.columns ?? "").split(",").filter(Boolean);
  runState.picks = new Set((state.pick ?? "").split(",").filter(Boolean));
  refreshRuns();
}

function refreshRuns() {
  const chosen = formState(runForm);
  const isFound = searchOf(chosen.q ?? "");
  const runs = tableRuns.filter((run) =>
    /** @type {const} */ (["task", "model", "status"]).every((name) => !chosen[name] || run[name] === chosen[name]) &&
    (!chosen.seed || String(run.seed) === chosen.seed) && (!chosen.tag || run.tags.includes(chosen.tag)) &&
    (!runState.condition || run.condition.key === runState.condition) && (!runState.variant || run.group === runState.variant) &&
    isFound(run));
  shownRuns = chosen.group ? overSeeds(runs, chosen.group) : runs;
  const known = columnsFor(runs, Boolean(chosen.group));
  runColumns = known.filter(({ name, isUsual }, number) => !number || (runState.columns.length ? runState.columns.includes(name) : isUsual));
  const by = known.find(({ name }) => name === runState.sort);
  if (by) shownRuns.sort((first, second) => (by.within ? compareValues(by.within(first), by.within(second), false) : 0) || compareValues(by.order(first), by.order(second), runState.desc));
  const counted = chosen.group ? `${shownRuns.length} models with ${runs.length} of ${tableRuns.length} runs` : `${runs.length} of ${tableRuns.length} runs`;
  const narrowed = runState.variant ? `${runs[0]?.label} on ${runs[0]?.title} alone` : runState.condition ? `on ${runs[0]?.title ?? "one task"} alone` : "";
  runForm.querySelector("output").textContent = [counted, narrowed].filter(Boolean).join(", ");
  offerColumns(known);
  headRuns();
  runBox.scrollTop = 0;
  renderRows(true);
  showPicks();
}

/**
 * Compare two values of a column; missing values come last in both orders.
 * @param {Value} first
 * @param {Value} second
 * @param {boolean} desc
 * @returns {number}
 */
function compareValues(first, second, desc) {
  const missing = [first, second].map((value) => value === null || value === undefined || value === "");
  if (missing[0] || missing[1]) return Number(missing[0]) - Number(missing[1]);
  const order = typeof first === "number" && typeof second === "number" ? first - second : String(first).localeCompare(String(second), undefined, { numeric: true });
  return desc ? -order : order;
}

/**
 * Return all columns, with one for each setting in which the shown runs differ. `isUsual`: shown unless the reader chooses
 * others. `order` is the value by which rows are sorted. Results are sorted within their metric, the best first.
 * @param {Run[]} runs
 * @param {boolean} grouped
 * @returns {Column[]}
 */
function columnsFor(runs, grouped) {
  /** @type {(name: string, value: Column["value"], more?: Partial<Column>) => Column} */
  const column = (name, value, { title = name, shown = null, width = 6, numeric = false, isUsual = true, order = value, within = null } = {}) => ({ name, value, title, shown, width, numeric, isUsual, order, within });
  /** @type {Map<string, Set<string>>} */
  const values = new Map();
  for (const settings of new Set(runs.map((run) => run.settings))) {
    for (const [name, value] of Object.entries(settings)) {
      if (!values.has(name)) values.set(name, new Set());
      values.get(name).add(JSON.stringify(value));
    }
  }
  const several = new Set(runs.map((run) => run.settings)).size;
  const differing = [...values].filter(([name, found]) => found.size > 1 || (found.size && several > 1 && !everyHas(runs, name))).map(([name]) => name);
  const isOneTask = new Set(runs.map((run) => run.condition)).size < 2;
  const room = Math.floor((document.documentElement.clientWidth / 16 - USUAL_WIDTH) / SETTING_WIDTH);
  const usual = differing.filter((name) => everyHas(runs, name)).slice(0, Math.min(MOST_SETTINGS, Math.max(room, isOneTask ? LEAST_SETTINGS : 0)));
  /** @type {(name: "end" | "best" | "validated" | "final") => Partial<Column>} */
  const result = (name) => ({
    shown: grouped ? (run) => rangeCell(name === "best" ? run.bests : name === "validated" ? run.validateds : run.ends, run) : null, numeric: true, width: grouped ? 11 : 6, within: (run) => run.metric,
    order: (run) => (run[name] === null ? null : (run.condition.goal === "min" ? 1 : -1) * run[name]),
  });
  /** @type {(name: "parameters" | "iterations") => Partial<Column>} */
  const count = (name) => ({ shown: (run) => element("bdi", run[name].toLocaleString("en")), numeric: true, width: 7 });
  const rare = { isUsual: false };
  return [
    column("model", (run) => run.label, { title: grouped ? "model" : "run", shown: grouped ? groupHeading : runHeading, width: 14 }),
    column("task", (run) => run.condition.label, { width: 11 }),
    grouped ? column("seed", (run) => run.runs.length, { title: "seeds", width: 4.5, numeric: true }) : column("seed", (run) => run.seed, { width: 4.5, numeric: true }),
    column("status", (run) => run.status, { shown: statusCell, width: 8 }),
    column("end", (run) => run.end, result("end")),
    column("best", (run) => run.best, result("best")),
    ...(runs.some(({ validated }) => validated !== null) ? [column("validated", (run) => run.validated, { title: "at best validation", ...result("validated") })] : []),
    column("baseline", (run) => run.baseline, { numeric: true }),
    column("metric", (run) => run.metric, { width: 7.5 }),
    ...(runs.some(({ tags }) => tags.length) ? [column("tags", (run) => run.tags.join(", "), { width: 6 })] : []),
    ...differing.map((name) => column(name, (run) => run.settings[name] ?? null, { width: SETTING_WIDTH, isUsual: usual.includes(name) })),
    column("parameters", (run) => run.parameters, count("parameters")),
    column("seconds", (run) => run.seconds, { title: "time", width: 6.5, shown: (run) => element("bdi", duration(run.seconds)) }),
    column("epochs", (run) => run.epochs, { numeric: true, ...rare }),
    ...(grouped ? [] : [
      column("final", (run) => run.final, { ...result("final"), ...rare }),
      column("iterations", (run) => run.iterations, { ...count("iterations"), ...rare }),
      column("started", (run) => run.started, { width: 9, ...rare }),
    ]),
  ];
}

/**
 * Fill the list of columns, in which the shown ones are ticked.
 * @param {Column[]} known
 */
function offerColumns(known) {
  const list = document.getElementById("run-columns");
  /** @param {Column} column */
  const box = ({ name, title }) => {
    const tick = withAttributes(element("input", null), { type: "checkbox", value: name });
    tick.checked = runColumns.some((column) => column.name === name);
    return element("label", null, tick, element("bdi", title));
  };
  const names = known.slice(1).map(({ name }) => name).join();
  if (list.dataset.names !== names) list.replaceChildren(...known.slice(1).map(box));
  else for (const tick of list.querySelectorAll("input")) tick.checked = runColumns.some(({ name }) => name === tick.value);
  list.dataset.names = names;
}

/**
 * @param {Run[]} runs
 * @param {string} name
 */
function everyHas(runs, name) {
  return runs.every(({ settings }) => name in settings);
}

/** @param {Run} run */
function runHeading(run) {
  const tick = withAttributes(element("input", null), { type: "checkbox", "aria-label": `compare run ${run.key}` });
  tick.checked = runState.picks.has(run.key);
  tick.addEventListener("change", () => {
    if (tick.checked) runState.picks.add(run.key);
    else runState.picks.delete(run.key);
    showPicks();
    rememberRuns();
  });
  return element("span", null, tick, withAttributes(element("a", null, element("bdi", run.label), " ", element("code", run.key.slice(0, 10))), { href: `#run-${run.key}`, title: run.label }));
}

/** @param {Row} group */
function groupHeading(group) {
  return withAttributes(element("a", null, element("bdi", group.label)), { href: `#runs?variant=${encodeURIComponent(group.key)}`, title: `the runs of ${group.label}` });
}

/** @param {Row} run */
function statusCell(run) {
  if (run.counts) return element("span", null, ...[...run.counts].flatMap(([status, count]) => [chip(status, `${count} ${status}`), " "]));
  const share = run.status === "running" && run.total ? ` ${Math.floor((100 * run.iterations) / run.total)} %` : "";
  return withAttributes(element("span", null, chip(run.status, run.status + share), ...(run.message ? [" ", element("bdi", run.message)] : [])), run.message ? { title: run.message } : {});
}

/**
 * @param {Spread} range
 * @param {Row} run
 */
function rangeCell({ value, low, high, count }, run) {
  if (!count) return element("bdi", "–");
  const range = count > 1 && low < high ? withAttributes(element("span", `${shownNumber(low)} to ${shownNumber(high)}`), { class: "pm" }) : "";
  return element("bdi", value === null ? (run.counts.has("diverged") ? "diverged" : "–") : shownNumber(value), range);
}

/**
 * Return in which direction the values of the sorted column run. Results have one only if a single metric is shown, because
 * the best comes first and each metric has its own rows.
 * @param {Column["within"]} within
 */
function directionOf(within) {
  if (!within) return runState.desc ? "descending" : "ascending";
  const goals = new Map(shownRuns.map((run) => [within(run), run.condition.goal]));
  if (goals.size !== 1) return "other";
  return ([...goals.values()][0] === "min") === runState.desc ? "descending" : "ascending";
}

function headRuns() {
  const heads = runColumns.map(({ name, title, width, within }) => {
    const sort = button(title, () => {
      runState.desc = runState.sort === name && !runState.desc;
      runState.sort = name;
      rememberRuns();
      refreshRuns();
      runBox.querySelector(`th[data-column="${CSS.escape(name)}"] button`)?.focus();
    });
    sort.dataset.order = runState.desc ? "worst first" : "best first";
    const head = withAttributes(element("th", null, sort), { scope: "col", "data-column": name, "data-label": title });
    if (runState.sort === name) withAttributes(head, { "aria-sort": directionOf(within) });
    head.style.width = `${width}rem`;
    return head;
  });
  if (isNarrow.matches) heads[0].style.width = "10rem"; // it stays in sight
  runBox.querySelector("thead").replaceChildren(element("tr", null, ...heads));
  const table = runBox.querySelector("table");
  table.style.width = `${heads.reduce((sum, { style }) => sum + Number.parseFloat(style.width), 0)}rem`;
  table.setAttribute("aria-rowcount", String(shownRuns.length + 1));
}

let renderedFrom = -1;

/** @type {Map<string, HTMLTableRowElement>} */
const madeRows = new Map(); // the rows in the table by run, so that rows that remain need not be created again

/**
 * Create the rows in view and a few around them; empty rows above and below preserve the height.
 * @param {boolean} [always]
 */
export function renderRows(always = false) {
  const body = runBox.querySelector("tbody");
  const inSight = Math.ceil((runBox.clientHeight || 800) / ROW_HEIGHT);
  const from = Math.max(0, Math.floor(runBox.scrollTop / ROW_HEIGHT) - 8);
  if (!always && Math.abs(from - renderedFrom) < 4) return;
  renderedFrom = from;
  const to = Math.min(shownRuns.length, from + inSight + 20);
  const focused = document.activeElement?.closest?.("#run-table tr")?.dataset.run;
  if (always) madeRows.clear();
  const rows = shownRuns.slice(from, to).map((run, number) => madeRows.get(run.key) ?? runRow(run, from + number));
  madeRows.clear();
  for (const row of rows) madeRows.set(row.dataset.run, row);
  if (always) body.replaceChildren(spacer(from), ...rows, spacer(shownRuns.length - to));
  else moveRows(body, rows, from, shownRuns.length - to);
  if (focused) body.querySelector(`tr[data-run="${CSS.escape(focused)}"] a`)?.focus({ preventScroll: true });
}

// Create all rows, for print, in columns that share the width of the paper.
export function renderAllRows() {
  madeRows.clear();
  const heads = [...runBox.querySelectorAll("thead th")], widths = heads.map(({ style }) => Number.parseFloat(style.width));
  const sum = widths.reduce((total, width) => total + width, 0);
  heads.forEach((head, number) => { head.style.width = `${(100 * widths[number]) / sum}%`; });
  runBox.querySelector("tbody").replaceChildren(...shownRuns.map(runRow));
}

// Return from print to the rows in view.
export function restoreRows() {
  if (!tableRuns) return;
  headRuns();
  renderRows(true);
}

/**
 * Replace the rows between the spacers; rows that remain are not touched, so only new ones need layout.
 * @param {HTMLElement} body
 * @param {HTMLTableRowElement[]} rows
 * @param {number} above
 * @param {number} below
 */
function moveRows(body, rows, above, below) {
  const staying = new Set(rows);
  for (const row of /** @type {HTMLTableRowElement[]} */ ([...body.children]).slice(1, -1)) if (!staying.has(row)) row.remove();
  let next = body.children[1];
  for (const row of rows) {
    if (row === next) next = next.nextElementSibling;
    else body.insertBefore(row, next);
  }
  const [first, last] = /** @type {HTMLElement[]} */ ([body.firstElementChild, body.lastElementChild]);
  first.style.height = `${above * ROW_HEIGHT}px`;
  last.style.height = `${below * ROW_HEIGHT}px`;
}

/** @param {number} count */
function spacer(count) {
  const row = withAttributes(element("tr", null), { class: "spacer", "aria-hidden": "true" });
  row.style.height = `${count * ROW_HEIGHT}px`;
  return row;
}

/**
 * @param {Row} run
 * @param {number} number
 */
function runRow(run, number) {
  const cells = runColumns.map(({ value, shown, numeric }, column) => {
    const content = shown ? shown(run) : element("bdi", numeric && typeof value(run) === "number" ? shownNumber(value(run)) : shownValue(value(run)));
    const cell = element(column ? "td" : "th", null, withAttributes(element("div", null, content), { class: "clamp" }));
    if (!column) cell.scope = "row";
    if (numeric) cell.className = "number";
    return cell;
  });
  return withAttributes(element("tr", null, ...cells), { "data-run": run.key, "aria-rowindex": number + 2 });
}

function rememberRuns() {
  const { condition, variant, sort, desc, columns, picks } = runState;
  rememberIn("runs", { ...formState(runForm), condition, variant, sort, desc: desc ? "1" : "", columns: columns.join(","), pick: [...picks].join(",") });
}

function showPicks() {
  const to = /** @type {HTMLAnchorElement} */ (document.getElementById("compare-link"));
  const clear = document.getElementById("untick");
  const count = runState.picks.size;
  to.hidden = count < 2;
  clear.hidden = count === 0;
  to.textContent = `Compare the ${count} ticked runs`;
  to.href = `#compare?runs=${[...runState.picks].map(encodeURIComponent).join(",")}`;
}

export function startRuns() {
  if (!runForm) return;
  const changed = () => {
    refreshRuns();
    rememberRuns();
  };
  for (const event of ["input", "change"]) runForm.addEventListener(event, changed);
  runForm.addEventListener("submit", (event) => event.preventDefault());
  runForm.addEventListener("reset", () => {
    Object.assign(runState, { condition: "", variant: "", columns: [] });
    setTimeout(changed);
  });
  const list = document.getElementById("run-columns");
  list.addEventListener("change", () => {
    /** @type {NodeListOf<HTMLInputElement>} */
    const ticked = list.querySelectorAll("input:checked");
    runState.columns = ["model", ...Array.from(ticked, ({ value }) => value)];
    changed();
  });
  document.getElementById("untick").addEventListener("click", () => {
    runState.picks.clear();
    renderRows(true);
    showPicks();
    rememberRuns();
  });
  let waiting = false;
  runBox.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      renderRows();
    });
  }, { passive: true });
}
