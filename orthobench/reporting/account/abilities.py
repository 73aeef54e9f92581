"""The first screen: what each family of cells can learn, and whether one cell is better than another.

It is drawn from the matrix, so that every number in it is a number there.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from orthobench.analysis.by_length import HELD
from orthobench.analysis.inference import Comparison, Standing, compare_unpaired, deciding_seeds, standings
from orthobench.analysis.judged import WORDS
from orthobench.analysis.placement import step_milliseconds
from orthobench.analysis.scores import all_solve
from orthobench.errors import counted, shell_command
from orthobench.reporting.account.matrix import FAMILIES, MatrixColumn, MatrixRow, ResultMatrix, word_of_column
from orthobench.reporting.account.matrix_cell import MatrixCell, gains
from orthobench.reporting.account.names import MEASURES, in_words, short_title
from orthobench.store import Run

FEW_ROWS = 12
"""A matrix with at most this number of rows is its own summary."""
MOST_COLUMNS = 6
"""The most tasks that fit next to each other."""
COMMON = 0.5
"""Columns are shown if they have at least this share of the models of the fullest one.

Otherwise the count of those members that a search has reached would be read as that of the family.
"""


@dataclass(frozen=True)
class Member:
    """A model, or its variants with one value of a setting, with its cell in a column."""

    row: MatrixRow
    cell: MatrixCell

    @property
    def label(self) -> str:
        """The name, with the version of the model if it has a newer one, because the runs are not of that one."""
        return ", ".join(
            filter(None, (self.row.label, self.cell.version and in_words("model_version", self.cell.version)))
        )

    @property
    def rank(self) -> tuple[bool, float]:
        """The place in the order of a family: three seeds first, then the score."""
        return not self.cell.has_few_seeds, self.cell.score


@dataclass(frozen=True)
class AbilityCell:
    """The members of a family with a result on a task, the best first."""

    members: list[Member]

    @property
    def best(self) -> Member:
        return self.members[0]

    @property
    def reach(self) -> int:
        """The number of members with at least three seeds whose median score is 90 or more."""
        return sum(_percent(each.cell.score) >= _percent(HELD) and not each.cell.has_few_seeds for each in self.members)

    @property
    def counted(self) -> int:
        """The number of members with at least three seeds, or of all where none has so many."""
        return sum(each.rank[0] for each in self.members) or len(self.members)

    @property
    def as_good(self) -> int:
        """The number of other members with the best one's score in whole percents."""
        return sum(each.rank[0] and _percent(each.cell.score) == self.percent for each in self.members[1:])

    @property
    def name(self) -> str:
        """The name of the best member; "" if it learns nothing, because none is the best then."""
        return self.best.label if self.best.cell.learns else ""

    @property
    def percent(self) -> int:
        """The score of the best member in whole percents."""
        return _percent(self.best.cell.score)


@dataclass(frozen=True)
class AbilityColumn:
    """A task: a column of the matrix, by its number there."""

    number: int
    column: MatrixColumn

    @property
    def label(self) -> str:
        """The name of the task, with its length: no other column is of this task, and `note` has ranges of lengths."""
        return short_title(self.column.condition, has_others=True)

    @property
    def is_tuned(self) -> bool:
        return self.column.block == "tuned"

    @property
    def note(self) -> str:
        """What is counted if a study counts something else, the lengths if they are ranges, and whether it is tuned."""
        settings = self.column.condition.settings
        measure = MEASURES.get(self.column.condition.task)
        trained, tested = settings.get("longest"), settings.get("test_longest")
        lengths = f"trained to {trained}, tested to {tested}" if trained and tested else ""
        return " · ".join(filter(None, (measure, lengths, WORDS[self.column.block] if self.is_tuned else "not tuned")))


@dataclass(frozen=True)
class Cost:
    """The CPU time of a training step of a family's members: of the fastest, and the median, in milliseconds."""

    fastest: str
    lowest: float
    median: float
    count: int


@dataclass(frozen=True)
class Family:
    """A row: the cells are in the order of the columns."""

    name: str
    cells: list[AbilityCell | None]
    cost: Cost | None

    @property
    def title(self) -> str:
        return FAMILIES.get(self.name, self.name)


@dataclass(frozen=True)
class Abilities:
    """What each family can learn.

    Attributes:
        columns: those with tuned results first.
        processor: of the times of `Family.cost`; "" if there are none.
        members: the rows of the matrix with a result in one of the columns, by name.
    """

    columns: list[AbilityColumn]
    families: list[Family]
    processor: str
    members: list[MatrixRow]

    def cells(self) -> Iterator[tuple[Family, AbilityColumn, AbilityCell]]:
        """Yield the cells that have members, with their family and column."""
        for family in self.families:
            for column, cell in zip(self.columns, family.cells, strict=True):
                if cell:
                    yield family, column, cell


def compute_abilities(matrix: ResultMatrix) -> Abilities | None:
    """Return what each family can learn; None if the matrix is so short that it says this itself.

    Each task has one column: the tuned one if it has most models, else of those that are neither of a paper nor a quick
    preset the one with most seeds. Results of different settings are never in one cell.
    """
    columns = _columns(matrix)
    rows = [row for row in matrix.rows if any(row.cells[column.number] for column in columns)]
    if len(rows) <= FEW_ROWS:
        return None
    names = dict.fromkeys(row.family for row in rows)
    processor, times = _times(rows, columns[0])
    families = []
    for name in names:
        own = [row for row in rows if row.family == name]
        families.append(Family(name, [_cell(own, column) for column in columns], _cost(own, times)))
    return Abilities(columns, families, processor, sorted(rows, key=lambda row: row.label.lower()))


def _columns(matrix: ResultMatrix) -> list[AbilityColumn]:
    counts = [sum(row.cells[number] is not None for row in matrix.rows) for number in range(len(matrix.columns))]
    most = max((counts[number] for number in matrix.shown), default=0)

    def seeds(number: int) -> int:
        return sum(cell.seeds for row in matrix.rows if (cell := row.cells[number]))

    chosen: dict[str, int] = {}
    for number, column in enumerate(matrix.columns):
        if column.block in ("tuned", "own") and counts[number] >= COMMON * most:
            word = word_of_column(column.condition)
            other = chosen.setdefault(word, number)
            if matrix.columns[other].block == column.block and seeds(number) > seeds(other):
                chosen[word] = number
    order = sorted(chosen.values(), key=lambda number: matrix.columns[number].block != "tuned")
    return [AbilityColumn(number, matrix.columns[number]) for number in order[:MOST_COLUMNS]]


def _cell(rows: Sequence[MatrixRow], column: AbilityColumn) -> AbilityCell | None:
    members = sorted(
        (Member(row, cell) for row in rows if (cell := row.cells[column.number])), key=lambda each: each.rank
    )
    # Each model once, with its best row, because cells are counted, and not the values of a setting.
    best = {each.row.model: each for each in members}
    return AbilityCell(sorted(best.values(), key=lambda each: each.rank, reverse=True)) if best else None


def _times(rows: Sequence[MatrixRow], column: AbilityColumn) -> tuple[str, dict[str, float]]:
    """Return the kind of processor that timed most models in a column, and the milliseconds of a step by row.

    Other processors, or another number of threads, do not compare.
    """
    timed = [
        (_processor(run), row.label, time)
        for row in rows
        if (cell := row.cells[column.number])
        for run in cell.variant.runs
        if (time := step_milliseconds(run)) is not None
    ]
    models = Counter(processor for processor, _ in dict.fromkeys((processor, label) for processor, label, _ in timed))
    if not models:
        return "", {}
    processor = models.most_common(1)[0][0]
    times: dict[str, float] = {}
    for own, label, time in timed:
        if own == processor:
            times[label] = min(time, times.get(label, time))
    return processor, times


def _processor(run: Run) -> str:
    threads = run.environment.facts.get("threads")
    return ", ".join(filter(None, (run.environment.machine, threads and counted(threads, "thread"))))


def _cost(rows: Sequence[MatrixRow], times: dict[str, float]) -> Cost | None:
    own = {row.label: times[row.label] for row in rows if row.label in times}
    if not own:
        return None
    fastest = min(own, key=lambda label: own[label])
    return Cost(fastest, own[fastest], statistics.median(own.values()), len(own))


def _percent(score: float) -> int:
    return round(100 * score)


# ---------------------------------------------------------------------- is one better than another?

ANSWERS = (
    "yes, tested apart",
    "no, tested apart",
    "yes, in every seed",
    "no, in every seed",
    "both solve it",
    "both learn nothing",
    "seeds overlap",
    "too few seeds",
)
"""Whether the first of two cells is better than the second, in words."""
SWAPPED = (1, 0, 3, 2, 4, 5, 6, 7)
"""The number of the answer for the second one."""
OPEN = (2, 3, 7)
"""The answers that more seeds may change."""


def questions(abilities: Abilities) -> dict[str, Any]:
    """Return what the page has to know to say whether one cell is better than another, for all pairs.

    Each pair of members has for every column the number of the answer and the p value; null if one has no result.
    """
    columns, members = abilities.columns, abilities.members
    _, times = _times(members, columns[0])
    samples = [[_sample(row.cells[column.number]) for column in columns] for row in members]
    return {
        "answers": ANSWERS,
        "swapped": SWAPPED,
        "open": OPEN,
        "seeds": deciding_seeds(),
        "command": shell_command("compare-tuned", "-t"),
        "columns": [
            {
                "label": column.label,
                "note": column.note,
                "word": word_of_column(column.column.condition),
            }
            for column in columns
        ],
        "members": [
            {
                "label": row.label,
                "model": None if row.is_variant else row.model,
                "time": times.get(row.label),
                "cells": [_shown(row.cells[column.number]) for column in columns],
            }
            for row in members
        ],
        "pairs": [
            [_answer(one, other) for one, other in zip(first, second, strict=True)]
            for first, second in combinations(samples, 2)
        ],
    }


def _shown(cell: MatrixCell | None) -> list[int | str] | None:
    """Return what the page shows of a cell: its scores, the number of its seeds, and an outdated version."""
    if cell is None:
        return None
    return [_percent(cell.score), _percent(cell.low), _percent(cell.high), cell.seeds, cell.version]


Sample = tuple[MatrixCell, tuple[float, ...], bool]


def _sample(cell: MatrixCell | None) -> Sample | None:
    return None if cell is None else (cell, tuple(gains(cell.variant)), all_solve(cell.variant.scored))


def _answer(first: Sample | None, second: Sample | None) -> tuple[int, float | None] | None:
    """Return the number of the answer to whether the first is better, and p."""
    if first is None or second is None or first[0].condition.key != second[0].condition.key:
        return None
    (one, left, solves), (other, right, also) = first, second
    ranks = {value: float(place) for place, value in enumerate(sorted({*left, *right}))}
    compared = _compared(tuple(ranks[value] for value in left), tuple(ranks[value] for value in right))
    (standing,) = standings([compared], [solves and also])
    if compared is None or standing == Standing.FEW:
        return 7, None
    if standing == Standing.SOLVE:
        return 4, None
    if not one.learns and not other.learns:
        return 5, None
    is_better = compared.first_lower < 0.5  # the gains of the first are higher
    if standing == Standing.OVERLAPS:
        return 6, None
    return (0 if standing == Standing.APART else 2) + (not is_better), round(compared.p, 4)


@cache
def _compared(first: tuple[float, ...], second: tuple[float, ...]) -> Comparison | None:
    """Compare the ranks of two samples, which many pairs share."""
    return compare_unpaired(first, second)
