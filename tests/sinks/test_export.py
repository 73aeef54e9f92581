"""`orthobench db export --to`: what the database holds, once."""

from __future__ import annotations

import pytest
from support.destinations import as_sent, read_back, stored
from support.records import run_record

import orthobench as ob
from orthobench.store import MetricRow, Status, TraceRow, open_store


@pytest.fixture
def database(tmp_path):
    """A database with a finished run, and one under way."""
    file = tmp_path / "r.db"
    with open_store(str(file), create=True) as store:
        for key, status in (("abc0" * 4, Status.FINISHED), ("abc1" * 4, Status.INTERRUPTED)):
            run = store.start(run_record(key=key), {"cpu": "a"}, ["kept"])
            add_rows(store, run.id, range(0, 30, 10), {"status": status, "iterations": 20})
    return str(file)


def add_rows(store, run_id, iterations, progress):
    rows = [MetricRow("test", "mse", 0, i, 1 / (i + 3)) for i in iterations]
    rows += [MetricRow("probe", "orthogonality/W", 0, i, 1e-7 * i) for i in iterations]
    vectors = [TraceRow("gradient_norm/h", 0, i, [0.5, 2.0, float(i)]) for i in iterations]
    store.log(run_id, rows, vectors, progress)


def test_export_equals_the_database(database, kind, location, orthobench):
    done = orthobench("db", "export", "--db", database, "--to", f"{kind}:{location}")
    assert done.code == 0, done.err
    assert done.out.strip().endswith("2 added")
    with open_store(database) as store:
        for key, status in (("abc0" * 4, "finished"), ("abc1" * 4, "interrupted")):
            sent = read_back(kind, location, key)
            assert sent.points == pytest.approx(as_sent(kind, stored(store, key)), rel=0, abs=0)
            assert (sent.doubles, sent.tags, sent.status) == ([], ["kept"], status)


def test_second_export_adds_no_duplicates(database, kind, location, orthobench):
    command = ("db", "export", "--db", database, "--to", f"{kind}:{location}")
    orthobench(*command)
    for key in ("abc0" * 4, "abc1" * 4):
        read_back(kind, location, key)  # waits for what wandb's own process writes later
    files = {file: file.stat().st_size for file in location.rglob("*") if file.is_file() and file.suffix != ".log"}
    again = orthobench(*command)
    assert again.out.strip().endswith("2 unchanged")
    assert kind == "mlflow" or files == {file: file.stat().st_size for file in files}
    with open_store(database) as store:
        run = store.find("abc1" * 4)
        add_rows(store, run.id, [30], {"status": Status.FINISHED, "iterations": 30})
    third = orthobench(*command)
    assert "1 unchanged" in third.out
    with open_store(database) as store:
        sent = read_back(kind, location, "abc1" * 4)
        assert sent.points == as_sent(kind, stored(store, "abc1" * 4))
        assert (sent.doubles, sent.status) == ([], "finished")


def test_points_unknown_to_the_database_are_replaced_and_reported(database, kind, location, orthobench):
    command = ("db", "export", "--db", database, "--to", f"{kind}:{location}")
    orthobench(*command)
    with open_store(database) as store:
        run = store.find("abc1" * 4)
        store.rewind(run.id, 0, "token")
        add_rows(store, run.id, [7], {"iterations": 7})
    assert "1 replaced" in orthobench(*command).out
    with open_store(database) as store:
        sent = read_back(kind, location, "abc1" * 4)
        assert sent.points == as_sent(kind, stored(store, "abc1" * 4))
        assert sent.doubles == []


def test_python_api_exports_selected_runs(database, kind, location):
    with ob.open_results(database) as results:
        assert str(results.export(f"{kind}:{location}", "abc0" * 4)).endswith("1 added")
    assert read_back(kind, location, "abc0" * 4).status == "finished"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "tensorbord"], "unknown destination 'tensorbord': did you mean tensorboard?"),
        (["--to", "wandb:"], "'wandb:' names no folder: write wandb:DIR, or wandb alone"),
        (["--to", "tensorboard", "out"], "--to names the destination: leave DIR, --format and --vectors out"),
        ([], "name a folder for the tables, or a destination: orthobench db export --to tensorboard"),
        (["--to", "tensorboard:r.db"], "r.db is a file and is left as it is: name a folder"),
    ],
)
def test_invalid_destination_is_one_line(database, orthobench, words, message):
    done = orthobench("db", "export", "--db", "r.db", *words)
    assert (done.code, done.err) == (2, f"error: {message}\n")


def test_missing_package_is_named_with_its_extra(orthobench, monkeypatch, tmp_path):
    monkeypatch.setattr("orthobench.sinks.targets.find_spec", lambda name: None)
    done = orthobench("run", "adding", "rnn", "--log-to", "wandb")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: wandb needs a package that is not installed: pip install -e '.[wandb]' in the checkout\n"
    assert not (tmp_path / "results.db").exists()


def test_failing_destination_is_one_line(database, orthobench, monkeypatch):
    pytest.importorskip("tensorboard", reason="the extra orthobench[tensorboard] is not installed")
    from orthobench.sinks.targets import Target

    def broken(target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Target, "open", broken)
    done = orthobench("db", "export", "--db", database, "--to", "tensorboard:logs")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "tensorboard:logs cannot be written (OSError: [Errno 28] No space left on device)" in done.err
