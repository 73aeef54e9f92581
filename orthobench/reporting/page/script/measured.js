// The page of tasks: one condition at a time, with its ranking and one chart, and filters of tasks, models and lines.

import { unpack } from "./data.js";
import { button, choice, element, link, tableOf, withAttributes } from "./elements.js";
import { redraw } from "./figures.js";
import { chosen, measuredChoice, measuredForm } from "./filters.js";
import { fillForm, formState, rememberIn } from "./forms.js";
import { matrix } from "./matrix.js";
import { watch } from "./sight.js";

const MOST_TABS = 6; // more conditions are a list

let openChart = "Course"; // the title of the tab that is open in all conditions

export function filterMeasured() {
  const [task, model, tag] = ["task", "model", "tag"].map(measuredChoice);
  const list = document.getElementById("task-list");
  const listed = Boolean(list) && !task && !model && !tag;
  if (list) list.hidden = !listed;
  /** @type {HTMLElement[]} */
  const sections = [...document.querySelectorAll("#measured .filtered")];
  const fitting = sections.filter((section) => {
    const rows = [...section.querySelectorAll("tbody tr[data-model]")];
    for (const row of rows) row.hidden = Boolean((model && row.dataset.model !== model) || (tag && !JSON.parse(row.dataset.tags ?? "[]").includes(tag)));
    return !listed && !(task && section.dataset.task !== task) && !rows.every((row) => row.hidden);
  });
  const own = fitting.find(({ id }) => id === chosen.condition) ?? fitting.find(({ dataset }) => !("apart" in dataset)) ?? fitting[0]; // the page has the fullest first
  for (const section of sections) {
    section.hidden = section !== own;
    const heading = section.querySelector("h3");
    heading.classList.toggle("unseen", fitting.length > 1 && !heading.querySelector(".tag")); // the tab says the same
  }
  fillConditions(fitting, own);
  const titles = ["task", "model"].filter(measuredChoice).map((name) => measuredForm.elements[name].selectedOptions[0].dataset.title ?? measuredChoice(name));
  document.querySelector("#measured h2").textContent = titles.join(": ") || "Tasks";
  document.querySelector("#measured .lead").hidden = titles.length > 0;
  const shown = own ? variantsOf(own) : 0;
  measuredForm.querySelector("output").textContent = task || model || tag ? `${shown} variant${shown === 1 ? "" : "s"}` : "";
  hideEmptyFigures(model);
  if (own) showChart(own);
  markRows(own);
  fillAbout(task, model);
  redraw();
  watch(document.getElementById("measured"));
}

/**
 * Return the number of a condition's variants that the filters show. The ranking repeats them.
 * @param {HTMLElement} section
 */
function variantsOf(section) {
  return [...section.querySelectorAll("tbody tr[data-model]")].filter((row) => !row.hidden && !row.closest(".board")).length;
}

/**
 * Fill the tabs of conditions, which keep the filters and the chosen model.
 * @param {HTMLElement[]} sections
 * @param {HTMLElement | null} own
 */
function fillConditions(sections, own) {
  const tabs = document.getElementById("conditions");
  tabs.hidden = sections.length < 2;
  const { model, tag, task } = formState(measuredForm);
  /** @type {(section: HTMLElement) => string} */
  const address = ({ id }) => {
    const query = new URLSearchParams(model || tag ? { ...(task && { task }), ...(model && { model }), ...(tag && { tag }), condition: id } : chosen.model ? { model: chosen.model } : {}).toString();
    return `#${[model || tag ? "measured" : id, query].filter(Boolean).join("?")}`;
  };
  tabs.classList.toggle("tabs", sections.length <= MOST_TABS);
  if (sections.length > MOST_TABS) {
    const list = choice(`one of ${sections.length} conditions`, sections.map(({ dataset }) => dataset.label), own.dataset.label, ({ selectedIndex }) => { location.hash = address(sections[selectedIndex]); });
    return tabs.replaceChildren(element("li", null, list));
  }
  tabs.replaceChildren(...sections.map((section) => {
    const tab = link(address(section), section.dataset.label);
    return element("li", null, section === own ? withAttributes(tab, { "aria-current": "true" }) : tab);
  }));
  const current = tabs.querySelector("[aria-current]");
  if (current) tabs.scrollLeft = current.parentElement.offsetLeft - tabs.offsetLeft; // on a phone they are in one line
}

/**
 * Show one chart of a condition, and the tabs of all that have something to show.
 * @param {HTMLElement} section
 */
function showChart(section) {
  const charts = section.querySelector(".charts");
  /** @type {HTMLElement[]} */
  const all = [...charts.querySelectorAll(".chart")];
  const usable = all.filter((chart) => chart.querySelector("figure:not([hidden])"));
  const open = usable.find(({ dataset }) => dataset.title === openChart) ?? usable[0];
  for (const chart of all) {
    chart.hidden = chart !== open;
    withAttributes(chart, { id: `${section.id}-${chart.dataset.title}`, role: "tabpanel", "aria-label": chart.dataset.title });
  }
  charts.querySelector(".tabs")?.remove();
  const tabs = usable.map((chart) => withAttributes(button(chart.dataset.title, () => openTab(section, chart.dataset.title)), {
    role: "tab", "aria-selected": String(chart === open), "aria-controls": chart.id, tabindex: chart === open ? 0 : -1,
  }));
  const list = withAttributes(element("div", null, ...tabs), { class: "tabs", role: "tablist", "aria-label": `Charts of ${section.dataset.label}` });
  list.addEventListener("keydown", ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    const next = step && usable[(usable.indexOf(open) + step + usable.length) % usable.length];
    if (next) openTab(section, next.dataset.title);
  });
  charts.prepend(list);
}

/**
 * Open a tab of charts, here and in the other conditions, and leave the focus on it.
 * @param {HTMLElement} section
 * @param {string} title
 */
function openTab(section, title) {
  openChart = title;
  showChart(section);
  /** @type {HTMLElement} */ (section.querySelector("[role=tab][aria-selected=true]")).focus({ preventScroll: true });
  redraw();
}

/**
 * Mark the chosen model's rows, and bring the first into the sight of its table.
 * @param {HTMLElement | null} section
 */
function markRows(section) {
  for (const row of document.querySelectorAll("#measured tr[aria-current]")) row.removeAttribute("aria-current");
  const rows = chosen.model && section ? [...section.querySelectorAll("tbody tr[data-model]")].filter((row) => row.dataset.model === chosen.model) : [];
  for (const row of rows) row.setAttribute("aria-current", "true");
  const first = rows.find((row) => row.closest(".board"));
  if (!first) return;
  const folded = /** @type {HTMLDetailsElement | null} */ (first.closest("details"));
  if (folded) folded.open = true;
  requestAnimationFrame(() => { // once the page has its height
    const table = first.closest(".scroll");
    table.scrollTop = first.offsetTop - table.clientHeight / 2;
  });
}

/**
 * Hide the figures without a line of the chosen model, because only their axes would be left.
 * @param {string} model
 */
function hideEmptyFigures(model) {
  for (const container of document.querySelectorAll("#measured .plot[data-models]")) {
    container.closest("figure").hidden = Boolean(model) && !JSON.parse(container.dataset.models).includes(model);
  }
}

/**
 * Fill the head of the page of a single task or model: what it is, how far the model gets, its settings, and a command.
 * @param {string} task
 * @param {string} model
 */
async function fillAbout(task, model) {
  const place = document.getElementById("about");
  const name = `${task ? "task" : "model"}/${task || model}`;
  place.dataset.name = name;
  if (!task === !model) return place.replaceChildren();
  const { paper, family, settings } = (await unpack("about"))[name] ?? {};
  if (place.dataset.name !== name || !place.isConnected) return;
  const command = task ? `orthobench sweep ${task} --models scornn,lstm --seeds 3` : `orthobench run adding ${model}`;
  const isAuthors = /\.py:|^notebook:/.test(model ?? ""); // where the page is read, its file may be missing or another one
  const facts = [paper, family && `${family} family`].filter(Boolean).join(" · ");
  const scores = model ? scoresOf(model) : [];
  if (task) document.getElementById("measured").append(place); // a reader who trains on it has seen the ranking
  else measuredForm.before(place);
  const about = element("p", null, ...(facts ? [`${facts} · `] : []), isAuthors ? "a layer from a file of the author" : element("code", command), ...(model ? [" · ", link(`#mine?${new URLSearchParams({ model })}`, "its runs, and its nearest rivals")] : []));
  const table = settings?.length ? [tableOf("Settings", ["setting", "default", "meaning"], settings)] : [];
  place.replaceChildren(...(task ? [element("details", null, element("summary", "How to train on it, and its settings"), about, ...table)] : [
    about,
    ...(scores.length ? [tableOf("How far the model gets", ["task", "0 to 100", "seeds"], scores)] : []),
    ...table.map((own) => element("details", null, element("summary", `Settings of ${nameOf(model)}`), own)),
  ]));
}

/**
 * Return the model's cells of the matrix as rows of a table.
 * @param {string} model
 */
function scoresOf(model) {
  const table = matrix();
  const heads = table ? [...table.tHead.rows[0].cells] : [];
  const rows = table ? [...table.tBodies[0].rows].filter((row) => row.dataset.model === model) : [];
  return rows.flatMap((row) => [...row.cells].filter((cell) => cell.dataset.score && !cell.matches(".mean")).map((cell) => {
    const source = cell.querySelector("a"), [, words] = /: (.*)/s.exec(source.title);
    const variant = row.querySelector("bdi").textContent.slice(nameOf(model).length);
    const score = withAttributes(element("span", source.firstChild.textContent), { class: cell.matches(".far") ? "score far" : "score", style: cell.getAttribute("style") });
    return [link(withModel(source.getAttribute("href"), model), heads[cell.cellIndex].textContent.trim() + variant), score, words];
  }));
}

/**
 * Return the name of a model for people.
 * @param {string} model
 */
function nameOf(model) {
  return [...measuredForm.elements.model.options].find(({ value }) => value === model)?.text ?? model;
}

/**
 * Return the address of a condition in which a model stands out.
 * @param {string} address
 * @param {string} model
 */
function withModel(address, model) {
  return `${address.split("?")[0]}?${new URLSearchParams({ model })}`;
}

export function startMeasured() {
  if (!measuredForm) return;
  document.addEventListener("click", ({ target }) => { // before the browser follows the link
    /** @type {HTMLAnchorElement | null} */
    const cell = /** @type {Element} */ (target).closest(".solves tr[data-model] td a");
    if (cell) cell.href = withModel(cell.hash, cell.closest("tr").dataset.model);
  });
  const changed = () => {
    filterMeasured();
    rememberIn("measured", formState(measuredForm));
  };
  measuredForm.addEventListener("change", changed);
  measuredForm.addEventListener("reset", () => setTimeout(changed));
}

/**
 * @param {Record<string, string>} state
 * @param {string} [condition]
 * @param {string} [model] the model that stands out
 */
export function showMeasured(state, condition = state.condition ?? "", model = "") {
  if (!measuredForm) return;
  Object.assign(chosen, { condition, model });
  fillForm(measuredForm, state);
  filterMeasured();
}
