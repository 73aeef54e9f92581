"""The database of commands without --db, and the protection of reference results."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import orthobench as ob
from orthobench.store import open_store
from orthobench.store.sqlite import OWN, default_database, is_protected, protect
from orthobench.system.location import DEFAULT_DATABASE


@pytest.fixture
def results(tmp_path, monkeypatch) -> Path:
    """An empty, protected results.db in the current folder."""
    monkeypatch.chdir(tmp_path)
    open_store("results.db", create=True).close()
    protect(Path("results.db"))
    return tmp_path / "results.db"


def test_results_db_is_the_default_without_protection(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert default_database(writes=True) == default_database(writes=False) == DEFAULT_DATABASE
    open_store("results.db", create=True).close()
    assert default_database(writes=True) == DEFAULT_DATABASE
    Path("results.db").write_text("no database")
    assert not is_protected(Path("results.db"))


def test_protected_database_is_read_until_another_exists(results):
    assert default_database(writes=False) == DEFAULT_DATABASE
    assert default_database(writes=True) == OWN
    open_store(OWN, create=True).close()
    assert default_database(writes=False) == OWN
    protect(results, False)
    assert default_database(writes=False) == default_database(writes=True) == DEFAULT_DATABASE


def test_runs_without_a_named_database_do_not_change_a_protected_one(orthobench, results, tiny_options):
    before = results.read_bytes()
    outcome = orthobench("run", "adding", "lstm", *tiny_options)
    assert outcome.code == 0, outcome.err
    assert outcome.err.splitlines()[0] == (
        "results.db is protected: this command uses runs.db, or the database that --db names"
    )
    assert results.read_bytes() == before
    assert "lstm" in orthobench("ls").out
    assert "lstm" not in orthobench("ls", "--db", "results.db").out


def test_named_database_is_written(orthobench, results, tiny_options):
    assert orthobench("run", "adding", "lstm", *tiny_options, "--db", "results.db").code == 0
    assert not Path(OWN.real).exists()
    assert "lstm" in orthobench("ls", "--db", "results.db").out


def test_python_api_has_the_same_default(results, tiny):
    run = ob.run("adding", "lstm", settings=tiny)
    with ob.open_results() as opened:
        assert list(opened.runs()["run"]) == [run.key]
    with ob.open_results("results.db") as opened:
        assert opened.runs().empty


def test_command_protects_and_unprotects(orthobench, results):
    assert orthobench("db", "protect", "--off").out == "results.db is no longer protected\n"
    assert "protected" not in orthobench("db", "info").out
    assert orthobench("db", "protect").out == "results.db is protected\n"
    assert ", protected" in orthobench("db", "info").out
    assert orthobench("db", "protect", "--db", "none.db").code == 2
    with closing(sqlite3.connect("other.db")) as other:
        other.execute("CREATE TABLE t (x)")
    assert orthobench("db", "protect", "--db", "other.db").code == 2
    assert not is_protected(Path("other.db"))


def test_shipped_results_are_protected(tmp_path):
    shipped = tmp_path / "results.db"
    shutil.copy(Path(__file__).parents[2] / "results.db", shipped)
    assert is_protected(shipped)
