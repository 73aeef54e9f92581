"""Count the numbers that each paper prints, by what is known about them, and how long the open ones would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orthobench.analysis.conditions import Condition
from orthobench.analysis.experience import Experience, experiences, nearest
from orthobench.analysis.paper_tables import TableCell
from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.reporting.account.paper_views import PaperView, group_of
from orthobench.store import Run

DEVICES = ("cpu", "cuda")
LICENSED = "timit"
"""The task whose data cannot be downloaded."""
KINDS = {
    "agrees": ("agree",),
    "differs": ("better", "worse"),
    "too wide": ("too_wide",),
    "undecided": ("undecided",),
    "settings not published": ("unpublished",),
    "at a limit": ("at_limit",),
    "another machine": ("other",),
}
"""The columns of measured numbers, with their groups of verdicts."""


@dataclass(frozen=True)
class Hours:
    """The hours of three seeds of each open experiment.

    Attributes:
        total: their sum, over the experiments that can be estimated.
        unknown: how many have no run of the same model on their data that is near in size.
    """

    total: float
    unknown: int

    def __str__(self) -> str:
        if not self.total:
            return "unknown"
        text = f"{self.total:.2g}" if self.total < 100 else f"{self.total:,.0f}"
        return f"{text} ({self.unknown} unknown)" if self.unknown else text


@dataclass(frozen=True)
class PrintedNumbers:
    """The numbers in a paper's tables.

    Attributes:
        counts: the number of measured ones by column of `KINDS`, and of those that are "open" or "not run here".
        licensed: how many open ones need data that a licence protects.
        hours: the time of the open experiments on each device.
    """

    paper: str
    counts: Counter[str]
    licensed: int
    hours: Mapping[str, Hours]

    @property
    def row(self) -> list[str]:
        measured = sum(self.counts[kind] for kind in KINDS)
        printed = measured + self.counts["open"] + self.counts["not run here"]
        counts = [self.counts[kind] for kind in (*KINDS, "open", "not run here")]
        hours = [str(self.hours[device]) if self.counts["open"] else "" for device in DEVICES]
        return [self.paper, *map(str, (printed, measured, *counts)), *hours]


def printed_numbers(
    views: Sequence[PaperView], conditions: Sequence[Condition], specs: Mapping[str, Mapping[str, Any]]
) -> list[PrintedNumbers]:
    """Return the counts of each paper that prints numbers in its tables.

    Args:
        conditions: all measured conditions, whose runs say how long others take.
        specs: the canonical form of each experiment's runs, by the experiment's identity.
    """
    time = _Time(conditions)
    counted = []
    for view in views:
        cells = [cell for part in view.artifacts if part.table for cell in part.table.cells]
        cells = [cell for cell in cells if cell.printed.value is not None]
        counts = Counter(map(_kind, cells))
        experiments = [cell.experiment for cell in cells if cell.experiment and _kind(cell) == "open"]
        licensed = sum(experiment.task == LICENSED for experiment in experiments)
        own = [specs.get(identity) for identity in dict.fromkeys(each.identity for each in experiments)]
        hours = {device: time.hours(own, device) for device in DEVICES}
        if cells:
            counted.append(PrintedNumbers(view.paper.short_name, counts, licensed, hours))
    return counted


def open_hours(
    views: Sequence[PaperView], conditions: Sequence[Condition], specs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Hours]:
    """Return the hours on a CPU core of the experiments without runs, by the key of their table or figure."""
    time = _Time(conditions)
    parts = [part for view in views for part in view.artifacts if part.missing]
    return {part.key: time.hours([specs.get(each.identity) for each in part.missing], "cpu") for part in parts}


class _Time:
    """How long runs take, by the stored runs."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self.by_task: dict[str, list[Run]] = {}
        for condition in conditions:
            for variant in condition.variants:
                self.by_task.setdefault(condition.task, []).extend(variant.runs)
        self.known: dict[tuple[str, str, str], list[Experience]] = {}

    def hours(self, specs: Sequence[Mapping[str, Any] | None], device: str) -> Hours:
        """Return the hours of three seeds of each run."""
        total, unknown = 0.0, 0
        for spec in specs:
            near = spec and nearest(spec, self._experiences(spec["task"], spec["model"], device))
            if spec and near:
                total += FEWEST_SEEDS * near.seconds(spec) / 3600
            else:
                unknown += 1
        return Hours(total, unknown)

    def _experiences(self, task: str, model: str, device: str) -> list[Experience]:
        """Return the experiences with a model on a task."""
        key = task, model, device
        if key not in self.known:
            runs = [run for run in self.by_task.get(task, []) if run.model == model]
            self.known[key] = experiences(runs, device, None)
        return self.known[key]


COUNTED = (
    "A number that two papers print counts in both. Open numbers have no finished run; their hours are those of three "
    "seeds of each experiment, by the nearest stored runs of its model. Unknown: no run of this model on this data is "
    "near in size."
)
STAY_OPEN = " The numbers on TIMIT, whose corpus needs a licence, stay open."


def explanation(papers: Sequence[PrintedNumbers]) -> str:
    """Return what the table counts, and that some open numbers need licensed data."""
    return COUNTED + (STAY_OPEN if any(paper.licensed for paper in papers) else "")


def _kind(cell: TableCell) -> str:
    if cell.measured is None:
        return "open" if cell.experiment and cell.verdict == "not measured" else "not run here"
    group = group_of(cell)
    return next(kind for kind, groups in KINDS.items() if group in groups)
