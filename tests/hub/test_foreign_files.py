"""Published runs are data of strangers: what no run of orthobench has is one line, and nothing is written."""

from __future__ import annotations

import hashlib
import json
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.pages import add_run

from orthobench.settings import run_names
from orthobench.store import WeightsRow, open_store
from orthobench.system.location import Location

SETTINGS = {"sequence_length": "10", "hidden_size": "8"}


@pytest.fixture
def published(orthobench) -> Path:
    """A published file with two runs."""
    with open_store("a.db", create=True) as store:
        for seed in range(2):
            add_run(store, "lstm", seed, SETTINGS)
        store.add_benchmark("bench", {"seconds": 0.1}, {"cpu": "other"})
    assert orthobench("publish", "--hub", "./pub", "a.db").code == 0
    (file,) = Path("pub/runs").iterdir()
    return file


def write(file: Path, content: bytes) -> Path:
    """Replace a published file by one with other content, and the name that this has."""
    file.unlink()
    file = file.with_name(f"{hashlib.sha256(content).hexdigest()}.db")
    file.write_bytes(content)
    return file


def change(file: Path, *statements: str) -> Path:
    """Change the tables of a published file, and give it the name that its content has."""
    copy = Path("changed.db")
    copy.write_bytes(file.read_bytes())
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            database.execute(statement)
    return write(file, copy.read_bytes())


def refusal(orthobench) -> str:
    """Return the line with which both `merge` and `verify` refuse what is published."""
    merged = orthobench("merge", "./pub", "--db", "b.db")
    assert merged.code == 2, merged.out
    assert not Path("b.db").exists()
    lines = merged.err.splitlines()
    assert len(lines) == 1
    assert lines[0].isprintable()
    assert "/orthobench-" not in lines[0], "the path of the temporary copy"
    assert orthobench("verify", "0", "--db", "./pub").err == merged.err
    return str(lines[0])


CHANGES: dict[str, tuple[str, str]] = {
    "key": (
        "UPDATE run SET key = '0000000000000000' WHERE id = 1",
        "its key '0000000000000000' does not follow from its spec",
    ),
    "path as key": ("UPDATE run SET key = '../../victim' WHERE id = 1", "is not 16 hexadecimal digits"),
    "easier task": (
        "UPDATE run SET spec = json_set(spec, '$.task_settings', json('{}'))",
        "does not follow from its spec",
    ),
    "other model": ("UPDATE run SET model = 'scornn'", "its model 'scornn' does not follow from its spec"),
    "condition": ("UPDATE run SET condition = '0000000000000000'", "does not follow from its spec"),
    "spec of text": ("UPDATE run SET spec = '\"text\"'", "is not a JSON object"),
    "nested spec": (f"UPDATE run SET spec = '{'[' * 9000}'", "runs/"),
    "number in spec": ("UPDATE run SET spec = '{\"a\": 1e999}'", "too large for a number"),
    "unknown status": ("UPDATE run SET status = 'won'", "'won' is not a valid Status"),
    "seconds": ('UPDATE run SET seconds = \'{"train": "fast"}\'', "not a number"),
    "result": ("UPDATE run SET final_value = 0, best_value = 0", "and its last test"),
    "missing environment": ("DELETE FROM environment", "its environment is missing"),
    "environment": ("UPDATE environment SET facts = '7'", "is not a JSON object"),
    "source": ("INSERT INTO source (digest, content) VALUES ('0', X'00')", "it is not the file with the SHA-256 0"),
    "metric of no run": ("UPDATE metric SET run_id = 99 WHERE id = 1", "its run is missing"),
    "text as value": ("UPDATE metric SET value = 'low' WHERE id = 1", "'low' is not a number"),
    "word": ("UPDATE metric SET value = NULL, kind = 'nought' WHERE id = 1", "'nought' is not nan, inf or -inf"),
    "vectors": ("UPDATE trace SET vectors = X'0102' WHERE id = 1", "its vectors cannot be read"),
    "no table": ("DROP TABLE trace", "it has no table trace"),
    "newer": ("UPDATE orthobench_version SET version_num = '9999'", "was written by a newer orthobench (schema 9999"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_row_that_no_run_has_is_refused(orthobench, published, name):
    statement, reason = CHANGES[name]
    change(published, statement)
    line = refusal(orthobench)
    assert reason in line
    assert "./pub" in line


def test_the_unchanged_rows_are_accepted(orthobench, published):
    """Because otherwise the refusals above could have another reason."""
    change(published)
    assert orthobench("merge", "./pub", "--db", "b.db").code == 0


@pytest.mark.parametrize("kind", ["VIEW run AS SELECT * FROM old", "VIRTUAL TABLE run USING fts5(key, spec)"])
def test_what_only_looks_like_a_table_is_not_read(orthobench, published, kind):
    with closing(sqlite3.connect(published)) as database:
        views = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
    drops = [f"DROP VIEW {name}" for name in views]
    change(published, *drops, "ALTER TABLE run RENAME TO old", f"CREATE {kind}")
    assert "its run is a v" in refusal(orthobench)


def test_names_that_control_a_terminal_are_refused(orthobench, published):
    with closing(sqlite3.connect(published)) as database:
        ((spec,),) = database.execute("SELECT spec FROM run WHERE id = 1")
    forged: dict[str, Any] = json.loads(spec) | {"model": "lstm\x1b[2J"}
    columns = {**run_names(forged), "model": forged["model"], "spec": json.dumps(forged)}
    values = ", ".join(f"{name} = '{value}'" for name, value in columns.items())
    change(published, f"UPDATE run SET {values} WHERE id = 1")
    assert "has characters that control a terminal" in refusal(orthobench)


def test_a_path_in_a_setting_is_refused(orthobench, published):
    with closing(sqlite3.connect(published)) as database:
        ((spec,),) = database.execute("SELECT spec FROM run WHERE id = 1")
    forged = json.loads(spec) | {"task_settings": {"text": "/etc/passwd", "text_md5": "0" * 32}}
    columns = {**run_names(forged), "spec": json.dumps(forged)}
    values = ", ".join(f"{name} = '{value}'" for name, value in columns.items())
    change(published, f"UPDATE run SET {values} WHERE id = 1")
    assert "is a path of another machine" in refusal(orthobench)


def test_other_texts_are_shown_without_control_characters(orthobench, published):
    change(published, "UPDATE run SET message = 'a' || char(27) || '[2Jb'", "UPDATE series SET name = 'x' || char(7)")
    assert orthobench("merge", "./pub", "--db", "b.db").code == 0
    (run, _) = json.loads(orthobench("ls", "--json", "--db", "b.db").out)
    shown = orthobench("show", run["run"], "--db", "b.db").out
    assert "a?[2Jb" in shown
    assert not {"\x1b", "\x07"} & set(shown)


def test_triggers_benchmarks_and_records_of_weights_stay_behind(orthobench, published):
    with open_store(published) as store:
        kept = WeightsRow("last", 2, Location("/etc/passwd"), "0" * 64, 10)
        store.log(store.runs()[0].id, [], [], {}, weights=[kept])
        store.add_benchmark("bench", {"seconds": 0.1}, {"cpu": "other"})
    change(published, "CREATE TRIGGER evil AFTER INSERT ON metric BEGIN DELETE FROM run; END")
    assert orthobench("merge", "./pub", "--db", "b.db").code == 0
    with open_store("b.db") as store:
        assert len(store.runs()) == 2
        assert (store.weights(), store.benchmarks()) == ([], [])


class Ran:
    """Creates a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran"),)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "holds no orthobench runs"),
        (b"SQLite format 3\0" + b"\xff" * 4000, "runs/"),
        (pickle.dumps(Ran()), "is not a database"),
    ],
    ids=["empty", "noise", "pickle"],
)
def test_other_bytes_are_refused(orthobench, published, content, reason):
    write(published, content)
    assert reason in refusal(orthobench)
    assert not Path("ran").exists()


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.99])
def test_a_file_that_was_cut_off_is_refused(orthobench, published, cut):
    content = published.read_bytes()
    write(published, content[: int(cut * len(content))])
    assert "./pub is damaged: runs/" in refusal(orthobench)


def test_a_changed_file_is_refused(orthobench, published):
    """A number is changed, and the file has the old name."""
    changed = change(published, "UPDATE metric SET value = 0 WHERE id = 1")
    changed.rename(published)
    assert "is not what its name says" in refusal(orthobench)


@pytest.mark.parametrize("name", ["x.db", "train.pkl", "A" * 64 + ".db"])
def test_a_file_with_another_name_is_refused(orthobench, published, name):
    published.with_name(name).write_bytes(published.read_bytes())
    assert "is not the name of a file of runs" in refusal(orthobench)


def test_a_file_that_is_too_large_is_neither_read_nor_published(orthobench, published, monkeypatch):
    size = len(published.read_bytes())
    monkeypatch.setattr("orthobench.hub.place.MOST_BYTES", size - 1)
    assert "more than" in refusal(orthobench)
    monkeypatch.setattr("orthobench.hub.publish.MOST_BYTES", size - 1)
    done = orthobench("publish", "--hub", "./other", "a.db")
    assert (done.code, "publish fewer at a time" in done.err) == (2, True)
    assert not Path("other").exists()


def test_a_database_with_a_broken_row_is_not_published(orthobench, published):
    with closing(sqlite3.connect("a.db")) as database, database:
        database.execute("UPDATE metric SET value = 'low' WHERE id = 1")
    done = orthobench("publish", "--hub", "./other", "a.db")
    assert (done.code, "'low' is not a number" in done.err) == (2, True)
    assert not Path("other").exists()
