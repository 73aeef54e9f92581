"""Columns of metric values hold what the rows hold."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from support.pages import add_run

from orthobench.errors import DamagedError
from orthobench.store import MetricRow, open_store
from orthobench.store import columns as columns_module
from orthobench.store.columns import metric_columns


def test_columns_equal_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("orthobench.store.columns.ROWS_AT_ONCE", 7)
    with open_store(str(tmp_path / "results.db"), create=True) as store:
        keys = [add_run(store, model) for model in ("lstm", "rnn")]
        ids = [store.find(key).id for key in keys]
        values = (math.inf, -math.inf, math.nan, 2.5)
        store.log(ids[0], [MetricRow("valid", "other", 1, i, value) for i, value in enumerate(values)], [], {})
        for chosen in (ids, ids[:1], []):
            columns = metric_columns(store, chosen)
            rows = [(run, split, name, i, value) for run, split, name, _, i, value in store.metric_values(chosen)]
            texts = [
                [known[code] for code in codes]
                for codes, known in ((columns.split, columns.splits), (columns.name, columns.names))
            ]
            assert list(zip(columns.run, *texts, columns.iteration, strict=True)) == [row[:4] for row in rows]
            np.testing.assert_array_equal(columns.value, [row[4] for row in rows])


def test_row_committed_between_two_queries_changes_nothing(tmp_path, monkeypatch):
    """Another process commits a row after the lengths of the series were read."""
    file = str(tmp_path / "results.db")
    with open_store(file, create=True) as store, open_store(file) as other:
        run_id = store.find(add_run(store)).id
        before = metric_columns(store, [run_id])

        def check(rows, types):
            if types is columns_module.SERIES_TYPES:
                other.log(run_id, [MetricRow("test", "mse", 9, 9000, 1.0)], [], {})
            return original(rows, types)

        original = columns_module._columns
        monkeypatch.setattr(columns_module, "_columns", check)
        during = metric_columns(store, [run_id])
        monkeypatch.undo()
        assert list(during.iteration) == list(before.iteration)
        assert 9000 in metric_columns(store, [run_id]).iteration


@pytest.mark.parametrize(("column", "value"), [("value", "text"), ("iteration", 1.5), ("series_id", 99)])
def test_row_with_a_value_of_another_type_is_damage(tmp_path, column, value):
    file = tmp_path / "results.db"
    with open_store(str(file), create=True) as store:
        key = add_run(store)
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("pragma ignore_check_constraints = on")
            connection.execute(f"update metric set {column} = ? where id = 1", (value,))
        run_id = store.find(key).id
        for read in (store.metric_values, lambda ids: metric_columns(store, ids)):
            with pytest.raises(DamagedError, match=r"results.db is damaged: .*; correct or delete the row in SQL"):
                read([run_id])
