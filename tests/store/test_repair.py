"""`orthobench db repair`: broken rows are repaired or removed, and all others stay as they are."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.records import run_record

import orthobench as ob
from orthobench.errors import DamagedError
from orthobench.metric import run_columns
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status, TraceRow, open_store

Rows = dict[str, dict[int, tuple[Any, ...]]]
FACTS = {"cpu": "x", "platform": "Linux", "cores": 2, "accelerator": None, "packages": {"torch": "2"}}
DERIVABLE = {
    "seed": "UPDATE run SET seed = 1.5 WHERE id = 2",
    "task": "UPDATE run SET task = X'ff' WHERE id = 2",
    "variant": "UPDATE run SET variant = 7.5, condition = X'00' WHERE id = 2",
    "key": "UPDATE run SET key = CAST(X'30ff31' AS TEXT) WHERE id = 2",
    "final value": "UPDATE run SET final_value = 'NaN' WHERE id = 2",
    "kind": "UPDATE metric SET kind = 'many' WHERE id = 3",
    "best value": "UPDATE run SET best_value = 'low', best_iteration = 'x' WHERE id = 2",
}
"""Damage after which the row is as it was before."""
LOST = {
    "message": ("UPDATE run SET message = X'ff' WHERE id = 2", {"run": 1}),
    "time": ("UPDATE run SET created_at = 'yesterday' WHERE id = 2", {"run": 1}),
    "seconds": ('UPDATE run SET seconds = \'{"train": "long"}\' WHERE id = 2', {"run": 1}),
    "declaration": ("UPDATE run SET metrics = '{\"mse\": 3}' WHERE id = 2", {"run": 1}),
    "baseline": ('UPDATE run SET baselines = \'{"mse": "low"}\' WHERE id = 2', {"run": 1}),
    "unit": ("UPDATE run SET metrics = json_set(metrics, '$.mse.unit', 7) WHERE id = 2", {"run": 1}),
    "packages": ("UPDATE environment SET facts = json_set(facts, '$.packages', json('[]'))", {"environment": 1}),
    "commit": (
        "UPDATE environment SET facts = json_set(facts, '$.commit', json('{}'))",
        {"environment": 1},
    ),
    "environment": ("UPDATE environment SET facts = '7' WHERE id = 1", {"environment": 1}),
    "NaN": ("UPDATE metric SET value = 'nan' WHERE id = 3", {"metric": 1}),
    "missing environment": ("UPDATE run SET environment_id = 99 WHERE id = 2", {"run": 1}),
}
"""Damage after which the row is readable, and the number of rows that changed, by table."""
RUN_2 = {"run": 1, "metric": 5, "trace": 2, "tag": 1}
REMOVED = {
    "seed of the spec": ("UPDATE run SET seed = 1.5, spec = json_set(spec, '$.seed', 1.5) WHERE id = 2", RUN_2),
    "status": ("UPDATE run SET status = 'finishee' WHERE id = 2", RUN_2),
    "no iterations": ("UPDATE run SET iterations_per_epoch = 0 WHERE id = 2", RUN_2),
    "spec": ("UPDATE run SET spec = '[]' WHERE id = 2", RUN_2),
    "deep spec": (f"UPDATE run SET spec = '{'[' * 60_000}{']' * 60_000}' WHERE id = 2", RUN_2),
    "levels": (f"UPDATE run SET spec = json_set(spec, '$.x', json('{'[' * 60}{']' * 60}')) WHERE id = 2", RUN_2),
    "metric": ("UPDATE metric SET value = 'low' WHERE id IN (3, 7)", {"metric": 2}),
    "trace": ("UPDATE trace SET vectors = X'0102' WHERE id = 1", {"trace": 1}),
    "cut trace": ("UPDATE trace SET vectors = substr(vectors, 1, length(vectors) - 4) WHERE id = 1", {"trace": 1}),
    "series": ("UPDATE series SET name = CAST(X'6dff' AS TEXT)", {"series": 1, "metric": 15}),
    "missing series": ("UPDATE metric SET series_id = 9 WHERE id = 3", {"metric": 1}),
    "tag": ("UPDATE tag SET name = CAST(X'6dff' AS TEXT) WHERE run_id = 1", {"tag": 1}),
    "missing run": ("DELETE FROM run WHERE id = 2", RUN_2),
    "final value and its row": (
        "UPDATE run SET final_value = 'low' WHERE id = 2; UPDATE metric SET value = 'low' WHERE run_id = 2",
        RUN_2,
    ),
}
"""Damage after which the row is gone, and the number of rows that are gone, by table."""
NOT_LISTED = {
    *("seconds", "declaration", "environment", "missing environment", "baseline", "unit", "packages", "commit"),
    *("kind", "NaN", "metric", "trace", "cut trace", "series", "missing series", "missing run"),
}
"""Damage to what `ls` does not read: columns of a run that it does not show, and rows of other tables."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A database of three runs with rows."""
    path = tmp_path_factory.mktemp("sound") / "sound.db"
    with open_store(str(path), create=True) as store:
        for seed in range(3):
            resolved = resolve(Catalog(), "adding", "rnn", {"sequence_length": 10, "hidden_size": 8}, seed=seed)
            run = store.start(run_record(resolved.spec, **run_columns(resolved.task_class.metrics)), FACTS)
            tests = [0.5, 0.2, 0.1, 0.3, 0.4]
            rows = [MetricRow("test", "mse", i, i, value) for i, value in enumerate(tests)]
            ended = {"status": Status.FINISHED, "final_value": 0.4, "best_value": 0.1, "best_iteration": 2}
            ended |= {"message": "a note", "seconds": {"train": 2.0}}
            store.log(run.id, rows, [TraceRow("g", 0, i, [0.5] * 3) for i in range(2)], ended)
            store.tag([run.key], ["t"])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


@pytest.fixture
def damage(sound, tmp_path, monkeypatch):
    """Return the function that copies the sound database to results.db and damages it."""
    monkeypatch.chdir(tmp_path)

    def inflict(statements: str) -> Path:
        path = tmp_path / "results.db"
        shutil.copy(sound, path)
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(f"PRAGMA foreign_keys = OFF; {statements}")
        return path

    return inflict


def rows_of(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        names = [row[0].decode() for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: {row[0]: row for row in connection.execute(f'SELECT rowid, * FROM "{name}"')} for name in names}


def differences(before: Rows, after: Rows) -> tuple[dict[str, int], dict[str, int]]:
    """Return the numbers of the rows that are gone and of those that changed, by table."""
    gone = {name: len(rows.keys() - after[name].keys()) for name, rows in before.items()}
    changed = {
        name: sum(row != after[name].get(number, row) for number, row in rows.items()) for name, rows in before.items()
    }
    return ({name: count for name, count in counts.items() if count} for counts in (gone, changed))  # type: ignore[return-value]


def check_repair(orthobench, path: Path) -> Rows:
    """Repair a database, and check that a dry run foretells it and a second one does nothing; return its rows."""
    broken = path.read_bytes()
    foretold = orthobench("db", "repair", "--dry-run")
    assert path.read_bytes() == broken
    assert [file.name for file in path.parent.glob("results.db.backup-*")] == []
    done = orthobench("db", "repair")
    assert (foretold.code, done.code) == (0, 0), done.err
    assert done.out.splitlines()[:-1] == foretold.out.splitlines()[:-1]
    (copy,) = path.parent.glob("results.db.backup-*")
    assert rows_of(copy).keys() == rows_of(path).keys()
    assert f"{copy.name} is the backup" in done.out
    assert orthobench("db", "repair").out == "results.db has no broken rows: nothing is changed\n"
    assert orthobench("db", "info").code == 0
    return rows_of(path)


@pytest.mark.parametrize("name", DERIVABLE)
def test_derivable_value_is_restored(orthobench, damage, sound, name):
    path = damage(DERIVABLE[name])
    assert rows_of(path) != rows_of(sound)
    assert check_repair(orthobench, path) == rows_of(sound)


@pytest.mark.parametrize("name", LOST)
def test_value_irrelevant_to_the_result_may_be_lost(orthobench, damage, sound, name):
    statement, expected = LOST[name]
    gone, changed = differences(rows_of(sound), check_repair(orthobench, damage(statement)))
    assert (gone, changed) == ({}, expected)
    assert len(ob.open_results().runs()) == 3


@pytest.mark.parametrize("name", REMOVED)
def test_other_broken_rows_are_removed_with_their_dependents(orthobench, damage, sound, name):
    statement, expected = REMOVED[name]
    gone, changed = differences(rows_of(sound), check_repair(orthobench, damage(statement)))
    assert (gone, changed) == (expected, {})


@pytest.mark.parametrize(
    ("name", "warnings"), [(name, name not in NOT_LISTED) for name in [*DERIVABLE, *LOST, *REMOVED]]
)
def test_every_other_row_is_read_before_the_repair(orthobench, damage, caplog, name, warnings):
    """One warning of a table that `ls` reads names the rows and the fix; the runs that are not broken are listed."""
    damage(DERIVABLE[name] if name in DERIVABLE else (LOST | REMOVED)[name][0])
    done = orthobench("ls", "--json")
    assert done.code == 0, done.err
    assert done.out.count('"seed": 0') == done.out.count('"seed": 2') == 1
    assert len(caplog.messages) == warnings
    assert all("`orthobench db repair --db results.db` repairs or removes them" in line for line in caplog.messages)


def test_file_that_sqlite_finds_damaged_is_not_repaired(orthobench, damage):
    path = damage("UPDATE run SET seed = 1.5 WHERE id = 2")
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 4] = bytes(4096)
    path.write_bytes(content)
    done = orthobench("db", "repair")
    assert (done.code, "; restore a backup\n" in done.err) == (2, True)
    assert path.read_bytes() == content
    with pytest.raises(DamagedError, match="restore a backup"):
        ob.repair("results.db")


def test_broken_run_with_the_same_key_is_refused_with_the_fix(orthobench, damage, sound):
    """The row is in the way of the run that would be stored."""
    damage("UPDATE run SET iterations_per_epoch = 0 WHERE id = 1")
    command = ("run", "adding", "rnn", "-s", "sequence_length=10", "-s", "hidden_size=8")
    done = orthobench(*command)
    assert done.code == 2
    assert "0 iterations per epoch; `orthobench db repair --db results.db` repairs or removes them\n" in done.err


def test_api_returns_the_rows_and_the_backup(damage):
    damage("UPDATE run SET status = 'x' WHERE id = 2")
    repaired = ob.repair()
    assert [(row.reason, row.changes, row.followers) for row in repaired.rows] == [
        ("'x' is not a valid Status", None, 8)
    ]
    assert repaired.copy is not None
    assert repaired.copy.exists()
