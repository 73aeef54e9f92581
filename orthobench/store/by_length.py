"""Read a metric over the length of the test sequences from a run's vectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orthobench.metric import BY_LENGTH, LENGTHS, TRAINED_LENGTHS
from orthobench.store.result import Trace


@dataclass(frozen=True)
class ByLength:
    """A metric over length.

    Attributes:
        metric: the metric's name.
        trained: the shortest and the longest length of the training sequences.
        values: the metric by length, for each iteration at which the run was evaluated.
    """

    metric: str
    trained: tuple[int, int]
    values: dict[int, dict[int, float]]


def read_by_length(traces: Iterable[Trace]) -> ByLength | None:
    """Return the metric over length from a run's vectors, or None if they have none."""
    vectors = {(trace.name, trace.iteration): trace.values for trace in traces}
    names = {name for name, _ in vectors if name.startswith(f"{BY_LENGTH}/")} - {LENGTHS, TRAINED_LENGTHS}
    if not names:
        return None
    (name,) = names
    trained = next(values for (other, _), values in vectors.items() if other == TRAINED_LENGTHS)
    return ByLength(
        name.partition("/")[2],
        (int(trained[0]), int(trained[1])),
        {
            iteration: dict(zip(map(int, vectors[LENGTHS, iteration]), values, strict=True))
            for (other, iteration), values in sorted(vectors.items())
            if other == name
        },
    )
