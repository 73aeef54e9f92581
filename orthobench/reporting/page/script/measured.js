// The page of tasks: one task at a time, and filters, which hide tasks, models and lines of figures.

import { unpack } from "./data.js";
import { element, link, tableOf, withAttributes } from "./elements.js";
import { redraw } from "./figures.js";
import { measuredChoice, measuredForm } from "./filters.js";
import { fillForm, formState, rememberIn } from "./forms.js";
import { matrix } from "./matrix.js";
import { watch } from "./sight.js";

export function filterMeasured() {
  const [task, model, tag] = ["task", "model", "tag"].map(measuredChoice);
  let shown = 0;
  const list = document.getElementById("task-list");
  const listed = Boolean(list) && !task && !model && !tag;
  if (list) list.hidden = !listed;
  for (const section of document.querySelectorAll("#view-measured .filtered")) {
    const rows = [...section.querySelectorAll("tbody tr[data-model]")];
    for (const row of rows) row.hidden = Boolean((model && row.dataset.model !== model) || (tag && !JSON.parse(row.dataset.tags).includes(tag)));
    section.hidden = Boolean(listed || (task && section.dataset.task !== task) || rows.every((row) => row.hidden));
    const variants = rows.filter((row) => !row.hidden && !row.closest(".board")); // the leaderboard repeats rows
    section.classList.toggle("single", Boolean(model || tag) && variants.length < 2);
    if (!section.hidden) shown += variants.length;
  }
  const titles = ["task", "model"].filter(measuredChoice).map((name) => measuredForm.elements[name].selectedOptions[0].dataset.title ?? measuredChoice(name));
  document.querySelector("#view-measured h2").textContent = titles.join(": ") || "Tasks";
  document.querySelector("#view-measured .lead").hidden = titles.length > 0;
  measuredForm.querySelector("output").textContent = task || model || tag ? `${shown} variant${shown === 1 ? "" : "s"}` : "";
  hideEmptyFigures(model);
  fillAbout(task, model);
  redraw();
  watch(document.getElementById("view-measured"));
}

/**
 * Hide the figures without a line of the chosen model, because only their axes would be left.
 * @param {string} model
 */
function hideEmptyFigures(model) {
  for (const container of document.querySelectorAll("#view-measured .plot[data-models]")) {
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
  place.replaceChildren(
    element("p", null, ...(facts ? [`${facts} · `] : []), isAuthors ? "a layer from a file of the author" : element("code", command)),
    ...(scores.length ? [tableOf("How far the model gets", ["task", "0 to 100", "seeds"], scores)] : []),
    ...(settings?.length ? [element("details", null, element("summary", `Settings of ${task || model}`), tableOf("Settings", ["setting", "default", "meaning"], settings))] : []),
  );
}

/**
 * Return the model's cells of the matrix as rows of a table.
 * @param {string} model
 */
function scoresOf(model) {
  const table = matrix();
  const heads = table ? [...table.tHead.rows[0].cells] : [];
  const rows = table ? [...table.tBodies[0].rows].filter((row) => row.dataset.model === model) : [];
  return rows.flatMap((row) => [...row.cells].filter((cell) => cell.dataset.score).map((cell) => {
    const source = cell.querySelector("a"), [, words] = /: (.*)/s.exec(source.title);
    const variant = row.cells[0].textContent.trim().slice(model.length);
    const score = withAttributes(element("span", source.firstChild.textContent), { class: cell.matches(".far") ? "score far" : "score", style: cell.getAttribute("style") });
    return [link(source.getAttribute("href"), heads[cell.cellIndex].textContent.trim() + variant), score, words];
  }));
}

export function startMeasured() {
  if (!measuredForm) return;
  const changed = () => {
    filterMeasured();
    rememberIn("measured", formState(measuredForm));
  };
  measuredForm.addEventListener("change", changed);
  measuredForm.addEventListener("reset", () => setTimeout(changed));
}

/** @param {Record<string, string>} state */
export function showMeasured(state) {
  if (!measuredForm) return;
  fillForm(measuredForm, state);
  filterMeasured();
}
