"""A finished run keeps its weights: the right numbers, whole files, and their records in the database."""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

import orthobench as ob
from orthobench.errors import StorageError, UsageError
from orthobench.store import WeightsRow
from orthobench.system.location import Location
from orthobench.training.events import EventSink
from orthobench.weights.weights_files import decode


def run(folder: Path, tiny, **options):
    given = ob.RunOptions(device="cpu", **options)
    return ob.run("adding", "scornn", db=str(folder / "r.db"), settings=tiny, options=given)


def records(folder: Path, key: str | None = None):
    with ob.open_results(str(folder / "r.db")) as results:
        stored = results.store.runs()[0] if key is None else results.store.get(key)
        return {row.kind: row for row in results.store.weights([stored.id])}


@pytest.fixture
def memory():
    files = MemoryFileSystem()
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [("none", set()), ("best", {"best"}), ("last", {"last", "state"}), ("both", {"best", "last", "state"})],
)
def test_run_keeps_the_requested_weights(tmp_path, tiny, mode, kinds):
    done = run(tmp_path, tiny, keep_weights=mode)
    rows = records(tmp_path)
    assert set(rows) == kinds
    files = list((tmp_path / "r.db.weights").glob("*"))
    assert {file.name for file in files} == {str(row.path) for row in rows.values()}
    for kind, row in rows.items():
        content = (tmp_path / "r.db.weights" / row.path.real).read_bytes()
        assert (row.sha256, row.bytes) == (hashlib.sha256(content).hexdigest(), len(content))
        facts = decode(content, str(row.path)).facts
        assert (facts["key"], facts["spec"], facts["kind"]) == (done.key, done.spec, kind)
        assert row.iteration == facts["iteration"] == (done.best_iteration if kind == "best" else done.iterations)


def test_best_is_the_default(tmp_path, tiny):
    run(tmp_path, tiny)
    assert set(records(tmp_path)) == {"best"}


def test_the_best_weights_survive_an_interruption(tmp_path, tiny):
    """The best test comes early, the run is cut off after it, and the resumed run keeps these weights."""
    rising = dict(tiny, learning_rate="0.2", recurrent_learning_rate="0.1", epochs="6", evaluate_every="1")
    uncut = run(tmp_path, rising)
    assert 0 < uncut.best_iteration < uncut.iterations - 4, "choose another rate"
    expected = decode((tmp_path / "r.db.weights" / records(tmp_path)["best"].path.real).read_bytes(), "").tensors
    (tmp_path / "cut").mkdir()

    class Stop(EventSink):
        stops_at = uncut.best_iteration + 2

        def on_iteration(self, iteration):
            if iteration == self.stops_at:
                raise KeyboardInterrupt

    class Stopping(ob.JobsDisplay):
        @contextmanager
        def open_sink(self, label):
            yield Stop()

    class Stopped(ob.Display):
        @contextmanager
        def open_jobs(self, count, in_this_process):
            yield Stopping()

    database = str(tmp_path / "cut" / "r.db")
    with pytest.raises(KeyboardInterrupt):
        ob.run(
            "adding",
            "scornn",
            db=database,
            settings=rising,
            options=ob.RunOptions(device="cpu", checkpoint_every=0),
            display=Stopped(),
        )
    assert records(tmp_path / "cut") == {}
    done = run(tmp_path / "cut", rising)
    assert done.best_iteration == uncut.best_iteration
    row = records(tmp_path / "cut")["best"]
    assert row.iteration == uncut.best_iteration
    tensors = decode((tmp_path / "cut" / "r.db.weights" / row.path.real).read_bytes(), "").tensors
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)


def test_url_receives_the_weights(tmp_path, tiny, memory):
    done = run(tmp_path, tiny, weights="memory://bucket/w")
    (row,) = records(tmp_path).values()
    assert row.path.real == f"memory://bucket/w/{done.key}.best.safetensors"
    content = memory.cat_file(f"/bucket/w/{done.key}.best.safetensors")
    assert hashlib.sha256(content).hexdigest() == row.sha256
    assert not (tmp_path / "r.db.weights").exists()


def test_weights_at_a_url_are_evaluated_and_removed(tmp_path, tiny, memory):
    done = run(tmp_path, tiny, weights="memory://bucket/w", keep_weights="last")
    with pytest.raises(
        UsageError, match=r"at a URL that this command does not name: .* `weights_at='memory://bucket/w'`$"
    ):
        ob.evaluate(done, db=str(tmp_path / "r.db"))
    (metric,) = ob.evaluate(done, db=str(tmp_path / "r.db"), weights_at="memory://bucket/w").metrics
    assert metric.value == metric.stored == done.final_value
    longer = dict(tiny, epochs="5")
    options = ob.RunOptions(device="cpu", keep_weights="none", weights="memory://bucket/w")
    again = ob.run("adding", "scornn", db=str(tmp_path / "r.db"), settings=longer, options=options, extend=True)
    assert again.continued_from == done.key
    with ob.open_results(str(tmp_path / "r.db")) as results:
        results.delete(done.key, weights_at="memory://bucket")
    assert memory.find("/bucket") == []


def test_moved_weights_are_found_where_the_command_says(tmp_path, tiny):
    done = run(tmp_path, tiny)
    (tmp_path / "r.db.weights").rename(tmp_path / "moved")
    with pytest.raises(UsageError, match=r"r\.db\.weights/.* are missing: move them there"):
        ob.evaluate(done, db=str(tmp_path / "r.db"))
    with pytest.raises(UsageError, match=r"elsewhere/.* are missing: move them there"):
        ob.evaluate(done, db=str(tmp_path / "r.db"), weights_at=tmp_path / "elsewhere")
    (metric,) = ob.evaluate(done, db=str(tmp_path / "r.db"), weights_at=tmp_path / "moved").metrics
    assert metric.value == metric.stored
    (file,) = (tmp_path / "moved").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"moved/.* have another SHA-256"):
        ob.evaluate(done, db=str(tmp_path / "r.db"), weights_at=tmp_path / "moved")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_unwritable_folder_is_refused_before_training(tmp_path, tiny):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(UsageError, match="closed is not writable"):
        run(tmp_path, tiny, weights=str(tmp_path / "closed" / "w"))


def test_file_url_receives_the_weights(tmp_path, tiny):
    done = run(tmp_path, tiny, weights=(tmp_path / "w").as_uri())
    assert [file.name for file in (tmp_path / "w").iterdir()] == [f"{done.key}.best.safetensors"]


@pytest.mark.parametrize("location", ["nosuch://x", "a file"])
def test_impossible_location_is_refused_before_training(tmp_path, tiny, location, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a file").touch()
    with pytest.raises(UsageError, match="weights cannot be kept"):
        run(tmp_path, tiny, weights=location)
    assert [file.name for file in tmp_path.iterdir()] == ["a file"]


def test_unwritable_weights_leave_a_resumable_run(tmp_path, tiny, memory, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError("the network is down")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    with pytest.raises(StorageError, match="the network is down"):
        run(tmp_path, tiny, weights="memory://bucket")
    monkeypatch.undo()
    with ob.open_results(str(tmp_path / "r.db")) as results:
        (stored,) = results.store.runs()
    assert stored.status == "interrupted"
    assert (tmp_path / "r.db.checkpoints" / stored.key / "checkpoint.pt").exists()
    assert run(tmp_path, tiny, weights="memory://bucket").status == "finished"
    assert set(records(tmp_path)) == {"best"}


def test_deleting_a_run_removes_its_files(tmp_path, tiny):
    done = run(tmp_path, tiny, keep_weights="both")
    other = tmp_path / "r.db.weights" / "other.best.safetensors"
    other.touch()
    with ob.open_results(str(tmp_path / "r.db")) as results:
        results.delete(done.key)
    assert list((tmp_path / "r.db.weights").iterdir()) == [other]


def test_training_again_replaces_the_files(tmp_path, tiny):
    run(tmp_path, tiny, keep_weights="both")
    options = ob.RunOptions(device="cpu", keep_weights="none")
    ob.run("adding", "scornn", db=str(tmp_path / "r.db"), settings=tiny, options=options, force=True)
    assert records(tmp_path) == {}
    assert list((tmp_path / "r.db.weights").iterdir()) == []


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [("none", "last", "no weights"), ("none", "both", "no weights"), ("best", "both", "only its best weights")],
)
def test_finished_run_without_the_requested_weights_says_so(tmp_path, tiny, caplog, first, then, kept):
    done = run(tmp_path, tiny, keep_weights=first)
    run(tmp_path, tiny, keep_weights=then)
    line = f"has kept {kept}, so `keep_weights='{then}'` has no effect: `force=True` trains it again"
    assert [record.getMessage() for record in caplog.records] == [f"run {done.key} is finished and {line}"]


@pytest.mark.parametrize("mode", ["none", "best", "last", "both"])
def test_finished_run_with_the_requested_weights_says_nothing(tmp_path, tiny, caplog, mode):
    for _ in range(2):
        run(tmp_path, tiny, keep_weights=mode)
    run(tmp_path, tiny)
    assert not caplog.records


def test_record_that_names_a_foreign_file_removes_nothing(tmp_path, tiny):
    """A merged database may hold any path."""
    done = run(tmp_path, tiny)
    precious = tmp_path / "precious"
    precious.touch()
    with ob.open_results(str(tmp_path / "r.db")) as results:
        stored = results.store.get(done.key)
        row = results.store.weights([stored.id])[0]
        results.store.log(
            stored.id, [], [], {}, weights=[WeightsRow("best", 0, Location(str(precious)), row.sha256, 1)]
        )
        results.delete(done.key)
    assert precious.exists()


def test_unknown_mode_is_refused():
    with pytest.raises(UsageError, match="unknown keep_weights 'all': known: best, both, last, none"):
        ob.RunOptions(keep_weights="all")
