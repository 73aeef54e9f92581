import math

import pytest

from orthobench.analysis.statistics import summarize


def test_interval_is_students():
    """Five values of mean 3 and variance 2.5: t(4, 0.975) = 2.776, half width 2.776 sqrt(2.5 / 5)."""
    summary = summarize([1, 2, 3, 4, 5])
    assert (summary.n, summary.mean) == (5, 3)
    assert summary.half_width == pytest.approx(2.7764451 * math.sqrt(0.5), rel=1e-6)
    assert str(summary) == "3 ± 2"


def test_few_values():
    assert summarize([]) is None
    assert summarize([math.nan, math.inf]) is None
    assert str(summarize([0.25])) == "0.25"
    assert summarize([1, math.nan, 3]).n == 2
