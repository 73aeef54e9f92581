"""Where a cell stands among the built-in cells that were tuned alike.

`tuned_results.csv` comes with the installation and has the scores of every built-in cell in each column of the tuned
protocol. It is written from the project's database.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from orthobench.store import Run

FILE = "tuned_results.csv"
HEADINGS = ("column", "condition", "model", "parameters", "milliseconds", "scores", "chosen")
TIE = 0.005
"""The difference of scores that no table shows, so that it places no cell before another."""
NEAREST = 3
"""The number of rivals that are named."""


@dataclass(frozen=True)
class Rival:
    """A built-in cell in a column.

    Attributes:
        condition: the hash of the task and its settings.
        milliseconds: the CPU time of a training step on one thread; None if it was not measured.
        scores: of its fresh seeds, from 0, the best constant, to 1.
        chosen: the settings that its search chose, in words.
    """

    column: str
    condition: str
    model: str
    parameters: int
    milliseconds: float | None
    scores: tuple[float, ...]
    chosen: str

    @property
    def score(self) -> float:
        return statistics.median(self.scores)

    def row(self) -> tuple[str, ...]:
        """Return the rival as a row of the file."""
        time = "" if self.milliseconds is None else f"{self.milliseconds:.3g}"
        scores = " ".join(f"{score:.4f}" for score in self.scores)
        return self.column, self.condition, self.model, str(self.parameters), time, scores, self.chosen

    @classmethod
    def read(cls, row: Sequence[str]) -> Rival:
        """Return the rival of a row of the file."""
        column, condition, model, parameters, time, scores, chosen = row
        values = tuple(map(float, scores.split()))
        return cls(column, condition, model, int(parameters), float(time) if time else None, values, chosen)


@cache
def rivals() -> tuple[Rival, ...]:
    """Return the built-in cells of all columns."""
    text = files(__package__).joinpath(FILE).read_text("utf-8")
    _, *rows = csv.reader(text.splitlines())
    return tuple(map(Rival.read, rows))


def rivals_on(condition: str) -> list[Rival]:
    """Return the built-in cells that were trained on exactly this task, the best first."""
    return sorted((rival for rival in rivals() if rival.condition == condition), key=lambda rival: -rival.score)


def step_milliseconds(run: Run) -> float | None:
    """Return the CPU time of a training step; None if the run did not measure it, or trained on a GPU."""
    cpu, train = run.seconds.get("cpu"), run.seconds.get("train")
    if run.device != "cpu" or cpu is None or train is None or not run.iterations:
        return None
    # The share of training in the wall clock, because CPU time is not counted by phase.
    share = train / sum(seconds for phase, seconds in run.seconds.items() if phase != "cpu")
    return float(1000 * cpu * share / run.iterations)


@dataclass(frozen=True)
class Place:
    """Where a cell stands in a column.

    Attributes:
        scores: of its own fresh seeds.
        rivals: the built-in cells, the best first.
    """

    scores: tuple[float, ...]
    rivals: tuple[Rival, ...]

    @property
    def score(self) -> float:
        return statistics.median(self.scores)

    @property
    def count(self) -> int:
        """The number of cells, with this one."""
        return len(self.rivals) + 1

    @property
    def rank(self) -> int:
        """The place by the median score; cells within `TIE` share one."""
        return 1 + sum(rival.score > self.score + TIE for rival in self.rivals)

    @property
    def best_rank(self) -> int:
        """The place if only rivals that are better in every seed are before it."""
        return 1 + sum(min(rival.scores) > max(self.scores) + TIE for rival in self.rivals)

    @property
    def worst_rank(self) -> int:
        """The place if only rivals that are worse in every seed are behind it."""
        return self.count - sum(max(rival.scores) < min(self.scores) - TIE for rival in self.rivals)

    @property
    def nearest(self) -> list[Rival]:
        """The rivals with the nearest scores, the nearest first."""
        return sorted(self.rivals, key=lambda rival: abs(rival.score - self.score))[:NEAREST]

    def rival(self, model: str) -> Rival | None:
        """Return a built-in cell of the column."""
        return next((rival for rival in self.rivals if rival.model == model), None)
