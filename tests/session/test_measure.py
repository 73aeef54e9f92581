"""Measuring in the background: start, status, stop, fold, and going on, here and in a fresh clone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from checks import measure
from orthobench.errors import UsageError
from orthobench.options.run_options import RunOptions
from orthobench.planning.listed import runs_in
from orthobench.plugins import Catalog
from orthobench.spec.resolve import RunConfig
from orthobench.store import Status, open_store
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted

LIST = """
[[runs]]
paper = "helfrich2018"
figure = "2"
models = ["lstm"]
where = {{ sequence_length = 200 }}
settings = {{ sequence_length = 10, n = 8, train_size = 40, test_size = 20, batch_size = 10, epochs = {epochs} }}
seeds = {seeds}
"""
PATIENCE = 600.0
"""Seconds after which something should have happened, even at the lowest priority on a busy machine."""


@pytest.fixture
def files(tmp_path):
    """A list of two tiny runs, without any results."""
    return make(tmp_path)


def make(folder: Path, epochs: int = 3, seeds: int = 2):
    (folder / "measured").mkdir(parents=True, exist_ok=True)
    (folder / "list.toml").write_text(LIST.format(epochs=epochs, seeds=seeds))
    return measure.Files(folder / "list.toml", folder / "results.db", folder / "measured", folder / "checkpoints")


def configs(files) -> list[RunConfig]:
    return [run.config for run in runs_in(files.runs, Catalog())]


def train_for(files, config: RunConfig, database: Path, iterations: int | None = None) -> None:
    """Train a run to its end, or interrupt it after some iterations."""
    seen = 0

    def should_stop() -> bool:
        nonlocal seen
        seen += 1
        return iterations is not None and seen > iterations

    with open_store(str(database), create=True) as store:
        if iterations is None:
            train(config, store, RunOptions(device="cpu"))
        else:
            with pytest.raises(Interrupted):
                train(config, store, RunOptions(device="cpu"), should_stop=should_stop)


def states(database: Path) -> dict[str, tuple[str, int]]:
    with open_store(str(database)) as store:
        return {run.key: (run.status, run.iterations) for run in store.runs()}


def losses(database: Path, key: str) -> list[tuple[int, float | None]]:
    with open_store(str(database)) as store:
        run = store.find(key)
        assert run is not None
        return [(row.iteration, row.value) for row in store.metrics([run.id]) if row.split == "test"]


def test_results_and_checkpoints_are_folded_and_a_clone_continues(files, tmp_path):
    first, second = configs(files)
    assert measure.take_up(files) == 2
    train_for(files, first, files.database)
    train_for(files, second, files.database, iterations=7)
    measure.stop(files, limit=10**7)
    saved = [files.checkpoint_of(second.spec.key)]
    assert list(files.checkpoints.iterdir()) == saved
    assert states(files.results)[first.spec.key] == (Status.FINISHED, 12)
    status, iterations = states(files.results)[second.spec.key]
    assert status == Status.INTERRUPTED
    assert 0 < iterations < 12

    copy = make(tmp_path / "clone")
    copy.results.write_bytes(files.results.read_bytes())
    copy.checkpoints.mkdir()
    copy.checkpoint_of(second.spec.key).write_bytes(saved[0].read_bytes())
    assert measure.take_up(copy) == 1
    train_for(copy, second, copy.database)
    with open_store(str(copy.database)) as store:
        run = store.find(second.spec.key)
        assert len(store.segments([run.id])) == 2  # it goes on, and does not start over
    measure.stop(copy, limit=10**7)
    assert states(copy.results) == {config.spec.key: (Status.FINISHED, 12) for config in (first, second)}
    assert not copy.checkpoints.exists()  # the run has finished

    train_for(files, second, tmp_path / "whole.db")
    assert losses(copy.results, second.spec.key) == losses(tmp_path / "whole.db", second.spec.key)


def test_runs_with_results_are_not_trained(files):
    first, _ = configs(files)
    train_for(files, first, files.results)
    assert measure.take_up(files) == 1


def test_results_of_unlisted_runs_are_not_brought_back(files):
    first, second = configs(files)
    train_for(files, first, files.results)
    measure.take_up(files)
    files.runs.write_text(LIST.format(epochs=2, seeds=1))  # another list, without these runs
    files.results.unlink()
    train_for(files, second, files.results)
    measure.fold(files, 10**7)
    assert list(states(files.results)) == [second.spec.key]


def test_checkpoints_beyond_the_limit_stay_in_the_working_folder(files, capsys):
    first, second = configs(files)
    train_for(files, first, files.database, iterations=4)
    train_for(files, second, files.database, iterations=9)
    measure.fold(files, 10**7)
    sizes = {key: files.checkpoint_of(key).stat().st_size for key in (first.spec.key, second.spec.key)}
    measure.fold(files, sum(sizes.values()) - 1)
    assert list(files.checkpoints.iterdir()) == [files.checkpoint_of(second.spec.key)]  # the most advanced one
    assert f"does not fit: the checkpoint of {first.spec.key}" in capsys.readouterr().out
    assert files.working(first.spec.key).exists()


def test_more_advanced_checkpoint_of_a_clone_replaces_the_own(files, tmp_path):
    first, _ = configs(files)
    train_for(files, first, files.database, iterations=5)
    assert files.working(first.spec.key).exists()
    clone = make(tmp_path / "clone")
    train_for(clone, first, clone.database, iterations=9)
    measure.fold(clone, 10**7)
    files.results.write_bytes(clone.results.read_bytes())
    files.checkpoints.mkdir()
    files.checkpoint_of(first.spec.key).write_bytes(clone.checkpoint_of(first.spec.key).read_bytes())
    measure.take_up(files)
    assert files.working(first.spec.key).read_bytes() == clone.working(first.spec.key).read_bytes()
    train_for(files, first, files.database)
    with open_store(str(files.database)) as store:
        assert len(store.segments([store.find(first.spec.key).id])) == 2


def test_reused_process_number_is_not_taken_for_the_run(files):
    files.process.write_text(f'{{"pid": {os.getpid()}, "created": 1.0}}')
    assert measure.running(files) is None
    created = psutil.Process().create_time()
    files.process.write_text(f'{{"pid": {os.getpid()}, "created": {created}}}')
    assert measure.running(files).pid == os.getpid()
    with pytest.raises(UsageError, match=f"the runs train already .process {os.getpid()}"):
        measure.start(files, 1, 300.0)


def test_status_names_the_next_runs(files, capsys):
    first, second = configs(files)
    train_for(files, first, files.database, iterations=7)
    measure.status(files)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "no runs train; start: make measure"
    assert lines[1].startswith(f"interrupted: {first.spec.key} adding lstm")
    assert "epoch 1.00 of 3, 4 of 12 iterations" in lines[1]
    assert lines[2].startswith(f"next: {second.spec.key}")
    assert "1 interrupted, 1 missing" in lines[3]


@pytest.fixture
def command(tmp_path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Call the script on a list of long runs in tmp_path; afterwards nothing trains."""
    files = make(tmp_path, epochs=500_000)
    options = [
        "--file",
        files.runs,
        "--results",
        files.results,
        "--folder",
        files.folder,
        "--checkpoints",
        files.checkpoints,
    ]

    def call(word: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, measure.__file__, word, *map(str, options), *more]
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)

    yield call
    call("stop")


def wait_for(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def progress(files) -> int:
    return sum(iterations for _, iterations in states(files.database).values())


@pytest.mark.slow
def test_start_kill_fold_and_continue(command, tmp_path):
    files = make(tmp_path, epochs=500_000)
    started = command("start", "--jobs", "2", "--checkpoint-every", "0.5")
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith(f"2 runs of {files.runs} train in the background, 2 at once (process ")
    again = command("start")
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith("error: the runs train already (process ")
    keys = [config.spec.key for config in configs(files)]
    wait_for(lambda: all(files.working(key).exists() for key in keys))
    process = measure.running(files)
    assert process.nice() == 19
    for each in (process, *process.children(recursive=True)):
        group = Path(f"/proc/{each.pid}/autogroup")
        assert not group.exists() or group.read_text().endswith("nice 19\n")
    shown = command("status").stdout
    assert shown.count("now: ") == 2

    family = [process, *process.children(recursive=True)]
    for each in family:
        each.kill()
    psutil.wait_procs(family, timeout=PATIENCE)
    before = progress(files)
    assert command("status").stdout.startswith("no runs train")
    assert command("start", "--jobs", "2", "--checkpoint-every", "0.5").returncode == 0
    wait_for(lambda: progress(files) > before)
    assert "starts over" not in files.log.read_text()

    family = [measure.running(files), *measure.running(files).children(recursive=True)]
    assert command("stop").returncode == 0
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family)
    assert {status for status, _ in states(files.results).values()} == {Status.INTERRUPTED}
    assert sorted(files.checkpoints.iterdir()) == sorted(map(files.checkpoint_of, keys))
    assert command("stop").stdout.startswith("no runs train")
