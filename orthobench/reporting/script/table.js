// The table of all runs: filters, search, order and ticks are all in the address; rows are created as they scroll into view.

const runForm = document.getElementById("run-filters");
const runBox = document.getElementById("run-table");
const ROW_HEIGHT = 52; // as in the style sheet
const MOST_SETTINGS = 8;
const runState = { sort: "", desc: false, condition: "", picks: new Set() };
let allRuns = null;
let shownRuns = [];
let runColumns = [];

// Return all runs as records that include their variant and condition.
async function loadRuns() {
  if (allRuns) return allRuns;
  const { columns, rows, variants, conditions } = await unpack("index");
  allRuns = rows.map((row) => {
    const record = Object.fromEntries(columns.map((name, number) => [name, row[number]]));
    const own = variants[record.variant];
    const condition = conditions[own.condition];
    return { ...record, label: own.label, model: own.model, parameters: own.parameters, settings: own.settings, title: condition.title, task: condition.task, metric: condition.metric, baseline: condition.baseline, condition };
  });
  const statuses = [...new Set(allRuns.map(({ status }) => status))].sort();
  runForm?.elements.status.append(...statuses.map((status) => element("option", status)));
  return allRuns;
}

function haystack(run) {
  run.words ??= [run.key, run.label, run.title, run.status, `seed=${run.seed}`, run.message, ...run.tags, ...Object.entries(run.settings).map(([name, value]) => `${name}=${value}`)].join(" ").toLowerCase();
  return run.words;
}

async function showRuns(state) {
  if (!runForm) return;
  await loadRuns();
  fillForm(runForm, state);
  runState.sort = state.sort ?? "";
  runState.desc = state.desc === "1";
  runState.condition = state.condition ?? "";
  runState.picks = new Set((state.pick ?? "").split(",").filter(Boolean));
  refreshRuns();
}

function refreshRuns() {
  const chosen = formState(runForm);
  const words = (chosen.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  shownRuns = allRuns.filter((run) =>
    ["task", "model", "status"].every((name) => !chosen[name] || run[name] === chosen[name]) &&
    (!chosen.seed || String(run.seed) === chosen.seed) && (!chosen.tag || run.tags.includes(chosen.tag)) &&
    (!runState.condition || run.condition.key === runState.condition) && words.every((word) => haystack(run).includes(word)));
  runColumns = columnsFor(shownRuns);
  const by = runColumns.find(({ name }) => name === runState.sort);
  if (by) shownRuns.sort((first, second) => compareValues(by.value(first), by.value(second), runState.desc));
  const parts = [`${shownRuns.length} of ${allRuns.length} runs`, ...(runState.condition ? [`on ${shownRuns[0]?.title ?? "one task"} alone`] : [])];
  runForm.querySelector("output").textContent = parts.join(", ");
  headRuns();
  runBox.scrollTop = 0;
  renderRows(true);
  showPicks();
}

// Compare two values of a column; missing values come last in both orders.
function compareValues(first, second, desc) {
  const missing = [first, second].map((value) => value === null || value === undefined || value === "");
  if (missing[0] || missing[1]) return missing[0] - missing[1];
  const order = typeof first === "number" && typeof second === "number" ? first - second : String(first).localeCompare(String(second), undefined, { numeric: true });
  return desc ? -order : order;
}

// Return the columns, with one for each setting in which the shown runs differ.
function columnsFor(runs) {
  const column = (name, value, { title = name, shown = null, width = 7, numeric = false } = {}) => ({ name, value, title, shown, width, numeric });
  const values = new Map();
  for (const settings of new Set(runs.map((run) => run.settings))) {
    for (const [name, value] of Object.entries(settings)) {
      if (!values.has(name)) values.set(name, new Set());
      values.get(name).add(JSON.stringify(value));
    }
  }
  const several = new Set(runs.map((run) => run.settings)).size;
  const differing = [...values].filter(([name, found]) => found.size > 1 || (found.size && several > 1 && !everyHas(runs, name))).map(([name]) => name);
  const numeric = { numeric: true };
  return [
    column("model", (run) => run.label, { title: "run", shown: runHeading, width: 17 }),
    column("task", (run) => run.title, { width: 11 }),
    column("seed", (run) => run.seed, { width: 4.5, numeric: true }),
    column("status", (run) => run.status, { shown: statusCell, width: 9 }),
    column("end", (run) => run.end, numeric),
    column("best", (run) => run.best, numeric),
    column("baseline", (run) => run.baseline, numeric),
    column("metric", (run) => run.metric, { width: 9 }),
    ...differing.slice(0, MOST_SETTINGS).map((name) => column(name, (run) => run.settings[name] ?? null, { width: 9 })),
    column("epochs", (run) => run.epochs, numeric),
    column("parameters", (run) => run.parameters, { numeric: true, width: 8 }),
    column("seconds", (run) => run.seconds, numeric),
    column("started", (run) => run.started, { width: 10 }),
    ...(runs.some(({ tags }) => tags.length) ? [column("tags", (run) => run.tags.join(", "), { width: 10 })] : []),
  ];
}

function everyHas(runs, name) {
  return runs.every(({ settings }) => name in settings);
}

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

function statusCell(run) {
  return element("bdi", run.message ? `${run.status}: ${run.message}` : run.status);
}

function headRuns() {
  const heads = runColumns.map(({ name, title, width }) => {
    const sort = button(title, () => {
      runState.desc = runState.sort === name ? !runState.desc : false;
      runState.sort = name;
      rememberRuns();
      refreshRuns();
      runBox.querySelector(`th[data-column="${CSS.escape(name)}"] button`)?.focus();
    });
    const head = withAttributes(element("th", null, sort), { scope: "col", "data-column": name });
    if (runState.sort === name) head.setAttribute("aria-sort", runState.desc ? "descending" : "ascending");
    head.style.width = `${width}rem`;
    return head;
  });
  runBox.querySelector("thead").replaceChildren(element("tr", null, ...heads));
  const table = runBox.querySelector("table");
  table.style.width = `${runColumns.reduce((sum, { width }) => sum + width, 0)}rem`;
  table.setAttribute("aria-rowcount", shownRuns.length + 1);
}

let renderedFrom = -1;
const madeRows = new Map(); // the rows in the table by run, so that rows that remain need not be created again

// Create the rows in view and a few around them; empty rows above and below preserve the height.
function renderRows(always = false) {
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

// Replace the rows between the spacers; rows that remain are not touched, so only new ones need layout.
function moveRows(body, rows, above, below) {
  const staying = new Set(rows);
  for (const row of [...body.children].slice(1, -1)) if (!staying.has(row)) row.remove();
  let next = body.children[1];
  for (const row of rows) {
    if (row === next) next = next.nextElementSibling;
    else body.insertBefore(row, next);
  }
  body.firstElementChild.style.height = `${above * ROW_HEIGHT}px`;
  body.lastElementChild.style.height = `${below * ROW_HEIGHT}px`;
}

function spacer(count) {
  const row = withAttributes(element("tr", null), { class: "spacer", "aria-hidden": "true" });
  row.style.height = `${count * ROW_HEIGHT}px`;
  return row;
}

function runRow(run, number) {
  const cells = runColumns.map(({ value, shown, numeric }, column) => {
    const content = shown ? shown(run) : element("bdi", numeric && typeof value(run) === "number" ? shownNumber(value(run)) : shownValue(value(run)));
    const cell = element(column ? "td" : "th", null, withAttributes(element("div", null, content), { class: "clamp" }));
    if (!column) cell.scope = "row";
    return cell;
  });
  return withAttributes(element("tr", null, ...cells), { "data-run": run.key, "aria-rowindex": number + 2 });
}

function rememberRuns() {
  rememberIn("runs", { ...formState(runForm), condition: runState.condition, sort: runState.sort, desc: runState.desc ? "1" : "", pick: [...runState.picks].join(",") });
}

function showPicks() {
  const [to, clear] = ["compare-link", "untick"].map((id) => document.getElementById(id));
  const count = runState.picks.size;
  to.hidden = count < 2;
  clear.hidden = count === 0;
  to.textContent = `Compare the ${count} ticked runs`;
  to.href = `#compare?runs=${[...runState.picks].map(encodeURIComponent).join(",")}`;
}

function startRuns() {
  if (!runForm) return;
  const changed = () => {
    refreshRuns();
    rememberRuns();
  };
  for (const event of ["input", "change"]) runForm.addEventListener(event, changed);
  runForm.addEventListener("submit", (event) => event.preventDefault());
  runForm.addEventListener("reset", () => {
    runState.condition = "";
    setTimeout(changed);
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
