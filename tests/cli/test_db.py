"""`orthobench db`, from the command line."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.records import run_record
from support.schemas import NEWER, OLDER, add_revision, write_older

from orthobench.store import MetricRow, Status, TraceRow, WeightsRow, open_store
from orthobench.system.location import Location
from orthobench.training.checkpoint import CheckpointFolder

SPEC = {"task_settings": {"train_size": 20}, "model_settings": {"hidden_size": 4}, "training": {"clip_norm": None}}
SPEC |= {"task": "adding", "model": "rnn", "task_version": "1", "model_version": "1"}
FINISHED, CUT_OFF = (run_record(spec=SPEC, seed=seed)["key"] for seed in range(2))
MACHINE = {"platform": "Linux", "cpu": "x86_64", "cpu_model": "6/1/2", "cores": 2, "memory": 1000, "accelerator": None}
AT_ITS_END = {"status": Status.FINISHED, "final_value": 0.7, "best_value": 0.5, "best_iteration": 0}
"""The columns that a run with the numbers of the one that was cut off has at its end."""


@pytest.fixture
def database(tmp_path) -> Path:
    """A finished run with three numbers and a vector, one that was cut off with two numbers, and a benchmark."""
    path = tmp_path / "results.db"
    with open_store(str(path), create=True) as store:
        for seed, values in enumerate(([0.25, 0.1, 1 / 3], [0.5, 0.7])):
            run = store.start(run_record(spec=SPEC, seed=seed), MACHINE)
            rows = [MetricRow("test", "mse", i, i, value) for i, value in enumerate(values)]
            store.log(run.id, rows, [], {"iterations": len(values) - 1})
        run = store.get(FINISHED)
        done = {"status": Status.FINISHED, "final_value": 1 / 3, "best_value": 0.1, "best_iteration": 1}
        store.log(run.id, [], [TraceRow("g", 0, 0, [1.0, 2.0])], done)
        store.add_benchmark("recurrence", {}, MACHINE)
    return path


@pytest.fixture
def old(tmp_path, monkeypatch) -> Path:
    """A database of an older schema with a run."""
    path = tmp_path / "old.db"
    write_older(path)
    add_revision(tmp_path, monkeypatch.setattr)
    return path


def test_info_lists_the_contents(orthobench, database, tmp_path):
    shown = orthobench("db", "info")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0].startswith("results.db: sqlite ")
    assert lines[1] == f"size: {database.stat().st_size / 1000:.1f} kB"
    assert lines[2] == "runs: 2 (1 finished, 1 interrupted)"
    assert "5 metric" in lines[3]
    assert lines[4:] == ["machine: x86_64 (6/1/2), 2 cores, Linux: 2 runs", "integrity: ok"]
    with CheckpointFolder(tmp_path / "results.db.checkpoints", CUT_OFF).lock():
        assert json.loads(orthobench("db", "info", "--json").out)["runs"] == {"finished": 1, "running": 1}


def test_info_does_not_upgrade(orthobench, old):
    before = old.read_bytes()
    shown = orthobench("db", "info", "--db", "old.db")
    assert f"schema {OLDER}, older than this program's: `orthobench db upgrade`" in shown.out
    assert old.read_bytes() == before
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("UPDATE orthobench_version SET version_num = '9999'")
        connection.commit()
    assert "schema 9999, newer than this program's" in orthobench("db", "info", "--db", "old.db").out
    for command in (["upgrade"], ["export", "out"], ["merge", "old.db", "--db", "new.db"]):
        refused = orthobench("db", *command, *(["--db", "old.db"] if "--db" not in command else []))
        assert (refused.code, "newer orthobench" in refused.err) == (2, True)


def test_info_reads_a_schema_that_lacks_a_column_of_runs(orthobench, database, tmp_path, monkeypatch):
    """A run with weights, whose key is read, in a file from before the column."""
    with open_store(str(database)) as store:
        kept = WeightsRow("last", 2, Location.of("here.safetensors"), "0" * 64, 10)
        store.log(store.get(FINISHED).id, [], [], {}, weights=[kept])
    with closing(sqlite3.connect(database)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'").fetchall():
            connection.execute(f"DROP VIEW {name}")
        connection.execute("ALTER TABLE run DROP COLUMN peak_memory")
        connection.commit()
    add_revision(tmp_path, monkeypatch.setattr)
    shown = orthobench("db", "info")
    assert (shown.code, shown.err) == (0, "")
    assert f"schema {OLDER}, older than this program's" in shown.out
    assert "missing: 1 file" in shown.out


def test_damage_is_reported(orthobench, database):
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DELETE FROM environment")
        connection.commit()
    shown = orthobench("db", "info")
    assert shown.code == 1
    last = shown.out.splitlines()[-1]
    assert last.startswith("integrity: row 1 of table benchmark: its environment is missing; row 1 of table run: ")
    assert last.count(": its environment is missing") == 3  # a benchmark and two runs


def test_rows_of_a_large_database_are_read_on_demand(orthobench, database, monkeypatch):
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE metric SET value = 'text' WHERE id = 1")
    monkeypatch.setattr("orthobench.store.describe.MOST_ROWS", 4)
    shown = orthobench("db", "info")
    assert shown.out.endswith("integrity: ok, without the rows of metric and trace: --check reads them\n")
    assert shown.code == 0
    assert json.loads(orthobench("db", "info", "--json").out)["unread"] == ["metric", "trace"]
    checked = orthobench("db", "info", "--check")
    assert "integrity: row 1 of table metric: 'text' is not a number\n" in checked.out
    assert checked.code == 1
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE run SET status = 'text' WHERE id = 1")
    assert orthobench("db", "info").code == 1  # the runs themselves are always read


def test_info_shows_the_size_of_checkpoints(orthobench, database, tmp_path):
    assert "checkpoints" not in orthobench("db", "info").out
    folder = tmp_path / "results.db.checkpoints" / CUT_OFF
    folder.mkdir(parents=True)
    for name, count in (("checkpoint.pt", 2000), ("checkpoint.before.pt", 1500)):
        (folder / name).write_bytes(bytes(count))
    assert f"checkpoints: 1 run, 3.5 kB, in {folder.parent}\n" in orthobench("db", "info").out
    assert json.loads(orthobench("db", "info", "--json").out)["checkpoints"] == {"runs": 1, "bytes": 3500}


def test_upgrade_converts_the_schema(orthobench, old):
    shown = orthobench("db", "upgrade", "--db", "old.db")
    assert shown.out == f"old.db: schema {OLDER} -> {NEWER}; the old file is kept as old.db.backup-{OLDER}\n"
    assert old.with_name(f"old.db.backup-{OLDER}").exists()
    assert orthobench("db", "upgrade", "--db", "old.db").out == f"old.db has schema {NEWER} already\n"
    assert orthobench("db", "upgrade", "--db", "none.db").code == 2


def test_backup_overwrites_nothing(orthobench, database, tmp_path):
    assert orthobench("db", "backup", "copy.db").out == "results.db is copied to copy.db\n"
    with closing(sqlite3.connect(database)) as original, closing(sqlite3.connect(tmp_path / "copy.db")) as other:
        assert list(original.iterdump()) == list(other.iterdump())
    before = (tmp_path / "copy.db").read_bytes()
    refused = orthobench("db", "backup", "copy.db")
    assert (refused.code, refused.err) == (2, "error: copy.db exists already: name a new file\n")
    assert (tmp_path / "copy.db").read_bytes() == before
    assert orthobench("db", "backup", "nowhere/copy.db").code == 2
    assert orthobench("db", "backup", "other.db", "--db", "none.db").code == 2


@pytest.fixture
def newer(database):
    """A database with the schema of a newer version."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE orthobench_version SET version_num = '9999'")
        connection.commit()
    return database


def test_database_of_a_newer_version_is_copied_without_its_weights(orthobench, newer, tmp_path):
    done = orthobench("db", "backup", "copy.db")
    assert (done.code, done.out, done.err) == (0, "results.db is copied to copy.db\n", "")
    refused = orthobench("db", "backup", "other.db", "--weights")
    assert refused.code == 2
    assert refused.err.endswith(": use that version of orthobench\n")
    assert not (tmp_path / "other.db").exists()


@pytest.mark.usefixtures("newer")
def test_doctor_says_what_to_do_with_a_database_of_a_newer_version(orthobench):
    finding = orthobench("doctor").out.partition("! examination: ")[2]
    assert "was written by a newer orthobench (schema 9999" in finding.splitlines()[0]
    assert finding.splitlines()[1].strip() == "-> use that version of orthobench"


def test_merge_adds_the_other_runs(orthobench, database, old, tmp_path):
    again = tmp_path / "again.db"
    shutil.copy(database, again)
    with open_store(str(again)) as store:
        run = store.get(CUT_OFF)
        store.update(run.id, AT_ITS_END)
    shown = orthobench("db", "merge", "old.db", "again.db")
    assert shown.code == 0
    assert shown.out.splitlines() == [
        "old.db: 1 run added to results.db, 0 replaced by one that got further, 0 known; rows: 1 environment, "
        "2 series, 33 metric, 2 trace",
        "again.db: 0 runs added to results.db, 1 replaced by one that got further, 1 known; rows: 2 metric",
    ]
    with open_store(str(database)) as store:
        assert [run.status for run in store.runs()] == [Status.FINISHED] * 3
    assert orthobench("db", "merge", "old.db", "again.db", "--db", "new.db").code == 0
    with open_store(str(tmp_path / "new.db")) as store:
        assert len(store.runs()) == 3
    for wrong in ("results.db", "./results.db", "none.db"):
        assert orthobench("db", "merge", wrong).code == 2
    assert orthobench("db", "merge", "old.db", "none.db", "--db", "newer.db").code == 2
    assert not (tmp_path / "newer.db").exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("final_value = 0", f"its final value is 0.0, and its last test {1 / 3}"),
        ("best_value = 0", "its best value is 0.0, and its test at that iteration 0.1"),
        ("best_value = 0.25, best_iteration = 0", "its best value is 0.25, and its best test 0.1"),
        ("iterations = 1", "it has 1 iterations, and its last metric is at 2"),
    ],
)
def test_run_that_contradicts_its_curve_is_reported_and_not_merged(orthobench, database, change, problem):
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"UPDATE run SET {change} WHERE key = '{FINISHED}'")
        connection.commit()
    shown = orthobench("db", "info", "--check")
    assert (shown.code, shown.out.splitlines()[-1]) == (1, f"integrity: run {FINISHED}: {problem}")
    refused = orthobench("merge", "results.db", "--db", "new.db")
    assert (refused.code, problem in refused.err) == (2, True)
    assert not Path("new.db").exists()


def test_merge_keeps_a_run_in_training(orthobench, database, tmp_path):
    again = tmp_path / "again.db"
    shutil.copy(database, again)
    with open_store(str(again)) as store:
        store.update(store.get(CUT_OFF).id, AT_ITS_END)
    with CheckpointFolder(tmp_path / "results.db.checkpoints", CUT_OFF).lock():
        assert "0 replaced" in orthobench("db", "merge", "again.db").out
    assert "1 replaced" in orthobench("db", "merge", "again.db").out


def test_export_leaves_no_vectors_of_other_runs(orthobench, database, tmp_path):
    assert orthobench("db", "export", "out", "--vectors").code == 0
    before = sorted((path.name, path.read_bytes()) for path in (tmp_path / "out").iterdir())
    outcome = orthobench("db", "export", "out", "--where", f"key={FINISHED}")
    assert outcome.code == 2
    assert "out/vectors.csv is of an earlier export" in outcome.err
    assert sorted((path.name, path.read_bytes()) for path in (tmp_path / "out").iterdir()) == before


def test_export_writes_runs_and_metrics(orthobench, database, tmp_path):
    with open_store(str(database)) as store:
        (first, second) = store.runs()
        metrics = store.metrics([first.id])
        store.rewind(second.id, -1, "t")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO metric VALUES (NULL, 2, 1, 0, 9, NULL, '-inf')")
        connection.commit()
    assert (
        orthobench("db", "export", "out").out
        == "2 runs in out/runs.csv, out/segments.csv, out/metrics.csv, out/weights.csv\n"
    )
    runs = list(csv.DictReader((tmp_path / "out" / "runs.csv").read_text().splitlines()))
    assert [run["key"] for run in runs] == [FINISHED, CUT_OFF]
    assert [run["status"] for run in runs] == ["finished", "interrupted"]  # no process trains the second one
    assert runs[0]["setting_hidden_size"] == "4"
    assert float(runs[0]["baseline_mse"]) == first.baselines["mse"]
    assert all(name.isidentifier() for name in runs[0])
    assert float(runs[0]["final_value"]) == first.final_value
    facts = {f"environment_{name}": value for name, value in first.environment.facts.items()}
    for name, value in facts.items():
        assert runs[0][name] == ("" if value is None else value if isinstance(value, str) else json.dumps(value))
    segments = list(csv.DictReader((tmp_path / "out" / "segments.csv").read_text().splitlines()))
    assert [(row["run"], row["iteration"]) for row in segments] == [(CUT_OFF, "0")]
    assert segments[0]["environment_cpu"] == second.environment.facts["cpu"]
    metric_rows = list(csv.DictReader((tmp_path / "out" / "metrics.csv").read_text().splitlines()))
    assert [(m["run"], m["split"], m["name"], int(m["iteration"]), float(m["value"])) for m in metric_rows[:-1]] == [
        (FINISHED, m.split, m.name, m.iteration, m.value) for m in metrics
    ]
    assert (metric_rows[-1]["run"], metric_rows[-1]["value"], metric_rows[-1]["kind"]) == (CUT_OFF, "-inf", "-inf")

    assert orthobench("db", "export", "out", "--format", "json").code == 0
    strict = json.loads((tmp_path / "out" / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert [m["value"] for m in strict] == [*(m.value for m in metrics), None]
    assert strict[-1]["kind"] == "-inf"
    assert [m["kind"] for m in strict[:-1]] == [None] * len(metrics)
    assert len(json.loads((tmp_path / "out" / "runs.json").read_text())) == 2

    refused = orthobench("db", "export", "none", "--model", "lstm")
    assert (refused.code, refused.err) == (
        2,
        "error: no run has model=lstm; runs have model rnn\n",
    )
    assert not (tmp_path / "none").exists()
    assert not list(tmp_path.rglob("*.part"))


def test_parquet_without_its_library_names_the_extra(orthobench, database, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "fastparquet", None)
    refused = orthobench("db", "export", "out", "--format", "parquet")
    assert refused.code == 2
    assert refused.err == "error: Parquet needs pyarrow: `pip install pyarrow`, or write csv or json instead\n"


def test_parquet_export_equals_the_database(orthobench, database, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    assert orthobench("db", "export", "out", "--format", "parquet").code == 0
    frame = pandas.read_parquet(tmp_path / "out" / "metrics.parquet")
    with open_store(str(database)) as store:
        assert frame["value"].tolist() == [m.value for m in store.metrics([run.id for run in store.runs()])]


def test_vectors_are_exported_on_request(orthobench, database, tmp_path):
    with open_store(str(database)) as store:
        traces = store.traces([run.id for run in store.runs()])
    assert orthobench("db", "export", "out").code == 0
    assert not (tmp_path / "out" / "vectors.csv").exists()
    assert orthobench("db", "export", "out", "--vectors").code == 0
    rows = list(csv.DictReader((tmp_path / "out" / "vectors.csv").read_text().splitlines()))
    assert [float(row["value"]) for row in rows] == [value for trace in traces for value in trace.values]
    assert [int(row["position"]) for row in rows] == [step for trace in traces for step in range(len(trace.values))]
    assert {(row["name"], int(row["iteration"])) for row in rows} == {(each.name, each.iteration) for each in traces}


def test_sqlite_export_has_all_tables_in_one_file(orthobench, database, tmp_path):
    assert orthobench("db", "export", "out", "--format", "sqlite", "--vectors").out == "2 runs in out/tables.sqlite\n"
    assert orthobench("db", "export", "csv", "--vectors").code == 0
    with closing(sqlite3.connect(tmp_path / "out" / "tables.sqlite")) as connection:
        for name in ("runs", "segments", "metrics", "weights", "vectors"):
            cursor = connection.execute(f"SELECT * FROM {name}")
            lines = list(csv.reader((tmp_path / "csv" / f"{name}.csv").read_text().splitlines()))
            assert [column for column, *_ in cursor.description] == lines[0]
            assert len(cursor.fetchall()) == len(lines) - 1
    (tmp_path / "out" / "tables.sqlite").write_text("mine")
    assert orthobench("db", "export", "out", "--format", "sqlite").code == 2
    assert (tmp_path / "out" / "tables.sqlite").read_text() == "mine"


def test_query_prints_columns_csv_and_json(orthobench, database):
    sql = "SELECT run, model FROM runs_flat ORDER BY status DESC"
    first, second = orthobench("db", "query", sql, "--csv").out.splitlines()[1:]
    assert {first, second} == {f"{FINISHED},rnn", f"{CUT_OFF},rnn"}
    assert orthobench("db", "query", sql).out.splitlines()[1].split() == first.split(",")
    assert json.loads(orthobench("db", "query", sql, "--json").out)[0] == dict(
        zip(("run", "model"), first.split(","), strict=True)
    )
    refused = orthobench("db", "query", sql, "--json", "--csv")
    assert (refused.code, refused.err) == (2, "error: --csv and --json are two formats: choose one\n")
