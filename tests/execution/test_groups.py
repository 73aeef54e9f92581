"""Groups of runs that train together: each run is stored as alone, and what ends one run ends no other.

Without a GPU, the C kernels of the recurrence stand for those of CUDA: a common launch runs them for one run after the
other. The reference batches its products.
"""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from orthobench.errors import UsageError
from orthobench.execution import groups
from orthobench.execution.display import Display, JobsDisplay
from orthobench.execution.groups import GroupExecutor, group_size, make_groups, parse_group_size
from orthobench.execution.job import Ending, Job
from orthobench.execution.options import ExecutionOptions
from orthobench.execution.serial import SerialExecutor
from orthobench.execution.session import Session
from orthobench.execution.stop import Stopped
from orthobench.planning.plan import SweepRun
from orthobench.plugins import Catalog
from orthobench.recurrence.cpu import backend as cpu
from orthobench.recurrence.cuda.occupancy import runs_at_once
from orthobench.recurrence.kernels import Gradients
from orthobench.spec import resolve
from orthobench.store import Status, open_store
from orthobench.training.events import EventSink

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
PLUGIN = '''
import torch
from orthobench.models.rnn import RNN, RNNSettings

class NoisySettings(RNNSettings):
    noise: float = 0.1
    fault: float = 0.0

class Noisy(RNN):
    """Draws noise from the generator that all threads share; with fault 1.0 it fails, with 2.0 it lacks memory."""
    title, Settings, steps, in_group = "x", NoisySettings, 0, 0

    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        self.noise, self.fault = settings.noise, settings.fault

    def states(self, inputs, *arguments):
        self.steps += torch.is_grad_enabled()
        if self.fault == 1.0 and self.steps > 3:
            raise RuntimeError("a fault of one run")
        if self.fault == 2.0 and self.steps > 3 and not Noisy.is_alone:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().states(inputs + self.noise * torch.randn(inputs.shape), *arguments)

Noisy.is_alone = True
'''


class Looped:
    """The C kernel of the plain recurrence, with a leading dimension for runs.

    Attributes:
        launches: number of passes for several runs.
    """

    takes_runs, launches = True, 0

    @staticmethod
    def forward(x, arguments, keep):
        if x.dim() == 3:
            return RNN.forward(x, arguments, keep)
        Looped.launches += 1
        results = [RNN.forward(x[i], one_run(arguments, i), keep) for i in range(len(x))]
        states, saved = zip(*results, strict=True)
        return stacked(states), stacked(saved)

    @staticmethod
    def backward(arguments, tape):
        if tape.states[0].dim() == 3:
            return RNN.backward(arguments, tape)
        Looped.launches += 1
        results = [RNN.backward(one_run(arguments, i), one_run(tape, i)) for i in range(len(tape.states[0]))]
        columns = zip(*([r.x, r.weight, *r.state, *r.parameters.values()] for r in results), strict=True)
        x, weight, state, *others = stacked([*zip(*columns, strict=True)])
        return Gradients(x, weight, (state,), dict(zip(results[0].parameters, others, strict=True)))


RNN = cpu.KERNELS["recurrence"]


def one_run(parts, i):
    """The arguments or the tape of one run."""

    def of_run(value):
        if isinstance(value, torch.Tensor):
            return value[i]
        if isinstance(value, tuple):
            return tuple(map(of_run, value))
        return {name: of_run(each) for name, each in value.items()} if isinstance(value, dict) else value

    return replace(parts, **{field.name: of_run(getattr(parts, field.name)) for field in fields(parts)})


def stacked(results):
    """The results of several runs as one, with a leading dimension."""
    return tuple(None if column[0] is None else torch.stack(column) for column in zip(*results, strict=True))


@pytest.fixture
def looped(monkeypatch):
    """The class of the kernels of runs that meet."""
    monkeypatch.setattr(Looped, "launches", 0)
    monkeypatch.setitem(cpu.KERNELS, "recurrence", Looped)
    return Looped


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    (tmp_path / "noisy.py").write_text(PLUGIN)
    return Catalog([tmp_path / "noisy.py"])


def jobs_of(folder: Path, catalog: Catalog, settings: list[dict[str, str]], **options: object) -> list[Job]:
    """Jobs of the noisy model, with the settings and a seed each."""
    configs = [resolve(catalog, "adding", "noisy", each, seed=seed) for seed, each in enumerate(settings)]
    return [
        Job(
            config.spec,
            f"run {number}",
            str(folder / "r.db"),
            str(folder / "checkpoints"),
            plugins=config.plugin_files,
            config=config,
            checkpoint_every=0.0,
            **options,
        )
        for number, config in enumerate(configs)
    ]


class Watched(EventSink):
    """A sink with the number of evaluations of all its runs so far."""

    def __init__(self) -> None:
        self.evaluations = 0

    def on_evaluation(self, evaluation: object) -> None:
        self.evaluations += 1

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def group(size: int = 8, sink: Watched | None = None, stop: object = lambda: False) -> GroupExecutor:
    return GroupExecutor(lambda _: size, lambda _: sink or Watched(), stop)  # type: ignore[arg-type]


def stored(folder: Path) -> dict[int, tuple[str, list[tuple[str, str, int, float | str | None]]]]:
    """The status and the rows of each run, by seed."""
    with open_store(str(folder / "r.db")) as store:
        return {
            run.seed: (
                run.status,
                [
                    (m.split, m.name, m.iteration, "NaN" if m.value != m.value else m.value)
                    for m in store.metrics([run.id])
                ],
            )
            for run in store.runs()
        }


def alone(folder: Path, catalog: Catalog, settings: list[dict[str, str]], **options: object) -> dict:
    folder.mkdir()
    list(SerialExecutor(lambda _: Watched(), lambda: False).run(jobs_of(folder, catalog, settings, **options)))
    return stored(folder)


def test_each_run_of_a_group_is_stored_as_alone(tmp_path, tiny, catalog, looped):
    """Bit by bit, with a random stream, a learning rate and a course of its own; one diverges, another fails."""
    settings = [
        tiny,
        tiny | {"learning_rate": "0.01", "noise": "0.3"},
        tiny | {"learning_rate": "1e20", "optimizer": "rmsprop_tf1"},
        tiny | {"fault": "1.0"},
        tiny,
    ]
    expected = alone(tmp_path / "alone", catalog, settings)
    outcomes = list(group().run(jobs_of(tmp_path, catalog, settings)))
    assert {outcome.job.label: outcome.ending for outcome in outcomes} == {
        "run 0": Ending.FINISHED,
        "run 1": Ending.FINISHED,
        "run 2": Ending.DIVERGED,
        "run 3": Ending.FAILED,
        "run 4": Ending.FINISHED,
    }
    assert stored(tmp_path) == expected
    assert {outcome.job.label for outcome in outcomes[:2]} == {"run 2", "run 3"}, "the runs take turns"
    assert looped.launches >= 24, "12 steps forward and backward"
    with open_store(str(tmp_path / "r.db")) as store:
        assert {run.environment.facts["gpu_batch"] for run in store.runs()} == {5}


def test_the_reference_trains_a_group_with_common_products(tmp_path, tiny, catalog, monkeypatch):
    """To 1e-4 after 12 steps of training: batched products round otherwise."""
    settings = [tiny, tiny | {"learning_rate": "0.01"}, tiny]
    expected = alone(tmp_path / "alone", catalog, settings, backend="reference")
    meetings = []

    class Counted(groups.Meeting):
        def __init__(self) -> None:
            super().__init__()
            meetings.append(self)

    monkeypatch.setattr(groups, "Meeting", Counted)
    outcomes = list(group().run(jobs_of(tmp_path, catalog, settings, backend="reference")))
    assert {outcome.ending for outcome in outcomes} == {Ending.FINISHED}
    (met,) = meetings
    steps, batches = 12, 12 // 2 + 1  # evaluations of one batch each
    assert met.launches >= 2 * steps + batches, "forward, backward, and evaluations"
    for seed, (status, rows) in stored(tmp_path).items():
        assert status == expected[seed][0]
        for (*name, value), (*expected_name, expected_value) in zip(rows, expected[seed][1], strict=True):
            assert name == expected_name
            assert value == pytest.approx(expected_value, rel=1e-4, abs=1e-6), (seed, name)


def test_a_group_that_is_stopped_resumes_in_other_groups(tmp_path, tiny, catalog, looped):
    settings = [tiny | {"noise": noise} for noise in ("0.1", "0.2", "0.3")]
    expected = alone(tmp_path / "alone", catalog, settings)
    sink = Watched()
    outcomes = list(group(3, sink, lambda: sink.evaluations >= 10).run(jobs_of(tmp_path, catalog, settings)))
    assert [outcome.ending for outcome in outcomes] == [Ending.INTERRUPTED] * 3
    assert {status for status, _ in stored(tmp_path).values()} == {Status.INTERRUPTED}
    assert 0 < len(stored(tmp_path)[2][1]) < len(expected[2][1])
    assert list(group(2, stop=lambda: True).run(jobs_of(tmp_path, catalog, settings))) == []
    again = list(group(2).run(jobs_of(tmp_path, catalog, settings)))
    assert [outcome.ending for outcome in again] == [Ending.FINISHED] * 3
    assert stored(tmp_path) == expected


def test_a_second_request_ends_the_group_at_once(tmp_path, tiny, catalog, looped):
    """Here the consumer leaves, as a KeyboardInterrupt in the main thread makes it."""
    settings = [tiny | {"epochs": "30"}, tiny | {"fault": "1.0", "epochs": "30"}, tiny | {"epochs": "30"}]
    expected = alone(tmp_path / "alone", catalog, settings)
    running = group().run(jobs_of(tmp_path, catalog, settings))
    assert next(running).ending == Ending.FAILED
    running.close()
    assert [stored(tmp_path)[seed][0] for seed in range(3)] == [Status.INTERRUPTED, Status.FAILED, Status.INTERRUPTED]
    list(group().run(jobs_of(tmp_path, catalog, settings)))
    again = stored(tmp_path)
    assert (again[0], again[2]) == (expected[0], expected[2])


def test_what_lacks_memory_in_a_group_trains_alone_afterwards(tmp_path, tiny, catalog, looped, monkeypatch, caplog):
    settings = [tiny, tiny | {"fault": "2.0"}, tiny]
    expected = alone(tmp_path / "alone", catalog, settings)
    jobs = jobs_of(tmp_path, catalog, settings)
    model = jobs[1].resolve().model_class
    monkeypatch.setattr(model, "is_alone", False)
    executor = group()
    train_alone = executor.serial.run

    def alone_again(*arguments):
        model.is_alone = True
        return train_alone(*arguments)

    monkeypatch.setattr(executor.serial, "run", alone_again)
    outcomes = list(executor.run(jobs))
    assert [outcome.ending for outcome in outcomes] == [Ending.FINISHED] * 3
    assert outcomes[-1].job.label == "run 1"
    assert stored(tmp_path) == expected
    assert "it trains alone after its group" in caplog.text


class Rule:
    """A rule that prunes at once."""

    def should_prune(self, values: object) -> bool:
        return True


def test_a_pruned_run_leaves_the_others_alone(tmp_path, tiny, catalog, looped):
    settings = [tiny, tiny, tiny]
    expected = alone(tmp_path / "alone", catalog, settings)
    jobs = jobs_of(tmp_path, catalog, settings)
    jobs[1] = replace(jobs[1], rule=Rule())
    endings = {outcome.job.label: outcome.ending for outcome in group().run(jobs)}
    assert endings == {"run 0": Ending.FINISHED, "run 1": Ending.PRUNED, "run 2": Ending.FINISHED}
    rows = stored(tmp_path)
    assert (rows[0], rows[2]) == (expected[0], expected[2])
    assert rows[1][0] == Status.INTERRUPTED


def test_runs_of_equal_sizes_are_grouped(tiny):
    def config(model="scornn", seed=0, **settings):
        return resolve(Catalog(), "adding", model, tiny | settings, seed=seed)

    runs = [
        config(seed=0),
        config("rnn"),
        config(learning_rate="0.1"),
        config(hidden_size="9"),
        config(initialization="zeros", seed=3),
        config(epochs="4"),
        config(seed=5),
        config(activation="relu"),
    ]
    numbers = make_groups(range(len(runs)), runs.__getitem__, lambda _: 3)
    assert numbers == [[0, 2, 4], [1], [3], [5], [6], [7]]


@pytest.mark.parametrize(
    ("n", "batch", "runs"),
    [(170, 50, 2), (170, 20, 6), (170, 128, 1), (60, 20, 16), (256, 20, 6), (512, 50, 1), (360, 16, 11)],
)
def test_auto_fills_a_gpu_once(n, batch, runs):
    """132 multiprocessors, as the H100. Where each step is a launch, few runs lose to a CUDA graph."""
    assert runs_at_once(n, batch, 132) == runs


def test_auto_fits_in_the_memory(tiny, monkeypatch):
    config = resolve(Catalog(), "adding", "scornn", tiny | {"batch_size": "20", "hidden_size": "170"})
    properties = SimpleNamespace(multi_processor_count=132, total_memory=80 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert group_size(config, "auto", CUDA) == 6
    assert group_size(config, 3, CUDA) == 3
    properties.total_memory = 3 * 4 * groups.TENSORS * 10 * 20 * 170
    assert group_size(config, "auto", CUDA) == 2
    properties.total_memory = 1
    assert group_size(config, "auto", CUDA) == 1


def test_the_plan_shows_the_groups(tiny, monkeypatch, capsys):
    from orthobench.cli.display import TerminalDisplay

    monkeypatch.setenv("COLUMNS", "200")
    options = ExecutionOptions(gpu_batch=2)
    session = Session(None, "r.db", options, CUDA, at_once=1, display=Display())
    runs = [SweepRun(resolve(Catalog(), "adding", "lstm", tiny, seed=seed), {}) for seed in range(3)]
    plan = session.plan(runs, estimate=False)
    assert [[run.config.spec.seed for run in each] for each in plan.groups] == [[0, 1], [2]]
    TerminalDisplay().on_plan(plan)
    shown = capsys.readouterr().out.splitlines()
    keys = [run.config.spec.key for run in runs]
    assert shown[-2:] == [
        f"group 1 of 2: adding lstm, 2 runs together: {keys[0]} {keys[1]}",
        f"group 2 of 2: adding lstm, 1 run alone: {keys[2]}",
    ]


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", ""])
def test_a_size_of_no_runs_is_refused(text):
    with pytest.raises(UsageError, match="give a number of runs of at least 1, or auto"):
        parse_group_size(text)


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ({"executor": "ray"}, "--executor ray"),
        ({"jobs": 2}, "-j 2"),
        ({"gpu_share": 2}, "--gpu-share 2"),
        ({"cuda_graph": "on"}, "--cuda-graph on"),
    ],
)
def test_options_that_contradict_a_group_are_named(others, named):
    with pytest.raises(UsageError, match=f"leave {named} out"):
        ExecutionOptions(gpu_batch=2, **others)
    assert ExecutionOptions(gpu_batch="auto", jobs=0).gpu_batch == "auto"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--gpu-batch", "0"], "--gpu-batch 0: give a number of runs of at least 1, or auto"),
        (
            ["--gpu-batch", "2", "--device", "cpu"],
            "--gpu-batch is for runs on a GPU (gpu_batch=), and these are on the CPU",
        ),
        (["--gpu-batch", "2", "--device", "cpu", "--dry-run"], "--gpu-batch is for runs on a GPU"),
        (["--gpu-batch", "auto", "--executor", "ray"], "leave --executor ray out"),
    ],
)
def test_the_command_says_in_one_line_what_does_not_fit(orthobench, tiny_options, words, line, monkeypatch):
    monkeypatch.delenv("ORTHOBENCH_JOBS")
    outcome = orthobench("sweep", "adding", "--models", "rnn", *words, *tiny_options)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("error: ")
    assert line in outcome.err.splitlines()[-1]
    assert not Path("results.db").exists()


def test_a_session_trains_groups_and_a_signal_stops_them_with_their_checkpoints(tmp_path, tiny, catalog, looped):
    """The main thread waits for its runs and takes the signal; the same sweep ends with the numbers of an uncut one."""
    settings = [tiny | {"epochs": "6"}] * 3
    expected = alone(tmp_path / "alone", catalog, settings)
    runs = [SweepRun(job.resolve(), {}) for job in jobs_of(tmp_path, catalog, settings)]
    options = ExecutionOptions(device="cpu", gpu_batch=2, checkpoint_every=0.0, keep_weights="none")

    class Signalling(Watched):
        def on_evaluation(self, evaluation: object) -> None:
            super().on_evaluation(evaluation)
            if self.evaluations == 7:
                os.kill(os.getpid(), signal.SIGINT)

    class Shown(Display):
        def __init__(self, sink: Watched) -> None:
            self.sink = sink

        def open_jobs(self, count: int, in_this_process: bool) -> nullcontext[JobsDisplay]:
            assert not in_this_process, "a row for each of the runs that train at the same time"
            display = JobsDisplay()
            display.open_sink = lambda job: self.sink  # type: ignore[method-assign]
            return nullcontext(display)

    def sweep(sink: Watched) -> None:
        with open_store(str(tmp_path / "r.db"), create=True) as store:
            Session(store, str(tmp_path / "r.db"), options, CPU, at_once=1, display=Shown(sink)).sweep(runs)

    with pytest.raises(Stopped):
        sweep(Signalling())
    assert [status for status, _ in stored(tmp_path).values()] == [Status.INTERRUPTED] * 2, "the third has not started"
    sweep(Watched())
    assert stored(tmp_path) == expected
