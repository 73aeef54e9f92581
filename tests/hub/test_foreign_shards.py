"""Published runs are data of strangers: what no run of orthobench has is one line, and nothing is written."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from support.pages import add_run

from orthobench.hub import shards
from orthobench.settings import run_names
from orthobench.store import open_store

SETTINGS = {"sequence_length": "10", "hidden_size": "8"}
Files = dict[str, bytes]


@pytest.fixture
def published(orthobench) -> Files:
    """The files of a shard with two runs, by table."""
    with open_store("a.db", create=True) as store:
        for seed in range(2):
            add_run(store, "lstm", seed, SETTINGS)
    assert orthobench("publish", "--hub", "./pub", "a.db").code == 0
    return {path.parent.name: path.read_bytes() for path in Path("pub").glob("*/*.parquet")}


def write(files: Files, name: str | None = None) -> None:
    """Write a shard in place of the published one, by default with the name that its contents have."""
    for path in Path("pub").glob("*/*.parquet"):
        path.unlink()
    for table, content in files.items():
        shard = name or (shards._hash(files) if files.keys() == shards.COLUMNS.keys() else "0" * 32)
        (Path("pub") / table / f"{shard}.parquet").write_bytes(content)


def changed(
    content: bytes, change: Callable[[list[dict[str, Any]]], Any], metadata: dict[bytes, bytes] | None = None
) -> bytes:
    """Return a Parquet file whose rows `change` has changed in place."""
    table = pyarrow.parquet.read_table(io.BytesIO(content))
    rows = table.to_pylist()
    change(rows)
    schema = table.schema if metadata is None else table.schema.with_metadata(metadata)
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), file)
    return file.getvalue()


def refusal(orthobench) -> str:
    """Return the line with which both `merge` and `verify` refuse what is published."""
    merged = orthobench("merge", "./pub", "--db", "b.db")
    assert merged.code == 2, merged.out
    assert not Path("b.db").exists()
    lines = merged.err.splitlines()
    assert len(lines) == 1
    assert lines[0].isprintable()
    assert orthobench("verify", "0", "--db", "./pub").err == merged.err
    return lines[0]


def first(rows: list[dict[str, Any]], **values: Any) -> None:
    rows[0].update(values)


def spec(rows: list[dict[str, Any]], forge: bool = False, **values: Any) -> None:
    """Change the spec of the first run; unless it is forged, the columns follow."""
    new = json.loads(rows[0]["spec"]) | values
    rows[0]["spec"] = json.dumps(new)
    if not forge:
        rows[0].update(run_names(new), **{name: new[name] for name in ("task", "model", "seed")})


CHANGES: dict[str, tuple[str, Callable[[list[dict[str, Any]]], Any], str]] = {
    "key": ("runs", lambda rows: first(rows, key="0" * 16), "is forged: its key does not follow from its spec"),
    "path as key": ("runs", lambda rows: first(rows, key="../../victim"), "is forged"),
    "easier task": ("runs", lambda rows: spec(rows, forge=True, task_settings={}), "is forged: its key"),
    "other model": ("runs", lambda rows: first(rows, model="scornn"), "is forged: its model does not follow"),
    "version": ("runs", lambda rows: first(rows, model_version="9"), "is forged: its model_version"),
    "condition": ("runs", lambda rows: first(rows, condition="0" * 16), "is forged: its condition"),
    "spec with more": ("runs", lambda rows: spec(rows, forge=True, more=1), "has a spec with the entries"),
    "spec of text": ("runs", lambda rows: first(rows, spec='"text"'), "its spec is no JSON object"),
    "nested spec": ("runs", lambda rows: first(rows, spec="[" * 9000), "runs/"),
    "number in spec": ("runs", lambda rows: first(rows, spec='{"a": 1e999}'), "too large for a number"),
    "status": ("runs", lambda rows: first(rows, status="running"), "has no result"),
    "unknown status": ("runs", lambda rows: first(rows, status="won"), "'won' is not a valid Status"),
    "goal": ("runs", lambda rows: first(rows, seconds='{"train": "fast"}'), "not a number"),
    "formula": ("runs", lambda rows: spec(rows, model='=cmd|" /C calc"!A0'), "a spreadsheet would compute it"),
    "terminal": ("runs", lambda rows: spec(rows, model="lstm\x1b[2J"), "characters that control a terminal"),
    "terminal in settings": ("runs", lambda rows: spec(rows, training={"probes": ["\x07"]}), "control a terminal"),
    "long tag": ("runs", lambda rows: first(rows, tags=["x" * 301]), "is too long"),
    "path": (
        "runs",
        lambda rows: spec(rows, task_settings={"text": "/etc/passwd", "text_md5": "0" * 32}),
        "the setting text of run",
    ),
    "missing environment": ("runs", lambda rows: first(rows, environment="0" * 16), "has no row '0000000000000000'"),
    "environment": (
        "environments",
        lambda rows: first(rows, facts='{"cpu": "faster"}'),
        "is not the hash of its facts",
    ),
    "source": (
        "sources",
        lambda rows: rows.append({"digest": "0" * 64, "content": b"x"}),
        "not the hash of its content",
    ),
    "metric of no run": ("metrics", lambda rows: first(rows, run="0" * 16), "has no row '0000000000000000'"),
    "two values": ("metrics", lambda rows: first(rows, kind="nan"), "without a value"),
    "word": ("metrics", lambda rows: first(rows, value=None, kind="nought"), "'nought' is not nan, inf or -inf"),
    "infinite value": ("metrics", lambda rows: first(rows, value=float("inf")), "its value is inf"),
    "metric's name": ("metrics", lambda rows: first(rows, name="@x"), "a spreadsheet would compute it"),
    "same number twice": ("metrics", lambda rows: rows.append(dict(rows[0])), "IntegrityError"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_row_that_no_run_has_is_refused(orthobench, published, name):
    table, change, reason = CHANGES[name]
    write(published | {table: changed(published[table], change)})
    assert reason in refusal(orthobench)


def test_the_unchanged_rows_are_accepted(orthobench, published):
    """Because otherwise the refusals above could have another reason."""
    write({table: changed(content, lambda rows: None) for table, content in published.items()})
    assert orthobench("merge", "./pub", "--db", "b.db").code == 0


class Ran:
    """Creates a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran"),)


def test_a_changed_file_is_refused(orthobench, published):
    """A number is changed, and the file has the old name."""
    (path,) = Path("pub/metrics").iterdir()
    content = changed(published["metrics"], lambda rows: first(rows, value=0.0))
    write(published | {"metrics": content}, path.stem)
    assert "is not what its name says" in refusal(orthobench)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "ArrowInvalid"),
        (b"PAR1" + b"\xff" * 64 + b"PAR1", "runs/"),
        (pickle.dumps(Ran()), "ArrowInvalid"),
    ],
    ids=["empty", "noise", "pickle"],
)
def test_other_bytes_are_refused(orthobench, published, content, reason):
    write(published | {"runs": content})
    assert reason in refusal(orthobench)
    assert not Path("ran").exists()


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.99])
def test_a_file_that_was_cut_off_is_refused(orthobench, published, cut):
    content = published["metrics"]
    write(published | {"metrics": content[: int(cut * len(content))]})
    assert "metrics/" in refusal(orthobench)


def test_a_newer_format_names_the_fix(orthobench, published):
    newer = changed(published["runs"], lambda rows: None, {b"orthobench_format": b"2"})
    write(published | {"runs": newer})
    line = refusal(orthobench)
    assert "was written by a newer orthobench (format 2, this one reads 1): update it" in line
    assert "damaged" not in line


def test_a_table_of_another_program_is_refused(orthobench, published):
    write(published | {"runs": changed(published["runs"], lambda rows: None, {})})
    assert "was not written by orthobench" in refusal(orthobench)


@pytest.mark.parametrize("kind", ["missing", "more", "other type", "nullable"])
def test_other_columns_are_refused(orthobench, published, kind):
    table = pyarrow.parquet.read_table(io.BytesIO(published["metrics"]))
    schema = table.schema
    epoch = schema.get_field_index("epoch")
    if kind == "missing":
        table = table.drop_columns(["epoch"])
    elif kind == "more":
        table = table.append_column("epoch2", table["epoch"])
    elif kind == "other type":
        table = table.cast(schema.set(epoch, pyarrow.field("epoch", pyarrow.int32(), nullable=False)))
    else:
        table = table.cast(schema.set(epoch, pyarrow.field("epoch", pyarrow.int64())))
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file)
    write(published | {"metrics": file.getvalue()})
    assert "its columns differ from those of this format: epoch" in refusal(orthobench)


def test_a_missing_table_is_refused(orthobench, published):
    (path,) = Path("pub/traces").iterdir()
    path.unlink()
    assert f"it has no file traces/{path.name}" in refusal(orthobench)


@pytest.mark.parametrize("name", ["x.parquet", "train.pkl", "A" * 32 + ".parquet"])
def test_a_file_with_another_name_is_refused(orthobench, published, name):
    (Path("pub/runs") / name).write_bytes(published["runs"])
    assert "is not the name of a shard" in refusal(orthobench)


def test_a_file_that_is_too_large_is_not_read(orthobench, published, monkeypatch):
    monkeypatch.setattr("orthobench.hub.place.MOST_BYTES", len(published["runs"]) - 1)
    assert "more than" in refusal(orthobench)


def test_a_small_file_with_many_rows_is_refused(orthobench, published, monkeypatch):
    """Ten million equal rows take a few kilobytes."""
    monkeypatch.setattr(shards, "MOST_ROWS", 1000)
    write(published | {"metrics": changed(published["metrics"], lambda rows: rows.extend([rows[0]] * 1000))})
    assert "too many for a shard" in refusal(orthobench)


def test_what_no_reader_accepts_is_not_published(orthobench):
    with open_store("a.db", create=True) as store:
        add_run(store, "lstm", 0, SETTINGS, message="\x1b[2J", status="diverged")
    done = orthobench("publish", "--hub", "./pub", "a.db")
    assert done.code == 2
    assert "control a terminal" in done.err
    assert not Path("pub").exists()
