"""Numbers as whole numbers: each code stands for the decimal that the page shows."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from support.pages import decimal

from orthobench.reporting.page.packed_figures import WholeNumbers, decimal_codes, digits

EDGES = [
    0.0,
    -0.0,
    np.nan,
    np.inf,
    -np.inf,
    5e-324,
    2.2e-308,
    1.7e308,
    1.0,
    10.0,
    999.95,
    0.99995,
    9.9995e-5,
    1e22,
    1e23,
]


@pytest.mark.parametrize("count", [3, 4, 5])
def test_codes_stand_for_the_rounded_numbers(count):
    draw = np.random.default_rng(count)
    wide = draw.normal(size=5_000) * 10.0 ** draw.integers(-300, 300, 5_000)
    near = 10.0 ** draw.integers(-20, 20, 2_000) * (1 + draw.normal(size=2_000) * 1e-6)
    values = np.concatenate([wide, near, draw.normal(size=2_000), EDGES])
    expected = digits(values, count)
    assert [decimal(code, count) for code in decimal_codes(values, count).tolist()] == [
        value and float(f"{value:.{count}g}") for value in expected
    ]


def test_codes_have_the_order_of_the_numbers():
    values = np.sort(np.random.default_rng(0).lognormal(sigma=9, size=1_000))
    assert (np.diff(decimal_codes(values, 4)) >= 0).all()
    assert (decimal_codes(-values, 4) == -decimal_codes(values, 4)).all()


def test_whole_numbers_are_packed_as_steps():
    numbers, draw = WholeNumbers(), np.random.default_rng(1)
    parts = [draw.integers(-(2**31), 2**31, 40), np.zeros(0, np.int64), np.array([2**31 - 1, -(2**31), 0])]
    assert [numbers.add(part) for part in parts] == [0, 40, 40]
    head, _, planes = numbers.packed({"a": 1}).partition(b"\n")
    steps = np.frombuffer(np.frombuffer(planes, np.uint8).reshape(4, -1).T.tobytes(), "<u4").astype(np.int64)
    signed = np.where(steps % 2, -(steps + 1) // 2, steps // 2)
    sums = (np.cumsum(signed) + 2**31) % 2**32 - 2**31
    assert head == b'{"a":1}'
    assert sums.tolist() == np.concatenate(parts).tolist()


def test_smooth_curves_are_small():
    """Gradient norms that grow by a few percent take a byte and a half each."""
    numbers = WholeNumbers()
    growth = np.random.default_rng(2).normal(0.03, 0.02, (200, 64)).cumsum(axis=1)
    numbers.add(decimal_codes(1e-7 * np.exp(growth).ravel(), 4))
    assert len(gzip.compress(numbers.packed({}))) < 1.5 * growth.size
