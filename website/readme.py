"""What documents show of the reference results: the matrix, the papers, the layers of other packages, the findings.

`python -m website.readme` renews README.md, its pictures, docs/any-layer.md and docs/findings.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from orthobench.analysis.claims import ClaimResult
from orthobench.analysis.conditions import Condition
from orthobench.analysis.paper_tables import TIMES, Cell
from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.plugins.layers import is_layer
from orthobench.reporting.page.matrix import MatrixCell, compute_matrix
from orthobench.reporting.page.pages import distinct_numbers
from website.findings import findings
from website.markdown import table
from website.matrix_picture import note_on_tuning, picture
from website.results import Decided, decided, everything

ROOT = Path(__file__).resolve().parent.parent
README, LAYERS = ROOT / "README.md", ROOT / "docs" / "any-layer.md"
BEGIN = "<!-- From results.db, by `make readme`. -->"
END = "<!-- End of the table. -->"


def pictures() -> dict[Path, str]:
    """Draw the matrix of the reference results for light and dark pages, by the file of each picture."""
    matrix = compute_matrix(everything().conditions)
    return {
        ROOT / "docs" / f"matrix-{name}.svg": picture(matrix, name == "dark", note_on_tuning(matrix))
        for name in ("light", "dark")
    }


def papers_table() -> str:
    """Build the table of papers, with the verdicts on their claims and on their numbers; times are left out.

    A number that two papers print for the same runs counts for the first of them.
    """
    first = {id(number.cell) for number in distinct_numbers(everything().papers)}
    by_paper: dict[str, list[Decided]] = {}
    for entry in decided():
        by_paper.setdefault(entry.paper.paper.short_name, []).append(entry)
    rows = []
    for name, entries in by_paper.items():
        claims = in_words([entry.claim for entry in entries if entry.claim])
        cells = [(entry.part.artifact.name, *entry.cell[1:]) for entry in entries if entry.cell]
        cells = [cell for cell in cells if cell[2].printed.metric not in TIMES]
        numbers = _numbers([cell for cell in cells if id(cell[2]) in first])
        repeated = sum(id(cell[2]) not in first for cell in cells)
        if repeated:
            numbers.append(f"{repeated} by runs that are counted above")
        if claims or numbers:
            rows.append([name, claims or "–", "; ".join(numbers) or "–"])
    return table(["paper", "claims", "numbers"], rows)


def _numbers(cells: Sequence[tuple[str, str, Cell]]) -> list[str]:
    """Return the numbers that three seeds decide in words, and the count of the others by their verdict."""
    valued = [(part, label, cell) for part, label, cell in cells if cell.printed.value is not None]
    decisive = [
        f"{part}, {label}: {cell.measured.value:.3g}, published {cell.printed.text}, {cell.words}"
        for part, label, cell in valued
        if (cell.is_settled or cell.is_refuted) and cell.measured
    ]
    others = Counter(cell.words for _, _, cell in valued if not (cell.is_settled or cell.is_refuted))
    return decisive + [f"{count} {words}" for words, count in others.most_common()]


def in_words(claims: Sequence[ClaimResult]) -> str:
    """Describe how many claims held, how many depend on the seed, and how many did not hold."""
    counts = Counter(claim.conclusion for claim in claims)
    plural = {"depends on the seed": "depend on the seed"}
    named = [(count, plural.get(words, words) if count > 1 else words) for words, count in counts.most_common()]
    return ", ".join(f"{count} {words}" for count, words in named)


def layers_table() -> str:
    """Build the table of the layers of other packages, and of the models that trained on the same tasks."""

    def is_of_layers(condition: Condition) -> bool:
        return any(is_layer(variant.run.model) for variant in condition.variants)

    matrix = compute_matrix([condition for condition in everything().conditions if is_of_layers(condition)])
    names = [f"`{row.label}`" if is_layer(row.model) else row.label for row in matrix.rows]
    rows = [[name, *map(_score, row.cells)] for name, row in zip(names, matrix.rows, strict=True)]
    return table(["layer or model", *(column.label for column in matrix.columns)], rows)


def _score(cell: MatrixCell | None) -> str:
    if cell is None:
        return "–"
    spread = f" ({100 * cell.low:.0f} to {100 * cell.high:.0f})" if cell.is_spread else ""
    return f"{100 * cell.score:.0f}{spread}" + (f", {cell.seeds} of {FEWEST_SEEDS} seeds" if cell.has_few_seeds else "")


def with_tables() -> dict[Path, str]:
    """Return the documents with their updated tables, by file."""
    tables = {README: papers_table(), LAYERS: layers_table()}
    texts = {}
    for file, content in tables.items():
        head, _, rest = file.read_text("utf-8").partition(BEGIN)
        _, _, tail = rest.partition(END)
        texts[file] = f"{head}{BEGIN}\n\n{content}\n{END}{tail}"
    return texts


if __name__ == "__main__":
    for file, content in {**with_tables(), **pictures(), **findings(everything())}.items():
        file.write_text(content, "utf-8")
