"""A run is the same run whatever happens to it: twice, cut off, killed, in two pieces."""

from __future__ import annotations

import math
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.configs import with_classes
from support.sweeps import iterations, slow_model, wait_for

from orthobench.errors import RunLockedError, StorageError, UsageError
from orthobench.models.lstm import LSTM
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.store import Status, Store, open_store
from orthobench.training.checkpoint import NEWEST, PREVIOUS, CheckpointFolder
from orthobench.training.events import EventSink
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted
from orthobench.training.trainer import Trainer

CPU = torch.device("cpu")


class Watching(EventSink):
    """Counts iterations, and stops or dies at one."""

    def __init__(self, stop_at: int | None = None, die_at: int | None = None, message: str = "cut off") -> None:
        self.stop_at, self.die_at, self.message = stop_at, die_at, message
        self.iterations: list[int] = []

    def on_iteration(self, iteration):
        self.iterations.append(iteration)
        if iteration == self.die_at:
            raise SystemError(self.message)

    def should_stop(self) -> bool:
        return bool(self.iterations) and self.iterations[-1] == self.stop_at


def numbers(store: Store, key: str):
    """Everything logged of a run but how long it took."""
    run = store.find(key)
    assert run is not None
    metrics = [(m.split, m.name, m.epoch, m.iteration, m.value) for m in store.metrics([run.id])]
    traces = [(t.name, t.epoch, t.iteration, list(t.values)) for t in store.traces([run.id])]
    return run.status, run.iterations, run.final_value, run.best_value, run.best_iteration, metrics, traces


def carry_out(config: RunConfig, folder: Path, observer=None, **options):
    folder.mkdir(exist_ok=True)
    with open_store(str(folder / "r.db"), create=True) as store:
        observer = observer or EventSink()
        should_stop = getattr(observer, "should_stop", lambda: False)
        train(config, store, RunOptions(device="cpu", **options), [observer], should_stop)
        return numbers(store, config.spec.key)


@pytest.fixture(params=["scornn", "lstm"])
def config(request, tiny) -> RunConfig:
    return resolve(Catalog(), "adding", request.param, tiny | {"shuffle": "true"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Callable[[RunConfig], object]:
    """A function from a run to its numbers if nothing cuts it off; each run is trained once."""
    known: dict[str, object] = {}

    def find(config: RunConfig) -> object:
        key = config.spec.key
        if key not in known:
            known[key] = carry_out(config, tmp_path_factory.mktemp("uncut"))
        return known[key]

    return find


@pytest.fixture
def uncut(whole, config):
    return whole(config)


def test_same_run_twice_is_bit_identical(config, tmp_path):
    assert carry_out(config, tmp_path / "a") == carry_out(config, tmp_path / "b")


def test_everything_is_logged(config, tmp_path):
    _, iterations, final, best, best_iteration, metrics, traces = carry_out(config, tmp_path)
    assert iterations == 12
    test = [(epoch, i, value) for split, name, epoch, i, value in metrics if (split, name) == ("test", "mse")]
    assert [i for _, i, _ in test] == [0, 2, 4, 6, 8, 10, 12]
    assert [epoch for epoch, _, _ in test] == [0, 0, 1, 1, 2, 2, 3]
    assert final == test[-1][2]
    assert (best, best_iteration) == min((value, i) for _, i, value in test)
    assert [i for split, name, _, i, _ in metrics if (split, name) == ("train", "loss")] == [2, 4, 6, 8, 10, 12]
    matrices = {name for split, name, *_ in metrics if split == "probe"}
    of_step = {"orthogonality/W", "orthogonality_own_precision/W"}
    of_gates = {f"orthogonality_inside/W_{gate}" for gate in "ifgo"}
    for name in matrices:
        assert [i for split, own, _, i, _ in metrics if (split, own) == ("probe", name)] == [0, 4, 8, 12]
    expected = of_step if config.spec.model == "scornn" else of_gates
    assert matrices == expected | {"orthogonality_jacobian/J"}
    assert {i for name, _, i, _ in traces if name == "gradient_norm/h"} == {0, 4, 8, 12}
    vectors = [vector for name, _, _, vector in traces if name == "gradient_norm/h"]
    assert len(vectors) == 4
    assert all(len(vector) == 10 and min(vector) > 0 for vector in vectors)


@pytest.mark.parametrize("stop_at", [1, 4, 5, 11])
def test_stopped_run_resumes_to_the_numbers_of_an_uninterrupted_one(config, uncut, tmp_path, stop_at):
    observer = Watching(stop_at=stop_at)
    with pytest.raises(Interrupted):
        carry_out(config, tmp_path / "cut", observer)
    again = Watching()
    assert carry_out(config, tmp_path / "cut", again) == uncut
    assert again.iterations == list(range(stop_at + 1, 13))


@pytest.mark.parametrize("die_at", [1, 3, 6, 7, 12])
def test_dead_run_resumes_from_its_checkpoint(config, uncut, tmp_path, die_at):
    with pytest.raises(SystemError):
        carry_out(config, tmp_path / "cut", Watching(die_at=die_at), checkpoint_every=0)
    again = Watching()
    assert carry_out(config, tmp_path / "cut", again) == uncut
    assert again.iterations == list(range(die_at, 13))


class TenSeconds(Watching):
    """A clock for the training loop, by which an iteration takes ten seconds, and all else no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, die_at: int | None = None) -> None:
        super().__init__(die_at=die_at)
        self.now = 1000.0
        monkeypatch.setattr("orthobench.training.loop.time", SimpleNamespace(perf_counter=lambda: self.now))

    def on_iteration(self, iteration):
        self.now += 10
        super().on_iteration(iteration)


def test_run_that_dies_after_an_evaluation_resumes_from_the_checkpoint_before_it(config, uncut, tmp_path, monkeypatch):
    """The checkpoint of iteration 5 is 50 seconds old at iteration 7; the evaluation of iteration 6 is repeated."""
    with monkeypatch.context() as patched, pytest.raises(SystemError):
        carry_out(config, tmp_path / "cut", TenSeconds(patched, die_at=7), checkpoint_every=50)
    again = Watching()
    assert carry_out(config, tmp_path / "cut", again) == uncut
    assert again.iterations == list(range(6, 13))


def test_wait_for_queued_iterations_does_not_delay_the_next_checkpoint(config, tmp_path, monkeypatch):
    """Reading the state takes a second here, as on a GPU; saving it takes no time."""
    clock, saved = TenSeconds(monkeypatch), []
    read, save = Trainer.checkpoint, CheckpointFolder.save

    def wait_and_read(trainer):
        clock.now += 1
        return read(trainer)

    def note_and_save(checkpoints, state):
        saved.append(state["iteration"])
        save(checkpoints, state)

    monkeypatch.setattr(Trainer, "checkpoint", wait_and_read)
    monkeypatch.setattr(CheckpointFolder, "save", note_and_save)
    carry_out(config, tmp_path, clock, checkpoint_every=30, keep_weights="none")
    assert saved == [3, 6, 9, 12]


@pytest.mark.parametrize("damage", ["truncate", "garbage", "remove"])
def test_damaged_checkpoint_falls_back_to_the_previous_one(config, uncut, tmp_path, damage):
    with pytest.raises(SystemError):
        carry_out(config, tmp_path / "cut", Watching(die_at=7), checkpoint_every=0)
    newest = tmp_path / "cut" / "r.db.checkpoints" / config.spec.key / NEWEST
    assert newest.with_name(PREVIOUS).exists()
    if damage == "truncate":
        newest.write_bytes(newest.read_bytes()[:100])
    elif damage == "garbage":
        newest.write_bytes(b"not a checkpoint")
    else:
        newest.unlink()
    assert carry_out(config, tmp_path / "cut") == uncut


def test_run_without_its_checkpoints_starts_over_and_says_so(config, uncut, tmp_path, caplog):
    with pytest.raises(SystemError):
        carry_out(config, tmp_path / "cut", Watching(die_at=7), checkpoint_every=0)
    assert not caplog.records
    shutil.rmtree(tmp_path / "cut" / "r.db.checkpoints" / config.spec.key)
    assert carry_out(config, tmp_path / "cut") == uncut
    (message,) = caplog.messages
    assert "starts over: no checkpoint of its 7 iterations can be read" in message


def test_finished_run_is_not_trained_again(config, tmp_path):
    first = carry_out(config, tmp_path)
    again = Watching()
    assert carry_out(config, tmp_path, again) == first
    assert again.iterations == []


def test_divergence_is_a_result(tmp_path, tiny):
    wild = resolve(Catalog(), "adding", "rnn", tiny | {"learning_rate": "1e30", "activation": "relu"})
    status, iterations, final, *_ = carry_out(wild, tmp_path)
    assert status == Status.DIVERGED
    assert iterations < 12
    assert final is None
    again = Watching()
    carry_out(wild, tmp_path, again)
    assert again.iterations == []


def test_stopped_clock_loses_nothing(config, tmp_path, monkeypatch):
    class StandingClock(datetime):
        @classmethod
        def now(cls, zone=None):
            return cls(2026, 1, 1, tzinfo=zone)

    expected = carry_out(config, tmp_path / "ticking")
    monkeypatch.setattr("orthobench.store.tables.datetime", StandingClock)
    monkeypatch.setattr("time.time", lambda: 1767225600.0)
    with pytest.raises(Interrupted):
        carry_out(config, tmp_path / "still", Watching(stop_at=5))
    assert carry_out(config, tmp_path / "still") == expected


def test_checkpoint_stays_until_the_database_has_the_result(config, tmp_path, monkeypatch):
    expected = carry_out(config, tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr("orthobench.training.recording.DatabaseSink.on_end", lambda sink, end: None)
        with pytest.raises(StorageError, match="the checkpoint is kept"):
            carry_out(config, tmp_path / "lost", checkpoint_every=0)
    again = Watching()
    assert carry_out(config, tmp_path / "lost", again) == expected
    assert again.iterations == []  # the checkpoint of the last iteration served


def test_result_in_a_deleted_database_is_not_lost_without_a_word(config, tmp_path):
    class Deleting(Watching):
        def on_evaluation(self, evaluation):
            (tmp_path / "r.db").unlink(missing_ok=True)

    with pytest.raises(StorageError, match="the database does not hold its result"):
        carry_out(config, tmp_path, Deleting())


@pytest.mark.parametrize(
    ("message", "stored"),
    [("cut off", "cut off"), ("no file b\udce9.txt", r"no file b\udce9.txt"), ("a\0b\nc", r"a\x00b")],
    ids=["plain", "half of a pair", "zero byte"],
)
def test_failed_run_states_the_reason_and_may_be_retried(config, tmp_path, message, stored):
    """A name of a file that is not UTF-8 has halves of pairs, which no database stores, and PostgreSQL no zero byte."""
    with pytest.raises(SystemError):
        carry_out(config, tmp_path, Watching(die_at=3, message=message))
    with open_store(str(tmp_path / "r.db")) as store:
        run = store.find(config.spec.key)
        assert run.status == Status.FAILED
        assert run.message.endswith(f" raises SystemError: {stored}")
    assert carry_out(config, tmp_path)[0] == Status.FINISHED


def test_run_is_trained_by_one_process_at_a_time(config, tmp_path):
    folder = CheckpointFolder(tmp_path / "r.db.checkpoints", config.spec.key)
    assert not folder.is_locked()
    with folder.lock():
        assert CheckpointFolder(tmp_path / "r.db.checkpoints", config.spec.key).is_locked()
        with pytest.raises(RunLockedError, match="another process"):
            carry_out(config, tmp_path)


def test_batch_larger_than_the_data_is_refused_before_a_run_is_stored(tmp_path, tiny):
    large = resolve(Catalog(), "adding", "rnn", tiny | {"batch_size": "50"})
    with pytest.raises(UsageError, match="batch_size=50 is more than the training set of 40"):
        carry_out(large, tmp_path)
    with open_store(str(tmp_path / "r.db")) as store:
        assert store.runs() == []


def test_iterations_may_be_capped(tmp_path, tiny):
    capped = resolve(Catalog(), "adding", "rnn", tiny | {"max_iterations": "5"})
    _, iterations, _, _, _, metrics, _ = carry_out(capped, tmp_path)
    assert iterations == 5
    assert [i for split, name, _, i, _ in metrics if (split, name) == ("test", "mse")] == [0, 2, 4, 5]


def test_clipping_bounds_the_gradient_of_the_optimiser(tmp_path, tiny):
    """With plain SGD a step is learning rate times gradient, so a clip bounds every parameter's move."""
    moves = {}
    for clip in ("none", "1e-6"):
        config = resolve(
            Catalog(), "adding", "rnn", tiny | {"optimizer": "sgd", "clip_value": clip, "learning_rate": "1"}
        )
        *_, metrics, _ = carry_out(config, tmp_path / clip)
        values = [value for split, name, _, _, value in metrics if (split, name) == ("test", "mse")]
        moves[clip] = abs(values[1] - values[0])
    assert moves["1e-6"] < 1e-4 < moves["none"]


def test_learning_rates_decay_with_the_epochs(tmp_path, tiny, rates):
    settings = tiny | {"epochs": "4", "learning_rate_decay": "0.5", "decay_every": "2", "learning_rate": "0.01"}
    carry_out(resolve(Catalog(), "adding", "lstm", settings), tmp_path)
    assert rates == [0.01] * 8 + [0.005] * 8


def _pulled(strength: float, decay: float):
    """An LSTM with a quadratic penalty and a weight decay, and the list of its weights after each step."""
    seen = []

    class Pulled(LSTM):
        def penalty(self):
            return strength / 2 * sum(parameter.square().sum() for parameter in self.parameters())

        def parameter_groups(self):
            return [replace(group, weight_decay=decay) for group in super().parameter_groups()]

        def after_step(self):
            seen.append(self.recurrent_weight.clone())

    return Pulled, seen


def test_penalty_and_weight_decay_reach_the_gradient(tmp_path, tiny):
    """Of the same quadratic both are the same pull towards zero, and the logged loss remains the task's."""
    results = {}
    for name, strength, decay in (("plain", 0.0, 0.0), ("penalised", 1.0, 0.0), ("decayed", 0.0, 1.0)):
        pulled, seen = _pulled(strength, decay)
        config = resolve(Catalog(), "adding", "lstm", tiny | {"learning_rate": "0.1", "optimizer": "sgd"})
        *_, metrics, _ = carry_out(with_classes(config, model_class=pulled), tmp_path / name)
        results[name] = seen[0], next(value for split, _, _, _, value in metrics if split == "train")
    torch.testing.assert_close(results["penalised"], results["decayed"])
    assert results["penalised"][0].norm() < 0.95 * results["plain"][0].norm()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_killed_process_resumes_to_the_same_numbers(how, tmp_path, tiny, start):
    settings = tiny | {"train_size": "2000", "evaluate_every": "50"}  # 600 iterations
    plugin, slow = slow_model(tmp_path, steps=150)
    command = ["run", "adding", "slow", "--plugin", str(plugin), "--checkpoint-every", "0"]
    command += [*(x for k, v in settings.items() for x in ("-s", f"{k}={v}"))]
    assert start([*command, "--db", "uncut.db"]).wait(120) == 0
    slow.touch()
    cut = start([*command, "--db", "cut.db"])
    wait_for(lambda: any(at >= 100 for at in iterations(str(tmp_path / "cut.db")).values()), cut)
    cut.send_signal(how)
    code = cut.wait(60)
    assert code == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    slow.unlink()
    again = start([*command, "--db", "cut.db"])
    assert again.wait(120) == 0
    results = []
    for name in ("uncut.db", "cut.db"):
        with open_store(str(tmp_path / name)) as store:
            (run,) = store.runs()
            results.append(numbers(store, run.key))
    assert results[0] == results[1]
    assert math.isfinite(results[0][2])
