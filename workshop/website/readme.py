"""What documents show of the reference results: the matrix, the papers, the layers of other packages, the findings.

`make readme` renews the tables of README.md, docs/findings.md and docs/founding-idea.md, the pictures, and the scores
that come with the installation, orthobench/analysis/tuned_results.csv.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from statistics import median

from orthobench.analysis.claims import count_claims
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.judged import Choice, choice_of
from orthobench.analysis.paper_tables import TIMES, TableCell
from orthobench.analysis.placement import FILE, HEADINGS, Rival, step_milliseconds
from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.planning.tuned_protocol import protocol
from orthobench.plugins.layers import is_layer
from orthobench.reporting.account.abilities import compute_abilities
from orthobench.reporting.account.matrix import compute_matrix, families_of_models
from orthobench.reporting.account.matrix_cell import MatrixCell
from orthobench.reporting.account.paper_views import distinct_numbers
from workshop.website import findings
from workshop.website.abilities_picture import picture
from workshop.website.markdown import renew_tables, table
from workshop.website.matrix_picture import ranked
from workshop.website.predictors import FEWEST_CELLS, Tuned, before_training, predictors_table
from workshop.website.results import decided, everything

ROOT = Path(__file__).resolve().parents[2]
README, IDEA = ROOT / "README.md", ROOT / "docs" / "founding-idea.md"
RESULTS = ROOT / "orthobench" / "analysis" / FILE


def pictures() -> dict[Path, str]:
    """Draw the pictures of the findings, and the first screen for light and dark pages, by the file of each picture."""
    abilities = compute_abilities(compute_matrix(everything().conditions))
    assert abilities is not None
    return findings.pictures(everything()) | {
        ROOT / "docs" / f"matrix-{name}.svg": picture(abilities, name == "dark") for name in ("light", "dark")
    }


def tuned_variants() -> Iterator[tuple[str, Condition, VariantData, Choice]]:
    """Yield what searches chose for built-in cells: the column, its condition, the scored variant and the choice."""
    built_in = families_of_models()
    for column in protocol().columns:
        for condition in everything().conditions:
            own = condition.settings
            if condition.task != column.task or any(own.get(name) != value for name, value in column.settings.items()):
                continue
            for variant in sorted(condition.variants, key=lambda variant: variant.run.model):
                choice = choice_of(condition, variant) if variant.scores else None
                if choice is not None and variant.run.model in built_in:
                    yield column.name, condition, variant, choice


def tuned_results() -> str:
    """Return the scores of the built-in cells in the columns of the tuned protocol, as the installation has them."""
    rows = []
    for column, condition, variant, choice in tuned_variants():
        times = [time for run in variant.runs if (time := step_milliseconds(run)) is not None]
        chosen = " ".join(f"{name}={value}" for name, value in choice.settings.items())
        scores, time = tuple(variant.solved_shares), min(times, default=None)
        rows.append(
            Rival(column, condition.key, variant.run.model, variant.run.parameter_count, time, scores, chosen).row()
        )
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADINGS, *rows])
    return text.getvalue()


def cells_before_training() -> dict[str, list[Tuned]]:
    """Return the cells of each column of enough cells, with what they are before training."""
    families, cells = families_of_models(), defaultdict(list)
    for column, _, variant, _ in tuned_variants():
        cells[column].append(variant)
    return {
        column: [
            Tuned(families[each.run.model], median(each.solved_shares), before_training(each)) for each in variants
        ]
        for column, variants in cells.items()
        if len(variants) >= FEWEST_CELLS
    }


def papers_table() -> str:
    """Build the table of papers, with the verdicts on their claims and on their numbers; times are left out.

    Claims are counted as in the headlines of the page (`count_claims`). A number that two papers print for the same
    runs counts for the first of them.
    """
    first = {id(number.cell) for number in distinct_numbers(everything().papers)}
    rows = []
    for view in everything().papers:
        claims = count_claims(view.claim_results).words
        cells = [
            (entry.part.artifact.name, *entry.cell[1:]) for entry in decided() if entry.paper is view and entry.cell
        ]
        cells = [cell for cell in cells if cell[2].printed.metric not in TIMES]
        numbers = _numbers([cell for cell in cells if id(cell[2]) in first])
        repeated = sum(id(cell[2]) not in first for cell in cells)
        if repeated:
            numbers.append(f"{repeated} that a paper above prints, too")
        if claims or numbers:
            rows.append([view.paper.short_name, claims or "–", "; ".join(numbers) or "–"])
    return table(["paper", "claims", "numbers"], rows)


def _numbers(cells: Sequence[tuple[str, str, TableCell]]) -> list[str]:
    """Return the numbers that three seeds decide in words, and the count of the others by their verdict."""
    valued = [(part, label, cell) for part, label, cell in cells if cell.printed.value is not None]
    decisive = [
        f"{part}, {label}: {cell.measured.value:.3g}, published {cell.printed.text}, {cell.words}"
        for part, label, cell in valued
        if (cell.is_settled or cell.is_refuted) and cell.measured
    ]
    others = Counter(cell.words for _, _, cell in valued if not (cell.is_settled or cell.is_refuted))
    return decisive + [f"{count} {words}" for words, count in others.most_common()]


def layers_table() -> str:
    """Build the table of the layers of other packages, and of the models that trained on the same tasks."""

    def is_of_layers(condition: Condition) -> bool:
        return any(is_layer(variant.run.model) for variant in condition.variants)

    matrix = compute_matrix([condition for condition in everything().conditions if is_of_layers(condition)])
    best_first = ranked(matrix.rows, range(len(matrix.columns)))
    names = [f"`{row.label}`" if is_layer(row.model) else row.label for row in best_first]
    rows = [[name, *map(_score, row.cells)] for name, row in zip(names, best_first, strict=True)]
    return table(["layer or model", *(column.label for column in matrix.columns)], rows)


def _score(cell: MatrixCell | None) -> str:
    if cell is None:
        return "–"
    spread = f" ({round(100 * cell.low)} to {round(100 * cell.high)})" if cell.is_spread else ""
    return f"{round(100 * cell.score)}{spread}" + (
        f", {cell.seeds} of {FEWEST_SEEDS} seeds" if cell.has_few_seeds else ""
    )


def with_tables() -> dict[Path, str]:
    """Return the documents with their updated tables, and the table that the package has, by file."""
    tables = {
        "papers": papers_table(),
        "predictors": predictors_table(cells_before_training()),
        **findings.tables(everything()),
    }
    documents = (README, IDEA, findings.PAGE)
    return {file: renew_tables(file.read_text("utf-8"), tables) for file in documents} | {RESULTS: tuned_results()}


if __name__ == "__main__":
    for file, content in {**with_tables(), **pictures()}.items():
        file.write_text(content, "utf-8")
