"""The views and queries give what the store itself reads."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.records import run_record

from orthobench.errors import UsageError
from orthobench.settings import merged_settings
from orthobench.store import MetricRow, Store, TraceRow, open_store
from orthobench.store.query import query
from orthobench.store.tables import Base
from orthobench.store.views import definitions

ROOT = Path(__file__).parents[2]
NORMS = [1.5, math.inf, 0.25]


def fill(store: Store) -> str:
    """Add a run with metrics, a trace and tags; return its key."""
    facts = {"cpu": "x", "accelerator": None, "commit": "c0ffee", "packages": {"orthobench": "0.1.0"}}
    run = store.start(run_record(baselines={"mse": 0.5}, metric="mse", seconds={"train": 2.5}), facts)
    rows = [MetricRow("test", "mse", 1, 7, 0.125), MetricRow("train", "loss", 1, 7, math.nan)]
    store.log(run.id, rows, [TraceRow("gradient_norm/h", 1, 7, NORMS)], {"iterations": 7})
    store.tag([run.key], ["b", "a"])
    return run.key


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.db"
    with open_store(path, create=True) as store:
        fill(store)
    return path


def records(place: str | Path, sql: str) -> list[dict[str, object]]:
    table = query(place, sql)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_view_of_runs_has_what_the_store_reads(where, tmp_path, request):
    place = str(tmp_path / "r.db") if where == "sqlite" else request.getfixturevalue("postgres")
    with open_store(place, create=True) as store:
        run = store.get(fill(store))
    (row,) = records(place, "SELECT * FROM runs_flat")
    same = set(row) & {column.name for column in Base.metadata.tables["run"].columns} - {"created_at", "updated_at"}
    assert len(same) == 19
    assert {name: row[name] for name in same} == {name: getattr(run, name) for name in same}
    settings = row["settings"] if isinstance(row["settings"], dict) else json.loads(str(row["settings"]))
    assert settings == {name: value for name, value in merged_settings(run.spec).items() if value is not None}
    assert (row["run"], row["tags"], row["baseline"], row["train_seconds"]) == (run.key, "a, b", 0.5, 2.5)
    assert (row["machine"], row["version"], row["git_commit"]) == ("x", "0.1.0", "c0ffee")
    metrics = records(place, "SELECT split, name, epoch, iteration, value, kind FROM metrics_flat ORDER BY split")
    assert [tuple(metric.values()) for metric in metrics] == [
        ("test", "mse", 1, 7, 0.125, None),
        ("train", "loss", 1, 7, None, "nan"),
    ]


def test_entries_of_vectors_are_rows(file):
    rows = records(file, "SELECT name, epoch, iteration, position, value FROM traces_flat")
    assert [tuple(row.values()) for row in rows] == [
        ("gradient_norm/h", 1, 7, position, value if math.isfinite(value) else None)
        for position, value in enumerate(NORMS)
    ]


def test_another_program_reads_the_views(file):
    with closing(sqlite3.connect(file)) as connection:
        for view in definitions("sqlite"):
            assert connection.execute(f"SELECT count(*) FROM {view}").fetchone()[0]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT absent FROM run", "no such column: absent"),
        ("DELETE FROM run", "attempt to write a readonly database"),
        ("CREATE TABLE x (a)", "attempt to write a readonly database"),
        ("ATTACH '{}' AS other", "not authorized"),
        ("PRAGMA query_only = OFF", "not authorized"),
        ("SELECT load_extension('x')", "not authorized|no such function"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("", "it returns no rows"),
    ],
)
def test_query_neither_writes_nor_reaches_another_file(sql, reason, file, tmp_path):
    before, other = file.read_bytes(), tmp_path / "other.db"
    with pytest.raises(UsageError, match=reason):
        query(file, sql.format(other))
    assert file.read_bytes() == before
    assert not other.exists()


def test_server_is_not_written(postgres):
    with open_store(postgres, create=True) as store:
        fill(store)
    for sql in ("DELETE FROM run", "SELECT absent FROM run", "SELECT 1 WHERE"):
        with pytest.raises(UsageError, match="this query cannot be answered"):
            query(postgres, sql)
    assert query(postgres, "SELECT model FROM runs_flat WHERE model LIKE '%'").rows


def test_views_of_a_foreign_file_are_not_used(file):
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("DROP VIEW runs_flat; CREATE VIEW runs_flat AS SELECT 'forged' AS run")
    assert records(file, "SELECT run FROM runs_flat")[0]["run"] != "forged"


def test_every_query_of_the_documentation_has_an_answer():
    queries = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/runs.md").read_text(), re.DOTALL)
    assert len(queries) == 2
    for sql in queries:
        assert query(ROOT / "results.db", sql).rows, sql


def test_documentation_names_every_table_and_every_column_of_the_views():
    text = (ROOT / "docs/runs.md").read_text()
    tables = text.partition("drawn from the tables")[2]
    assert [name for name in Base.metadata.tables if f"`{name}`" not in tables] == []
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    for view in (*definitions("sqlite"), "traces_flat"):
        names = query(ROOT / "results.db", f"SELECT * FROM {view} LIMIT 1").columns
        assert re.findall("`([a-z_]+)`", rows[view]) == [view, *names]
