"""A report of many runs: what it reads, and what it refuses before it reads anything."""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import event
from support.pages import add_run

from orthobench.analysis.conditions import collect
from orthobench.errors import UsageError
from orthobench.reporting.figures.decimate import thinned_curves
from orthobench.reporting.page.packed_figures import digits
from orthobench.reporting.page.scope import Scope
from orthobench.reporting.write import write_report
from orthobench.store import open_store


@pytest.mark.parametrize("form", ["html", "csv", "reproduction"])
def test_folder_as_the_file_is_refused_before_the_database_is_read(tmp_path, form):
    with pytest.raises(UsageError, match=r"is a folder: name a file in it, such as .*report\."):
        write_report(None, form, Scope(), {}, tmp_path)  # type: ignore[arg-type]


def test_number_of_queries_does_not_grow_with_the_runs(tmp_path):
    assert queries(tmp_path / "one.db", 1) == queries(tmp_path / "four.db", 4)


def queries(file, seeds: int) -> int:
    """The number of SQL statements that collect the runs of these seeds."""
    statements: list[str] = []
    with open_store(str(file), create=True) as store:
        for seed in range(seeds):
            add_run(store, seed=seed)
        event.listen(store.engine, "before_cursor_execute", lambda _, __, text, *___: statements.append(text))
        (condition,) = collect(store)
    assert len(condition.variants[0].ends) == seeds
    return len(statements)


def test_curves_are_thinned_together_as_one_by_one():
    draw = np.random.default_rng(0)
    lengths = [0, 1, 23, 24, 25, 100, 101, 1000, 7]
    curves = [draw.normal(size=length) for length in lengths]
    curves[5][draw.integers(0, 100, 30)] = np.nan
    curves[6][:] = 1.0
    curves[7][draw.integers(0, 1000, 300)] = np.inf
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    for limit in (4, 24, 64, 2000):
        points, ends = thinned_curves(np.concatenate(curves), bounds, limit)
        for number, curve in enumerate(curves):
            own = points[ends[number] : ends[number + 1]] - bounds[number]
            (alone, _) = thinned_curves(curve, np.array([0, len(curve)]), limit)
            np.testing.assert_array_equal(own, alone)
            if len(curve) > limit and np.isfinite(curve).any():
                known = np.where(np.isfinite(curve), curve, np.nan)
                assert {int(np.nanargmin(known)), len(curve) - 1, 0} <= set(own.tolist())
                assert np.nanmax(known[own]) == np.nanmax(known)


@pytest.mark.parametrize("count", [4, 5, 9])
def test_digits_are_those_of_decimal_formatting(count):
    draw = np.random.default_rng(count)
    values = draw.normal(size=20_000) * 10.0 ** draw.integers(-300, 300, 20_000)
    values = np.concatenate(
        [values, draw.normal(size=20_000), [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e308, 99999.5]]
    )
    expected = [float(f"{value:.{count}g}") if np.isfinite(value) else None for value in values.tolist()]
    shown = digits(values, count)
    assert [value is None for value in shown] == [value is None for value in expected]
    pairs = [(a, b) for a, b in zip(shown, expected, strict=True) if a is not None and a != b]
    assert not pairs
