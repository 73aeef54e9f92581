// The page of tasks: one task at a time, and filters, which hide tasks, models and lines of figures.

const measuredForm = document.getElementById("measured-filters");

function measuredChoice(name) {
  return measuredForm?.elements[name]?.value ?? "";
}

// Return whether the filters next to a figure let a line pass.
function passes(container, { meta }) {
  if (!meta?.model || !container.closest("#view-measured")) return true;
  const [model, tag] = ["model", "tag"].map(measuredChoice);
  return (!model || meta.model === model) && (!tag || (meta.tags ?? []).includes(tag));
}

function filterMeasured() {
  const [task, model, tag] = ["task", "model", "tag"].map(measuredChoice);
  let shown = 0;
  const list = document.getElementById("task-list");
  const listed = Boolean(list) && !task && !model && !tag;
  if (list) list.hidden = !listed;
  for (const section of document.querySelectorAll("#view-measured .filtered")) {
    const rows = [...section.querySelectorAll("tbody tr[data-model]")];
    for (const row of rows) row.hidden = Boolean((model && row.dataset.model !== model) || (tag && !JSON.parse(row.dataset.tags).includes(tag)));
    section.hidden = Boolean(listed || (task && section.dataset.task !== task) || rows.every((row) => row.hidden));
    if (!section.hidden) shown += rows.filter((row) => !row.hidden && !row.closest(".board")).length; // the leaderboard repeats rows
  }
  document.querySelector("#view-measured h2").textContent = [task, model].filter(Boolean).join(": ") || "Tasks";
  measuredForm.querySelector("output").textContent = task || model || tag ? `${shown} variant${shown === 1 ? "" : "s"} fit; means and bands are over all their seeds` : "";
  redraw();
  watch(document.getElementById("view-measured"));
}

function startMeasured() {
  if (!measuredForm) return;
  const changed = () => {
    filterMeasured();
    rememberIn("measured", formState(measuredForm));
  };
  measuredForm.addEventListener("change", changed);
  measuredForm.addEventListener("reset", () => setTimeout(changed));
}

function showMeasured(state) {
  if (!measuredForm) return;
  fillForm(measuredForm, state);
  filterMeasured();
}

// Forms and the address: fields that are not empty are stored in the hash

function formState(form) {
  return Object.fromEntries([...new FormData(form)].filter(([, value]) => value));
}

function fillForm(form, state) {
  for (const field of form.elements) if (field.name) field.value = state[field.name] ?? "";
}

// Change the address without leaving the page.
function rememberIn(page, state) {
  const query = new URLSearchParams(Object.entries(state).filter(([, value]) => value !== "" && value !== undefined)).toString();
  history.replaceState(history.state, "", query ? `#${page}?${query}` : `#${page}`);
}
