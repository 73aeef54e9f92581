"""The declaration of a metric: its name, which direction is better, and how axes and tables write it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

Goal = Literal["min", "max"]

BY_LENGTH = "by_length"
"""The prefix of the names of vectors with a metric over the lengths of the test sequences."""
LENGTHS, TRAINED_LENGTHS = f"{BY_LENGTH}/lengths", f"{BY_LENGTH}/trained"
"""The vectors with the lengths, and with the shortest and the longest training length."""
VALIDATION = "valid/"
"""The prefix of the names of metrics of the validation data, where those of the tests have none."""
GRADIENT_NORM = "gradient_norm"
"""The prefix of the names of vectors with the norm of the loss's gradient by a state, at every step."""


@dataclass(frozen=True)
class Metric:
    """A number that a task measures.

    name: as in `Task.measure`. goal: whether lower ("min") or higher ("max") values are better. unit: of the values, if
    any. label: for axes; by default the name. is_fraction: the values are shares between 0 and 1. is_graded: models do
    better or worse, and no value solves the task: halfway to perfect on MNIST is reached in one epoch.
    """

    name: str
    goal: Goal
    unit: str = ""
    label: str = ""
    is_fraction: bool = False
    is_graded: bool = False

    def __post_init__(self) -> None:
        """Check the goal.

        Raises:
            ValueError: the goal is neither "min" nor "max".
        """
        if self.goal not in ("min", "max"):
            raise ValueError(f"metric {self.name} has the goal {self.goal!r}: write 'min' or 'max'")

    def at_multiple(self, multiple: int) -> Metric:
        """Return the metric at a multiple of the trained length T, named as in "mse_2t"."""
        label = f"{self.label or self.name} at {multiple}T"
        return replace(self, name=f"{self.name}_{multiple}t", label=label)

    @property
    def axis(self) -> str:
        """The label with its unit, for an axis."""
        return f"{self.label or self.name} ({self.unit})" if self.unit else self.label or self.name

    @property
    def sign(self) -> float:
        """The factor that makes lower values better: 1 if the goal is "min", else -1."""
        return 1.0 if self.goal == "min" else -1.0

    def perfect(self, values: Iterable[float] = (), baseline: float | None = None) -> float | None:
        """Return the perfect value: 0 if the goal is "min", 1 for a fraction with the goal "max", and else unknown.

        Args:
            values: measured ones. If one of them or the baseline is negative, as a log-likelihood may be, 0 is not the
                lowest value.
        """
        if self.goal == "min":
            return 0.0 if min(baseline or 0.0, *values, 0.0) == 0 else None
        return 1.0 if self.is_fraction else None

    @property
    def worst(self) -> float:
        """The worst value, which a diverged run has: infinity if the goal is "min", else minus infinity."""
        return self.sign * math.inf

    def bounds(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the smallest and the largest value that the metric can take.

        Args:
            values: measured ones. A metric that is minimised is never negative unless one of them is.
        """
        if self.is_fraction:
            return 0.0, 1.0
        return (0.0 if self.goal == "min" and min(values, default=0.0) >= 0 else -math.inf), math.inf

    def record(self) -> dict[str, Any]:
        """Return the declaration as JSON values, without the name."""
        values = asdict(self)
        del values["name"]
        return values

    @classmethod
    def main(cls, name: str, goal: str, records: Mapping[str, Mapping[str, Any]] | None) -> Self:
        """Return the declaration of a run's main metric from the columns of its row (`run_columns`)."""
        return cls.read(name, (records or {}).get(name) or {"goal": goal})

    @classmethod
    def read(cls, name: str, record: Mapping[str, Any]) -> Self:
        """Return the declaration of the metric with this name from its record."""
        return cls(name, **record)


def run_columns(metrics: Sequence[Metric]) -> dict[str, Any]:
    """Return the columns of a run's row that describe its task's metrics; the first metric is the main one."""
    main = metrics[0]
    return {"metric": main.name, "goal": main.goal, "metrics": {metric.name: metric.record() for metric in metrics}}


def by_length(metric: str) -> str:
    """Return the name of the vector with a metric's values by length."""
    return f"{BY_LENGTH}/{metric}"


STEP, INSIDE, JACOBIAN = "orthogonality", "orthogonality_inside", "orthogonality_jacobian"
"""The prefixes of the scores of orthogonality: of the matrices by which a step multiplies the state, of those inside
gates and derivatives, and of the step's Jacobian."""
UNDEFINED = {
    "no_state": "it has no state that starts at zero and from which it can continue",
    "not_real": "its state has numbers that are not real",
    "no_gradient": "no gradient reaches the state before a step",
    "fails": "it raises an error when it continues from given states",
}
"""The reasons why a model has no score of the step's Jacobian, by the end of the name that is stored instead."""


NOTATION = {"I_plus_eps_W": "I + εW"}
"""Names of matrices as papers write them, where they differ from the stored names."""


def notation(name: str) -> str:
    """Return the stored name of a matrix or of a value for people: "2.I_plus_eps_W" is "I + εW of layer 2"."""
    start, slash, matrix = name.rpartition("/")
    number, dot, own = matrix.partition(".")
    is_of_layer = bool(dot) and number.isdecimal()
    own = own if is_of_layer else matrix
    return f"{start}{slash}{NOTATION.get(own, own)}" + (f" of layer {number}" if is_of_layer else "")


def undefined(reason: str) -> dict[str, float]:
    """Return the value that is stored instead of the score of the step's Jacobian, for a reason of `UNDEFINED`."""
    return {f"{JACOBIAN}/undefined/{reason}": math.nan}


def why_undefined(name: str) -> str | None:
    """Return in words why a model has no score of the step's Jacobian, from a stored name; None for other names."""
    start, _, reason = name.rpartition("/")
    return UNDEFINED.get(reason, reason) if start == f"{JACOBIAN}/undefined" else None
