"""One score of a model over several tasks, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from orthobench.analysis.scores import LOWEST
from orthobench.analysis.statistics import DRAWS, LEVEL


@dataclass(frozen=True)
class Overall:
    """A model's score over all columns of a comparison, with its 95 % interval.

    Attributes:
        columns: the number of columns.
        seeds: the number of seeds in the column that has the fewest.
        low: lower end of the interval; None if a column has a single seed, because that one cannot be resampled.
        high: upper end of the interval.
    """

    value: float
    columns: int
    seeds: int
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" [{self.low:.3g}, {self.high:.3g}]"
        return f"{self.value:.4g}{interval}"


def overall(columns: Sequence[Sequence[float]]) -> Overall | None:
    """Return the mean of a model's scores over the columns with its stratified bootstrap interval; None without scores.

    Every column counts alike. An interquartile mean would leave out all seeds of the worst of four columns, and so call
    a model that fails one task perfect. It is for more tasks: Agarwal et al., Deep Reinforcement Learning at the Edge
    of the Statistical Precipice, NeurIPS 2021. Of `DRAWS` resamples, each draws every column's seeds anew from that
    column, as `StratifiedBootstrap` of the authors' rliable does. The interval is about seeds, not about other tasks.

    The percentiles of such resamples are too close to the score if seeds are few. In simulations of five columns they
    cover the mean of many seeds in 85, 90 and 93 % for three, five and ten seeds of each. Therefore their distances
    from the score are multiplied by t sqrt(n / (n - 1)) / z, as far as Student's interval of n values is wider than the
    percentiles' of a mean. That covers it in 94 % for each, and where one seed in seven fails, in 87, 91 and 93 %.

    Args:
        columns: the scores of each column's seeds (`score_of`). Columns without seeds are left out.

    Raises:
        ValueError: a score is not between `LOWEST` and 1.
    """
    import numpy as np
    from scipy.special import stdtrit

    filled = [np.asarray(column, dtype=float) for column in columns if len(column)]
    if not filled:
        return None
    if not all(((column >= LOWEST) & (column <= 1)).all() for column in filled):
        raise ValueError(f"a score is not between {LOWEST:g} and 1: give a run that diverged the score {LOWEST:g}")
    value, fewest = float(np.mean([column.mean() for column in filled])), min(map(len, filled))
    if fewest == 1:
        return Overall(value, len(filled), fewest)
    draw = np.random.default_rng(0)
    drawn = [column[draw.integers(0, len(column), (DRAWS, len(column)))].mean(axis=1) for column in filled]
    ends = np.quantile(np.mean(drawn, axis=0), (LEVEL / 2, 1 - LEVEL / 2))
    freedom = sum(len(column) - 1 for column in filled)
    wider = stdtrit(freedom, 1 - LEVEL / 2) / NormalDist().inv_cdf(1 - LEVEL / 2) * math.sqrt(fewest / (fewest - 1))
    low, high = np.clip(value + wider * (ends - value), LOWEST, 1).tolist()
    return Overall(value, len(filled), fewest, low, high)
