"""Summaries over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Mean of n values with the 95 % Student-t interval of the mean; half_width is None for fewer than two."""

    n: int
    mean: float
    half_width: float | None

    def __str__(self) -> str:
        spread = "" if self.half_width is None else f" ± {self.half_width:.2g}"
        return f"{self.mean:.4g}{spread}"


def summarize(values: Sequence[float]) -> Summary | None:
    """The summary of the finite values; None if there is none."""
    finite = [value for value in values if math.isfinite(value)]
    n = len(finite)
    if n == 0:
        return None
    mean = math.fsum(finite) / n
    if n == 1:
        return Summary(1, mean, None)
    from scipy.special import stdtrit

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / (n - 1))
    return Summary(n, mean, float(stdtrit(n - 1, 0.975)) * deviation / math.sqrt(n))
