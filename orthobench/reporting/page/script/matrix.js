// The matrix: its order by a column, its filter, and the commands of the cells without runs. A live page
// replaces the table, so it is looked up at each click.

import { button, copyButton, element, link } from "./elements.js";
import { formState } from "./forms.js";
import { loadRuns } from "./runs.js";

export const matrixForm = /** @type {PageForm | null} */ (document.getElementById("matrix-filters"));

export const matrix = () => /** @type {HTMLTableElement | null} */ (document.getElementById("solves"));

export function filterMatrix() {
  const { family, folded } = formState(matrixForm);
  const rows = [...matrix().tBodies[0].rows];
  for (const row of rows) row.hidden = family ? row.dataset.family !== family : "folded" in row.dataset && !folded;
  const shown = rows.filter((row) => !row.hidden).length;
  matrixForm.elements.folded.closest("label").hidden = !rows.some((row) => "folded" in row.dataset);
  matrixForm.querySelector("output").textContent = shown < rows.length ? `${shown} of ${rows.length} rows` : "";
}

/**
 * Sort by a column, the best first; the column of names restores the order of the page.
 * @param {HTMLTableCellElement} heading
 */
function sortMatrix(heading) {
  const { tBodies, tHead } = matrix(), column = heading.cellIndex;
  /** @param {HTMLTableRowElement} row */
  const value = (row) => (column ? Number(row.cells[column].dataset.score ?? -2) : -Number(row.dataset.place));
  tBodies[0].append(...[...tBodies[0].rows].sort((first, second) => value(second) - value(first)));
  matrix().classList.toggle("sorted", column > 0); // which hides the lines between families
  for (const other of tHead.rows[0].cells) other.removeAttribute("aria-sort");
  if (column) heading.setAttribute("aria-sort", "descending");
}

/**
 * Show the command of an empty cell below the table, or at the edge of the window where that is out of sight.
 * @param {HTMLTableCellElement} cell
 */
async function showCommand(cell) {
  const { command, task } = matrix().tHead.rows[0].cells[cell.cellIndex].dataset;
  const { model } = cell.parentElement.dataset;
  const place = document.getElementById("matrix-command"), words = command.replace("MODEL", model);
  const close = button("close", () => {
    place.replaceChildren();
    cell.querySelector("button")?.focus();
  });
  const others = (await loadRuns()).filter((run) => run.model === model && run.task === task);
  const elsewhere = others.length ? ["Its ", link(`#runs?${new URLSearchParams({ model, task })}`, others.length === 1 ? "run" : `${others.length} runs`), " on this task had other settings. "] : [];
  place.replaceChildren("Not run under this condition: ", element("code", words), " ", copyButton(words), " ", ...elsewhere, close);
}

export function startMatrix() {
  if (!matrixForm) return;
  matrixForm.addEventListener("change", filterMatrix);
  matrixForm.addEventListener("reset", () => setTimeout(filterMatrix));
  filterMatrix();
  matrixForm.closest(".view").addEventListener("click", ({ target }) => {
    const node = /** @type {Element} */ (target);
    /** @type {HTMLTableCellElement | null} */
    const heading = node.closest("#solves thead th");
    /** @type {HTMLTableCellElement | null} */
    const cell = node.closest("#solves .unrun");
    if (heading) sortMatrix(heading);
    if (cell) showCommand(cell);
  });
}
