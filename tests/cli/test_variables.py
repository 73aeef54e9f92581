"""Variables of the environment from a file that was written on Windows, or with blanks at the ends of its lines."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from orthobench.options.data_folder import data_folder
from orthobench.recurrence.cpu import library
from orthobench.sinks.targets import parse_target
from orthobench.system.cache import cache_folder

ENDS = ["\r", " ", "\r\n", "\t"]


@pytest.mark.parametrize("end", ENDS)
def test_database_and_jobs_have_no_blanks_around_them(orthobench, tiny_options, tmp_path, monkeypatch, end):
    monkeypatch.setenv("ORTHOBENCH_DB", f" named.db{end}")
    monkeypatch.setenv("ORTHOBENCH_JOBS", f"0{end}")
    assert orthobench("sweep", "adding", "--models", "rnn", *tiny_options).code == 0
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix.startswith(".db")) == ["named.db"]
    with closing(sqlite3.connect(tmp_path / "named.db")) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() == (1,)
    assert "rnn" in orthobench("ls").out


@pytest.mark.parametrize("end", ENDS)
def test_folders_and_names_have_no_blanks_around_them(orthobench, small_data, tmp_path, monkeypatch, end):
    monkeypatch.setenv("ORTHOBENCH_DATA", f"{small_data}{end}")
    assert data_folder() == small_data
    (row,) = [line for line in orthobench("data", "list").out.splitlines() if line.split()[:1] == ["mnist"]]
    assert row.split()[1] == "yes"
    monkeypatch.setenv("ORTHOBENCH_CACHE", f"{tmp_path}{end}")
    assert cache_folder() == tmp_path
    monkeypatch.setenv("ORTHOBENCH_MARCH", f"{library.usable_variants()[-1]}{end}")
    assert library.variant() == library.usable_variants()[-1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://host:5000{end}")
    assert str(parse_target("mlflow").location) == "http://host:5000"


def test_blank_variable_counts_as_none(orthobench, tiny_options, tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DB", " \r")
    assert orthobench("run", "adding", "rnn", *tiny_options).code == 0
    assert (tmp_path / "results.db").exists()


def test_path_that_is_given_keeps_its_blanks(orthobench, tiny_options, tmp_path):
    assert orthobench("run", "adding", "rnn", *tiny_options, "--db", "blank .db ").code == 0
    assert (tmp_path / "blank .db ").exists()
