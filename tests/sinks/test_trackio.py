"""What only Trackio does: one folder in each process, and numbers that are not finite."""

from __future__ import annotations

import math

import pytest
from support.records import key_of, run_record

import orthobench as ob
from orthobench.errors import StorageError
from orthobench.store import MetricRow, Status, open_store

KEY = key_of(seed=0)


@pytest.fixture
def kind() -> str:
    pytest.importorskip("trackio", reason="the extra orthobench[trackio] is not installed")
    return "trackio"


@pytest.fixture
def database(tmp_path) -> str:
    file = str(tmp_path / "r.db")
    with open_store(file, create=True) as store:
        run = store.start(run_record(seed=0), {"cpu": "a"}, ["kept"])
        rows = [MetricRow("test", "mse", 0, i, value) for i, value in enumerate((1.0, math.inf, math.nan))]
        store.log(run.id, rows, [], {"status": Status.DIVERGED, "iterations": 2})
    return file


def test_package_reads_the_run_back(database, location):
    with ob.open_results(database) as results:
        results.export(f"trackio:{location}")
    from trackio import SQLiteStorage

    rows = SQLiteStorage.get_logs("orthobench", KEY)
    assert [(row["step"], row["mse/test"]) for row in rows if "mse/test" in row][:2] == [(0, 1.0), (1, math.inf)]
    assert math.isnan(rows[2]["mse/test"])
    config = SQLiteStorage.get_run_config("orthobench", KEY)
    assert (config["orthobench.status"], config["orthobench.tags"]) == ("diverged", "kept")


def test_second_folder_in_a_process_is_refused(database, location, tmp_path):
    with ob.open_results(database) as results:
        results.export(f"trackio:{location}")
        with pytest.raises(StorageError, match=r"trackio already writes to .*: use one folder for it"):
            results.export(f"trackio:{tmp_path / 'other'}")
    assert not (tmp_path / "other").exists()
