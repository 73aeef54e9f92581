// The table of runs, or of models over their seeds: filters, search, columns, order and ticks are all in the address, and
// rows are created as they scroll into view.

const runForm = document.getElementById("run-filters");
const runBox = document.getElementById("run-table");
const ROW_HEIGHT = 52; // as in the style sheet
const MOST_SETTINGS = 8;
const isNarrow = window.matchMedia("(max-width: 44rem)");
const runState = { sort: "", desc: false, condition: "", variant: "", columns: [], picks: new Set() };
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
    return { ...record, label: own.label, model: own.model, group: own.key, parameters: own.parameters, settings: own.settings, title: condition.title, task: condition.task, metric: condition.metric, baseline: condition.baseline, condition };
  });
  const statuses = [...new Set(allRuns.map(({ status }) => status))].sort();
  runForm?.elements.status.append(...statuses.map((status) => element("option", status)));
  return allRuns;
}

function haystack(run) {
  run.words ??= [run.key, run.label, run.title, run.status, `seed=${run.seed}`, run.message, ...run.tags, ...Object.entries(run.settings).map(([name, value]) => `${name}=${value}`)].join(" ").toLowerCase();
  return run.words;
}

// Return the values of a run by name: its settings, and what its title and label show, such as the T of "T = 200".
function valuesOf(run) {
  if (run.values) return run.values;
  run.values = new Map();
  const add = (name, value) => run.values.set(name.toLowerCase(), [...(run.values.get(name.toLowerCase()) ?? []), String(value).toLowerCase()]);
  for (const text of [run.title, run.condition.label, run.label]) for (const [, name, value] of text.matchAll(/([^\s=,;()]+)\s*=\s*([^\s=,;()]+)/g)) add(name, value);
  for (const name of ["key", "model", "task", "metric", "status", "seed"]) add(name, run[name]);
  for (const [name, value] of Object.entries(run.settings)) for (const text of new Set([value === null ? "none" : String(value), shownValue(value)])) add(name, text);
  return run.values;
}

// Return a test of a run for what is in the search box: words, of which parts count, and pairs such as name=value, of
// which the whole value counts. A value with spaces is in quotes.
function searchOf(text) {
  const pairs = [];
  const rest = text.toLowerCase().replace(/([^\s=]+)\s*=\s*(?:"([^"]*)"|([^\s="]+))/g, (_, name, quoted, value) => {
    pairs.push([name, quoted ?? value]);
    return " ";
  });
  const words = rest.split(/\s+/).filter(Boolean);
  const isEqual = (own, wanted) => own === wanted || (Number(own) === Number(wanted) && wanted !== "");
  return (run) => words.every((word) => haystack(run).includes(word)) &&
    pairs.every(([name, wanted]) => (valuesOf(run).get(name) ?? []).some((own) => isEqual(own, wanted)));
}

async function showRuns(state) {
  if (!runForm) return;
  await loadRuns();
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
  const runs = allRuns.filter((run) =>
    ["task", "model", "status"].every((name) => !chosen[name] || run[name] === chosen[name]) &&
    (!chosen.seed || String(run.seed) === chosen.seed) && (!chosen.tag || run.tags.includes(chosen.tag)) &&
    (!runState.condition || run.condition.key === runState.condition) && (!runState.variant || run.group === runState.variant) &&
    isFound(run));
  shownRuns = chosen.group ? overSeeds(runs, chosen.group) : runs;
  const known = columnsFor(runs, Boolean(chosen.group));
  runColumns = known.filter(({ name, isUsual }, number) => !number || (runState.columns.length ? runState.columns.includes(name) : isUsual));
  const by = known.find(({ name }) => name === runState.sort);
  if (by) shownRuns.sort((first, second) => (by.within ? compareValues(by.within(first), by.within(second), false) : 0) || compareValues(by.order(first), by.order(second), runState.desc));
  const counted = chosen.group ? `${shownRuns.length} models with ${runs.length} of ${allRuns.length} runs` : `${runs.length} of ${allRuns.length} runs`;
  const narrowed = runState.variant ? `${runs[0]?.label} on ${runs[0]?.title} alone` : runState.condition ? `on ${runs[0]?.title ?? "one task"} alone` : "";
  runForm.querySelector("output").textContent = [counted, narrowed].filter(Boolean).join(", ");
  offerColumns(known);
  headRuns();
  runBox.scrollTop = 0;
  renderRows(true);
  showPicks();
}

// Return a row for the runs that differ by the seed alone, with the median or the mean of their results and the range.
function overSeeds(runs, kind) {
  const groups = new Map();
  for (const run of runs) groups.set(run.group, [...(groups.get(run.group) ?? []), run]);
  return [...groups].map(([key, own]) => {
    const counts = new Map();
    for (const { status } of own) counts.set(status, (counts.get(status) ?? 0) + 1);
    const [end, best] = ["end", "best"].map((name) => middle(own, name, kind));
    const seconds = own.reduce((sum, run) => sum + run.seconds, 0) / own.length;
    const tags = [...new Set(own.flatMap((run) => run.tags))];
    return { ...own[0], key, runs: own, counts, end: end.value, ends: end, best: best.value, bests: best, seconds, tags };
  });
}

// Return the median or the mean of a result over seeds, with its range. A diverged run is the worst of a median; a mean
// leaves it out, and runs without a result count nowhere.
function middle(runs, name, kind) {
  const sign = runs[0].condition.goal === "min" ? 1 : -1;
  const own = runs.filter((run) => run[name] !== null && (name === "best" || run.status !== "diverged"));
  const values = own.map((run) => run[name]).sort((first, second) => sign * (first - second));
  const lost = name === "end" ? runs.filter(({ status }) => status === "diverged").length : 0;
  const range = { low: Math.min(...values), high: Math.max(...values), count: values.length + lost };
  if (kind === "mean") return { ...range, value: values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null };
  const ranked = [...values, ...Array(lost).fill(null)];
  const [first, second] = [Math.floor((ranked.length - 1) / 2), Math.ceil((ranked.length - 1) / 2)].map((at) => ranked[at] ?? null);
  return { ...range, value: first === null || second === null ? null : (first + second) / 2 };
}

// Compare two values of a column; missing values come last in both orders.
function compareValues(first, second, desc) {
  const missing = [first, second].map((value) => value === null || value === undefined || value === "");
  if (missing[0] || missing[1]) return missing[0] - missing[1];
  const order = typeof first === "number" && typeof second === "number" ? first - second : String(first).localeCompare(String(second), undefined, { numeric: true });
  return desc ? -order : order;
}

// Return all columns, with one for each setting in which the shown runs differ. `isUsual`: shown unless the reader chooses
// others. `order` is the value by which rows are sorted. Results are sorted within their metric, the best first.
function columnsFor(runs, grouped) {
  const column = (name, value, { title = name, shown = null, width = 6, numeric = false, isUsual = true, order = value, within = null } = {}) => ({ name, value, title, shown, width, numeric, isUsual, order, within });
  const values = new Map();
  for (const settings of new Set(runs.map((run) => run.settings))) {
    for (const [name, value] of Object.entries(settings)) {
      if (!values.has(name)) values.set(name, new Set());
      values.get(name).add(JSON.stringify(value));
    }
  }
  const several = new Set(runs.map((run) => run.settings)).size;
  const differing = [...values].filter(([name, found]) => found.size > 1 || (found.size && several > 1 && !everyHas(runs, name))).map(([name]) => name);
  const usual = differing.filter((name) => everyHas(runs, name)).slice(0, MOST_SETTINGS);
  const result = (name) => ({
    shown: grouped ? (run) => rangeCell(run[name + "s"], run) : null, numeric: true, width: grouped ? 11 : 6, within: (run) => run.metric,
    order: (run) => (run[name] === null ? null : (run.condition.goal === "min" ? 1 : -1) * run[name]),
  });
  const rare = { isUsual: false };
  return [
    column("model", (run) => run.label, { title: grouped ? "model" : "run", shown: grouped ? groupHeading : runHeading, width: 15 }),
    column("task", (run) => run.condition.label, { width: 11 }),
    grouped ? column("seed", (run) => run.runs.length, { title: "seeds", width: 4.5, numeric: true }) : column("seed", (run) => run.seed, { width: 4.5, numeric: true }),
    column("status", (run) => run.status, { shown: statusCell, width: 10 }),
    column("end", (run) => run.end, result("end")),
    column("best", (run) => run.best, result("best")),
    column("baseline", (run) => run.baseline, { numeric: true }),
    column("metric", (run) => run.metric, { width: 8 }),
    ...(runs.some(({ tags }) => tags.length) ? [column("tags", (run) => run.tags.join(", "), { width: 8 })] : []),
    ...differing.map((name) => column(name, (run) => run.settings[name] ?? null, { width: 8, isUsual: usual.includes(name) })),
    column("parameters", (run) => run.parameters, { numeric: true, width: 7 }),
    column("seconds", (run) => run.seconds, { title: "time", shown: (run) => element("bdi", duration(run.seconds)) }),
    column("epochs", (run) => run.epochs, { numeric: true, ...rare }),
    ...(grouped ? [] : [
      column("final", (run) => run.final, { ...result("final"), ...rare }),
      column("iterations", (run) => run.iterations, { numeric: true, width: 7, ...rare }),
      column("started", (run) => run.started, { width: 9, ...rare }),
    ]),
  ];
}

// Fill the list of columns, in which the shown ones are ticked.
function offerColumns(known) {
  const list = document.getElementById("run-columns");
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

function groupHeading(group) {
  return withAttributes(element("a", null, element("bdi", group.label)), { href: `#runs?variant=${encodeURIComponent(group.key)}`, title: `the runs of ${group.label}` });
}

function chip(status, text = status) {
  return withAttributes(element("span", text), { class: `chip s-${status}` });
}

function statusCell(run) {
  if (run.counts) return element("span", null, ...[...run.counts].flatMap(([status, count]) => [chip(status, `${count} ${status}`), " "]));
  const share = run.status === "running" && run.total ? ` ${Math.floor((100 * run.iterations) / run.total)} %` : "";
  return withAttributes(element("span", null, chip(run.status, run.status + share), ...(run.message ? [" ", element("bdi", run.message)] : [])), run.message ? { title: run.message } : {});
}

function rangeCell({ value, low, high, count }, run) {
  if (!count) return element("bdi", "–");
  const range = count > 1 && low < high ? withAttributes(element("span", `${shownNumber(low)} to ${shownNumber(high)}`), { class: "pm" }) : "";
  return element("bdi", value === null ? (run.counts.has("diverged") ? "diverged" : "–") : shownNumber(value), range);
}

// Return in which direction the values of the sorted column run. Results have one only if a single metric is shown, because
// the best comes first and each metric has its own rows.
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
    const head = withAttributes(element("th", null, sort), { scope: "col", "data-column": name });
    if (runState.sort === name) withAttributes(head, { "aria-sort": directionOf(within) });
    head.style.width = `${width}rem`;
    return head;
  });
  if (isNarrow.matches) heads[0].style.width = "10rem"; // it stays in sight
  runBox.querySelector("thead").replaceChildren(element("tr", null, ...heads));
  const table = runBox.querySelector("table");
  table.style.width = `${heads.reduce((sum, { style }) => sum + Number.parseFloat(style.width), 0)}rem`;
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

// Create all rows, for print, in columns that share the width of the paper.
function renderAllRows() {
  madeRows.clear();
  const heads = [...runBox.querySelectorAll("thead th")], widths = heads.map(({ style }) => Number.parseFloat(style.width));
  const sum = widths.reduce((total, width) => total + width, 0);
  heads.forEach((head, number) => { head.style.width = `${(100 * widths[number]) / sum}%`; });
  runBox.querySelector("tbody").replaceChildren(...shownRuns.map(runRow));
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
    Object.assign(runState, { condition: "", variant: "", columns: [] });
    setTimeout(changed);
  });
  const list = document.getElementById("run-columns");
  list.addEventListener("change", () => {
    runState.columns = ["model", ...[...list.querySelectorAll("input:checked")].map(({ value }) => value)];
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
