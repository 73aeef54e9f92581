// The matrix of the overview: its order by a column, its filter, and the commands of the cells without runs.

const matrixTable = document.getElementById("solves");
const matrixForm = document.getElementById("matrix-filters");

function filterMatrix() {
  const { family } = formState(matrixForm);
  const rows = [...matrixTable.tBodies[0].rows];
  for (const row of rows) row.hidden = Boolean(family && row.dataset.family !== family);
  const shown = rows.filter((row) => !row.hidden).length;
  matrixForm.querySelector("output").textContent = family ? `${shown} of ${rows.length} models` : "";
}

// Sort by a column, the best first; the column of names restores the order of the page.
function sortMatrix(heading, original) {
  const column = Number(heading.dataset.column);
  const way = (row) => Number(row.cells[column + 1].dataset.way ?? -1);
  const rows = column < 0 ? original : [...original].sort((first, second) => way(second) - way(first));
  matrixTable.tBodies[0].append(...rows);
  for (const other of matrixTable.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  if (column >= 0) heading.setAttribute("aria-sort", "descending");
}

function showCommand(cell) {
  const { command } = matrixTable.tHead.rows[0].cells[cell.cellIndex].dataset;
  const { model } = cell.parentElement.dataset;
  document.getElementById("matrix-command").replaceChildren("Not run yet: ", element("code", command.replace("MODEL", model)));
}

function startMatrix() {
  if (!matrixTable) return;
  const original = [...matrixTable.tBodies[0].rows];
  matrixForm.addEventListener("change", filterMatrix);
  matrixForm.addEventListener("reset", () => setTimeout(filterMatrix));
  matrixTable.addEventListener("click", ({ target }) => {
    const heading = target.closest("thead th"), cell = target.closest(".unrun");
    if (heading) sortMatrix(heading, original);
    if (cell) showCommand(cell);
  });
}
