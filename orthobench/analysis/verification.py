"""Whether a run that was trained again has the stored numbers.

Where the environments are equal, all numbers are equal bit for bit, because a run is a function of its key. Elsewhere
rounding differs, and training amplifies it. The two results are then like those of two seeds: their difference, over
sqrt(2) times the standard deviation s of n other seeds, has Student's t distribution with n - 1 degrees of freedom.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from orthobench.analysis.compare import Differences, differences
from orthobench.analysis.statistics import FEWEST_SEEDS, LEVEL
from orthobench.store import Run, Status, Store

Outcome = Literal["identical", "agrees", "differs"]
FEW_SEEDS = (
    "the environments differ, and too few other seeds of this variant have a spread: bring three into the database, or "
    "train in the stored environment"
)
Number = tuple[str, str, int]
"""What identifies a stored number or vector: its split or "vector", its name, and the iteration."""


@dataclass(frozen=True)
class Verification:
    """The comparison of a stored run with the same run trained again.

    Attributes:
        outcome: "identical": all numbers are equal; "agrees": the results are within the spread of other seeds.
        reason: the outcome in words.
        stored: the final value of the metric, if the run has one.
        again: the final value of the run that was trained again.
        numbers: how many numbers and vectors both runs have.
        equal: how many of these are equal bit for bit.
        first: the first of the others, with both values, if there is one.
        environment: what differs between the environments, by name; empty if they are equal.
        margin: the largest difference of two seeds by chance; None without enough other seeds.
        seeds: the number of other seeds.
    """

    run: str
    task: str
    model: str
    seed: int
    outcome: Outcome
    reason: str
    metric: str
    stored: float | None
    again: float | None
    numbers: int
    equal: int
    first: str | None
    environment: Differences
    margin: float | None
    seeds: int


def compare_again(store: Store, run: Run, again_store: Store, again: Run) -> Verification:
    """Compare a stored run with the same run trained again.

    Args:
        store: the database of the stored run, whose other seeds give the spread.
        again_store: the database of the run that was trained again.
    """
    numbers, others = _numbers(store, run), _numbers(again_store, again)
    # A probe that only one of the two installations has changes no number of training.
    common = [at for at in numbers if at in others or at[0] not in ("probe", "vector")]
    common += [at for at in others if at not in numbers and at[0] not in ("probe", "vector")]
    unequal = [at for at in common if not _same(numbers.get(at), others.get(at))]
    environment = differences(_environments(store, run), _environments(again_store, again))
    values = [
        each.final_value
        for each in store.runs()
        if each.variant == run.variant and each.key != run.key and each.status == Status.FINISHED
    ]
    spread = [value for value in values if value is not None and math.isfinite(value)]
    margin = largest_difference(spread) if len(spread) == len(values) else None
    outcome, reason = _judge(run, again, bool(unequal), bool(environment), margin)
    return Verification(
        run.key,
        run.task,
        run.model,
        run.seed,
        outcome,
        reason,
        run.metric,
        run.final_value,
        again.final_value,
        len(common),
        len(common) - len(unequal),
        _shown(min(unequal, key=lambda at: at[2]), numbers, others) if unequal else None,
        environment,
        margin,
        len(values),
    )


def largest_difference(values: Sequence[float]) -> float | None:
    """Return the difference that two further seeds exceed with probability LEVEL; None for fewer than three values."""
    if len(values) < FEWEST_SEEDS:
        return None
    from scipy.special import stdtrit

    return float(stdtrit(len(values) - 1, 1 - LEVEL / 2)) * math.sqrt(2) * statistics.stdev(values)


def _judge(run: Run, again: Run, is_unequal: bool, is_elsewhere: bool, margin: float | None) -> tuple[Outcome, str]:
    """Return the outcome and its reason."""
    if not is_unequal and _same(_end(run), _end(again)):
        return "identical", "all numbers are equal bit for bit"
    if not is_elsewhere:
        return "differs", "the environments are equal, and the numbers are not"
    if run.status != again.status:
        return "differs", "the runs end differently"
    if run.status == Status.DIVERGED:
        return "agrees", "both runs diverged"
    if margin is None:
        return "differs", FEW_SEEDS
    if run.final_value is None or again.final_value is None:
        return "differs", "one of the runs has no result"
    if abs(run.final_value - again.final_value) <= margin:
        return "agrees", "the environments differ, and the results differ by no more than two seeds do by chance"
    return "differs", "the results differ by more than two seeds do by chance"


def _end(run: Run) -> tuple[Any, ...]:
    return str(run.status), run.iterations, run.final_value, run.best_value, run.best_iteration


def _numbers(store: Store, run: Run) -> dict[Number, Any]:
    """Return all numbers and vectors of a run."""
    values: dict[Number, Any] = {
        (split, name, iteration): value for _, split, name, _, iteration, value in store.metric_values([run.id])
    }
    return values | {("vector", row.name, row.iteration): tuple(row.values) for row in store.traces([run.id])}


def _same(first: Any, second: Any) -> bool:
    """Return whether two values are equal bit for bit, but for the bits of NaN."""
    return repr(first) == repr(second)


def _environments(store: Store, run: Run) -> list[dict[str, Any]]:
    """Return the facts of all environments in which a run was trained."""
    segments = store.segments([run.id])
    facts = [{**row.environment.flat_facts, "backend": row.backend} for row in segments]
    return [{**own, "device": run.device} for own in facts or [run.environment.flat_facts]]


def _shown(at: Number, stored: Mapping[Number, Any], again: Mapping[Number, Any]) -> str:
    split, name, iteration = at
    if split == "vector":
        return f"{name} after iteration {iteration}"
    first, second = stored.get(at, "missing"), again.get(at, "missing")
    return f"{split} {name} after iteration {iteration}: stored {first!r}, here {second!r}"
