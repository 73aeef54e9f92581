"""Curves over seeds: the median, the lowest and the highest seed, and the places where seeds drop out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from orthobench.analysis.logged import Logged, Values, Vectors
from orthobench.store import Run, Status

FLOAT32_TINY = float(np.finfo(np.float32).tiny)
"""The smallest positive number that float32 holds at full precision, 1.2e-38; training flushes smaller ones to 0."""
OUTCOMES = {
    Status.DIVERGED: "diverged",
    Status.INTERRUPTED: "interrupted",
    Status.FAILED: "failed",
    Status.RUNNING: "still running",
    Status.FINISHED: "without a finite value",
}
"""Why a seed has no further value, by its run's status."""


@dataclass(frozen=True)
class DroppedSeeds:
    """A point on a curve after which fewer seeds continue.

    Attributes:
        iteration: the last iteration of the seeds that drop out.
        value: the curve's median there.
        left: the number of seeds with a value after it.
        why: the outcomes of the seeds that drop out, such as "1 diverged".
        outcome: the status of these runs, or the worst one if they differ.
        solved: whether the seeds stopped because the task was solved, and stay in the curve with their last values.
    """

    iteration: float
    value: float
    left: int
    of: int
    why: str
    outcome: Status
    solved: bool = False

    @property
    def words(self) -> str:
        """Describe the loss, as in "2 of 3 seeds left: 1 diverged"."""
        if self.solved:
            return self.why if self.of == 1 else f"{self.why} of {self.of} seeds solved, kept at the last value"
        if self.of == 1:
            return self.why.removeprefix("1 ")
        left = f"{self.left} of {self.of} seeds left" if self.left else "no seed left"
        return f"{left}: {self.why}"


@dataclass(frozen=True)
class Switch:
    """A point on a curve from which a seed goes on with another back end, whose rounding differs.

    Attributes:
        iteration: the first iteration with the later back end.
        value: the curve's median there, between two tests on the line that joins them.
        words: the back ends, such as "1 of 3 seeds on cuda, then on cpu from iteration 400 on".
    """

    iteration: float
    value: float
    words: str


@dataclass(frozen=True)
class Curve:
    """A curve over seeds: for each x the median, the lowest and the highest value of the seeds that have one.

    A median does not depend on the scale, so it is equally valid on a logarithmic and on a linear axis.
    """

    x: Values
    median: Values
    low: Values
    high: Values
    seeds: int
    losses: tuple[DroppedSeeds, ...] = ()
    switches: tuple[Switch, ...] = ()

    def __len__(self) -> int:
        return len(self.x)


def curve_over_seeds(rows: Logged, runs: Sequence[Run]) -> Curve:
    """Return the curve of a metric over the seeds of a variant.

    An iteration is left out if a seed that continues was not evaluated there, which happens when another run ends off
    the common grid. If a seed that continues has no finite value, the curve has a gap. A seed that stopped because the
    task was solved keeps its last value, because the median would otherwise only describe the slow seeds.

    Args:
        runs: the variant's runs; a run without a value counts as lost at the start.
    """
    iterations = np.unique(rows.iteration)
    table = np.full((len(iterations), len(runs)), np.nan)
    measured = np.zeros(table.shape, dtype=bool)
    for number, run in enumerate(runs):
        if curve := rows.curve(run.id):
            at = np.searchsorted(iterations, curve[0])
            table[at, number], measured[at, number] = curve[1], True
    iterations = iterations.astype(float)
    table[~np.isfinite(table)] = np.nan
    finite = ~np.isnan(table)
    ends = np.array([iterations[column].max(initial=-np.inf) for column in finite.T])
    for number, run in enumerate(runs):
        if run.solved_at is not None and np.isfinite(ends[number]):
            after = iterations > ends[number]
            table[after, number], measured[after, number], finite[after, number] = (
                table[finite[:, number], number][-1],
                True,
                True,
            )
    living = (ends[None, :] >= iterations[:, None]) | finite
    complete = (measured | ~living).all(axis=1) & living.any(axis=1)
    x, table = iterations[complete], table[complete]
    if not len(x):
        return Curve(x, x, x, x, len(runs))
    middle, low, high = bands(table)
    last_tests = np.array([iterations[column].max(initial=-np.inf) for column in measured.T])
    losses = tuple(_losses(x, middle, ends, last_tests > ends, runs))
    switches = tuple(_switches(x, middle, runs))
    partial = (living & ~finite)[complete].any(axis=1)  # a seed continues without a finite value: a gap
    middle, low, high = (np.where(partial, np.nan, values) for values in (middle, low, high))
    return Curve(x, middle, low, high, len(runs), losses, switches)


def _switches(x: Values, middle: Values, runs: Sequence[Run]) -> Iterator[Switch]:
    """Yield where a segment of a run has another back end than the one before."""
    for run in runs:
        for first, then in pairwise(run.segment_rows):
            if first.backend and then.backend and first.backend != then.backend:
                whose = "" if len(runs) == 1 else f"1 of {len(runs)} seeds "
                words = f"{whose}on {first.backend}, then on {then.backend} from iteration {then.iteration:,} on"
                yield Switch(then.iteration, float(np.interp(then.iteration, x, middle)), words)


def bands(table: Values) -> tuple[Values, Values, Values]:
    """Return the median, the lowest and the highest number of each row `[rows]`; NaN for a row without a number.

    NumPy's nanmedian, nanmin and nanmax return the same, but take ten times as long for rows of a few seeds.

    Args:
        table: `[rows, seeds]`, with NaN where a seed has no number.
    """
    ordered = np.sort(table, axis=1)  # NaN comes last
    last = np.maximum(np.count_nonzero(~np.isnan(table), axis=1) - 1, 0)
    rows = np.arange(len(table))
    middle = (ordered[rows, last // 2] + ordered[rows, (last + 1) // 2]) / 2
    return middle, ordered[:, 0], ordered[rows, last]


def _losses(
    x: Values, middle: Values, ends: Values, broken: NDArray[np.bool_], runs: Sequence[Run]
) -> list[DroppedSeeds]:
    """Return where seeds drop out: before the curve's end, or at its end if they did not finish.

    Args:
        ends: each run's last iteration with a finite value.
        broken: whether values that are not finite follow, for each run.
    """
    lost: dict[int, list[Run]] = {}
    solved: dict[int, list[Run]] = {}
    for run, end, is_broken in zip(runs, ends, broken, strict=True):
        index = max(int(np.searchsorted(x, end, side="right")) - 1, 0)
        if run.solved_at is not None:
            solved.setdefault(index, []).append(run)
        elif end < x[-1] or is_broken or run.status != Status.FINISHED:
            lost.setdefault(index, []).append(run)
    losses, left = [], len(runs)
    for index in sorted(lost.keys() | solved.keys()):
        if gone := lost.get(index):
            left -= len(gone)
            losses.append(_loss(x[index], middle[index], left, len(runs), gone))
        if stopped := solved.get(index):
            why = "solved" if len(runs) == 1 else str(len(stopped))
            losses.append(DroppedSeeds(x[index], middle[index], left, len(runs), why, Status.FINISHED, solved=True))
    return losses


def vector_curve(rows: Vectors, runs: Sequence[Run], last: bool) -> tuple[float, Curve] | None:
    """Return a vector's first or last measurement over the seeds, with its iteration; None without one.

    Args:
        rows: the vectors. A seed with a shorter vector, because its sequences are shorter, does not count after its
            end.
        last: take the latest iteration at which any seed was measured instead of the earliest. A seed that stopped
            because the task was solved counts with its own last vector.
    """
    if not len(rows):
        return None
    moment, at = measured_at(rows, runs, last)
    vectors = np.full((len(at), max(map(len, at.values))), np.nan)
    for row, vector in zip(vectors, at.values, strict=True):
        row[: len(vector)] = vector
    return moment, curve_of_vectors(np.arange(1, vectors.shape[1] + 1, dtype=float), vectors, at.run.tolist(), runs)


def measured_at(rows: Vectors, runs: Sequence[Run], last: bool) -> tuple[float, Vectors]:
    """Return the iteration of the first or last measurement, and each run's row there; see `vector_curve`."""
    ids, iterations = rows.run.tolist(), rows.iteration
    moment = iterations.max() if last else iterations.min()
    chosen: dict[int, int] = {}
    for row in np.flatnonzero(iterations == moment).tolist():
        chosen.setdefault(ids[row], row)
    for run in runs:
        if last and run.solved_at is not None:
            own = rows.of_run(run.id)
            if own.start < own.stop:
                chosen.setdefault(run.id, own.stop - 1)
    return float(moment), rows.at(list(chosen.values()))


def curve_of_vectors(x: Values, vectors: Values, measured: Iterable[int], runs: Sequence[Run]) -> Curve:
    """Return the curve over seeds of vectors `[seeds, len(x)]`; a seed does not count where it has no value.

    Args:
        measured: the ids of the runs with vectors; the other runs are lost.
        runs: all runs of the variant.
    """
    middle, low, high = bands(np.where(np.isfinite(vectors), vectors, np.nan).T)
    known = set(measured)
    gone = [run for run in runs if run.id not in known]
    losses = (_loss(x[-1], middle[-1], len(vectors), len(runs), gone),) if gone else ()
    return Curve(x, middle, low, high, len(runs), losses)


def _loss(x: float, value: float, left: int, of: int, gone: Sequence[Run]) -> DroppedSeeds:
    counts = Counter(Status(run.status) for run in gone)
    why = ", ".join(f"{count} {OUTCOMES[status]}" for status, count in counts.items())
    return DroppedSeeds(x, value, left, of, why, next(status for status in OUTCOMES if status in counts))
