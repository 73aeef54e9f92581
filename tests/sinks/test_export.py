"""`orthobench db export --to`: what the database holds."""

from __future__ import annotations

import pytest
from support.destinations import all_of, as_sent, read_back, stored
from support.records import key_of, run_record

import orthobench as ob
from orthobench.sinks.targets import parse_target
from orthobench.store import MetricRow, Status, TraceRow, open_store


@pytest.fixture
def database(tmp_path):
    """A database with a finished run, and one under way."""
    file = tmp_path / "r.db"
    with open_store(str(file), create=True) as store:
        for seed, status in enumerate((Status.FINISHED, Status.INTERRUPTED)):
            run = store.start(run_record(seed=seed), {"cpu": "a"}, ["kept"])
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
    assert done.out == f"2 runs sent to {parse_target(f'{kind}:{location}')}\n"
    with open_store(database) as store:
        for key, status in ((key_of(0), "finished"), (key_of(1), "interrupted")):
            sent = read_back(kind, location, key)
            assert sent.points == pytest.approx(as_sent(kind, stored(store, key)), rel=0, abs=0)
            assert (sent.doubles, sent.tags, sent.status) == ([], ["kept"], status)


def test_second_export_is_a_new_run_except_in_tensorboard(database, kind, location, orthobench):
    command = ("db", "export", "--db", database, "--to", f"{kind}:{location}")
    orthobench(*command)
    key = key_of(1)
    with open_store(database) as store:
        first = stored(store, key)
        run = store.find(key)
        store.rewind(run.id, 0, "token")
        add_rows(store, run.id, [7], {"status": Status.FINISHED, "iterations": 7})
        second = stored(store, key)
    assert orthobench(*command).code == 0
    held = [(second, "finished")] if kind == "tensorboard" else [(second, "finished"), (first, "interrupted")]
    assert [(run.points, run.status) for run in all_of(kind, location, key)] == [
        (as_sent(kind, points), status) for points, status in held
    ]
    assert all(run.doubles == [] for run in all_of(kind, location, key))


def test_python_api_exports_selected_runs(database, kind, location):
    with ob.open_results(database) as results:
        results.export(f"{kind}:{location}", key_of(0))
    assert read_back(kind, location, key_of(0)).status == "finished"
    assert all_of(kind, location, key_of(1)) == []


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
