"""How far runs track states: up to which length, and what the distinguishability ratio says of it.

All of it comes from the vectors of the probe `error_control` after training. A score is the share of states that the
decoder reads, rescaled so that chance becomes 0 and 1 stays 1. It is taken not to grow with the length, so the vector
is replaced by the nearest one that never grows (isotonic regression). Because the first of 256 noisy values below a
level lies well before the length at which the score falls to it, the vector itself would give too short a horizon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import betaincinv

from orthobench.analysis import by_length
from orthobench.analysis.aggregates import chance_level, scaled
from orthobench.analysis.by_length import HELD, trained_range
from orthobench.analysis.conditions import VariantData
from orthobench.analysis.logged import Values

PROBE = "error_control"
CONFIDENCE = 0.9
"""Of an interval. A higher one would have no length that 64 states of two kinds, all read, show to be above 90 %."""
FEWEST = 64
"""States per length in runs that did not store their number: the fewest that the probe measures together."""


@dataclass(frozen=True)
class Reading:
    """The scores of a run by test length, `[lengths]`, which never grow.

    Attributes:
        counts: the number of states at each length.
        chance: the share that a decoder without memory reads.
    """

    lengths: Values
    scores: Values
    counts: Values
    chance: float = 0.0

    @classmethod
    def of(cls, lengths: Values, accuracy: Values, counts: Values, chance: float = 0.0) -> Reading:
        """Return the scores of a decoder that reads these shares of the states."""
        read = isotonic_regression(accuracy, weights=counts, increasing=False).x
        return cls(lengths, scaled(read, chance), counts, chance)

    def horizon(self, level: float = HELD) -> float:
        """Return the greatest length before the scores fall below a level; 0 for none, infinity for all."""
        return _before_first(self.lengths, self.scores < level - 1e-9)

    def interval(self) -> tuple[float, float]:
        """Return the interval of the horizon, with `CONFIDENCE`.

        Up to its lower end the score is surely above `HELD`, and beyond its upper end it is surely below, by the
        exact binomial interval of Clopper and Pearson at each length.
        """
        shares = self.chance + (1 - self.chance) * np.clip(self.scores, 0, 1)
        reads, tail = shares * self.counts, (1 - CONFIDENCE) / 2
        # Not `scipy.stats.beta.ppf`, which returns the same, because importing its module takes a third of a second.
        low = np.nan_to_num(betaincinv(reads, self.counts - reads + 1, tail), nan=0.0)
        high = np.nan_to_num(betaincinv(reads + 1, self.counts - reads, 1 - tail), nan=1.0)
        limit = self.chance + (1 - self.chance) * HELD
        return _before_first(self.lengths, low < limit), _before_first(self.lengths, high < limit)


def _before_first(lengths: Values, is_lost: NDArray[np.bool_]) -> float:
    """Return the greatest length before the first one that is lost; 0 for none, infinity for all."""
    lost = np.flatnonzero(is_lost)
    if not len(lost):
        return math.inf
    return float(lengths[lost[0] - 1]) if lost[0] else 0.0


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
        forecast: the horizon that the ratio's growth over the training lengths forecasts; None if it cannot be fitted.
        reading: the scores by length; None if only the horizon is known.
    """

    run: int
    seed: int
    predicted: float
    measured: float
    longest: float
    trained: float
    threshold: float = math.inf
    forecast: float | None = None
    reading: Reading | None = None

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
    if "horizons" not in variant.cache:  # because tables, the matrix and figures ask for them again
        variant.cache["horizons"] = _horizons(variant)
    found: list[Horizon] = variant.cache["horizons"]
    return found


def _horizons(variant: VariantData) -> list[Horizon]:
    predicted, threshold = (
        {run: float(values[-1]) for run, (_, values) in variant.curves_of_runs("probe", f"{PROBE}/{name}").items()}
        for name in ("predicted_horizon", "threshold")
    )
    trained = trained_range(variant)
    vectors = {name: _last(variant, name) for name in ("lengths", "accuracy", "ratio", "counts")}
    if trained is None:
        return []
    chance = chance_level(variant.run.baselines.get("accuracy")) or 0.0
    found = []
    for run in variant.finished:
        lengths, accuracy = vectors["lengths"].get(run.id), vectors["accuracy"].get(run.id)
        if lengths is None or accuracy is None or run.id not in predicted or run.id not in threshold:
            continue
        counts = vectors["counts"].get(run.id, np.full(len(lengths), FEWEST))
        reading = Reading.of(lengths, accuracy, counts, chance)
        ratio = vectors["ratio"].get(run.id, np.full(len(lengths), math.nan))
        found.append(
            Horizon(
                run.id,
                run.seed,
                predicted[run.id],
                reading.horizon(),
                float(lengths.max()),
                float(max(lengths[lengths <= trained[1]], default=lengths.min())),
                threshold[run.id],
                forecast(lengths, ratio, threshold[run.id], trained[1]),
                reading,
            )
        )
    return found


def _last(variant: VariantData, name: str) -> dict[int, Values]:
    """Return the last vector of the probe with this name, by run."""
    vectors = variant.traces.get(f"{PROBE}/{name}")
    if vectors is None:
        return {}
    return {run: np.asarray(values, float) for run, values in zip(vectors.run.tolist(), vectors.numbers(), strict=True)}


def forecast(lengths: Values, ratio: Values, threshold: float, trained: float) -> float | None:
    """Return the length at which the ratio reaches the threshold if it goes on growing as over the training lengths.

    The ratio is fitted as a power of the length, because errors that add up independently grow as its square root.
    None if the ratio predicts nothing, or has fewer than three finite values up to the longest training length.
    """
    is_seen = (lengths <= trained) & (lengths > 0) & np.isfinite(ratio) & (ratio > 0)
    if not 0 < threshold < math.inf or is_seen.sum() < 3:
        return None
    power, start = np.polyfit(np.log(lengths[is_seen]), np.log(ratio[is_seen]), 1)
    if power <= 0:
        return math.inf if start + power * math.log(trained) <= math.log(threshold) else 0.0
    reached = (math.log(threshold) - start) / power
    return math.exp(reached) if reached < math.log(lengths.max()) else math.inf


def median_horizon(variant: VariantData) -> float | None:
    """Return the measured horizon of the median seed, the lower one of an even number; None without the probe.

    A diverged seed has the horizon 0.
    """
    found = horizons(variant)
    return median_low([*(each.measured for each in found), *[0.0] * variant.diverged]) if found else None


def fits(variant: VariantData) -> bool | None:
    """Return whether the median seed fits the training lengths; None if no test has them.

    Where runs have the probe, its states decide; else the task's metric over length.
    """
    found = horizons(variant)
    seeds = [*(each.fits for each in found), *[False] * variant.diverged]
    return median_low(seeds) if found else by_length.fits(variant)


def log_correlation(pairs: Sequence[Horizon]) -> float | None:
    """Return Pearson's correlation of the logarithms of both horizons; None with fewer than three different values."""
    first, second = (
        np.log([each.shown(value) for each, value in zip(pairs, values, strict=True)])
        for values in ([each.predicted for each in pairs], [each.measured for each in pairs])
    )
    if len(pairs) < 3 or not (first.std() and second.std()):
        return None
    return float(np.corrcoef(first, second)[0, 1])
