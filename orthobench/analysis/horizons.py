"""The horizons of state tracking that the probe `error_control` stores: the predicted and the measured one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.test_lengths import trained_range

PROBE = "error_control"


@dataclass(frozen=True)
class Horizon:
    """Up to which length a finished run tracks states.

    Attributes:
        run: the id of the run.
        seed: its seed.
        predicted: the greatest length up to which the distinguishability ratio is at most the decoder's threshold.
        measured: the greatest length up to which the decoder reads the states. Both are infinite if no test is longer.
        longest: the longest test length.
        trained: the longest test length that is no longer than the training sequences, or else the shortest.
        threshold: the ratio up to which the decoder reads the states of the training sequences; 0 if it reads one of
            them wrong on average, so that the ratio predicts nothing.
    """

    run: int
    seed: int
    predicted: float
    measured: float
    longest: float
    trained: float
    threshold: float = math.inf

    @property
    def fits(self) -> bool:
        """Whether the states are read at all training lengths."""
        return self.measured >= self.trained

    @property
    def loses(self) -> bool:
        """Whether the run fits the training lengths and loses the state at a longer one."""
        return self.fits and math.isfinite(self.measured)

    @property
    def is_predicted(self) -> bool:
        """Whether the ratio predicts a horizon."""
        return self.threshold > 0

    @property
    def is_predicted_inside(self) -> bool:
        """Whether the ratio predicts a horizon before the longest test."""
        return self.is_predicted and math.isfinite(self.predicted)

    def shown(self, horizon: float) -> float:
        """Return one of the two horizons, at most the longest test length and at least 1."""
        return max(min(horizon, self.longest), 1.0)


def horizons(variant: VariantData) -> list[Horizon]:
    """Return the horizons of the finished runs that have them, at the end of training."""
    predicted, measured, threshold = (
        {run: float(values[-1]) for run, (_, values) in variant.curves_of_runs("probe", f"{PROBE}/{name}").items()}
        for name in ("predicted_horizon", "measured_horizon", "threshold")
    )
    trained = trained_range(variant)
    if trained is None:
        return []
    if (lengths := variant.traces.get(f"{PROBE}/lengths")) is None:
        return []
    tested = dict(zip(lengths.run.tolist(), lengths.numbers(), strict=True))
    return [
        Horizon(
            run.id,
            run.seed,
            predicted[run.id],
            measured[run.id],
            float(tested[run.id].max()),
            float(max(tested[run.id][tested[run.id] <= trained[1]], default=tested[run.id].min())),
            threshold[run.id],
        )
        for run in variant.finished
        if run.id in predicted and run.id in measured and run.id in threshold and run.id in tested
    ]


def log_correlation(pairs: Sequence[Horizon]) -> float | None:
    """Return Pearson's correlation of the logarithms of both horizons; None with fewer than three different values."""
    first, second = (
        np.log([each.shown(value) for each, value in zip(pairs, values, strict=True)])
        for values in ([each.predicted for each in pairs], [each.measured for each in pairs])
    )
    if len(pairs) < 3 or not (first.std() and second.std()):
        return None
    return float(np.corrcoef(first, second)[0, 1])
