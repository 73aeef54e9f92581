"""Estimates, against what is reckoned by hand from made-up histories; and steps that leave no trace."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch
from support.records import run_record

from orthobench.analysis.experience import Experience
from orthobench.errors import UsageError
from orthobench.executors import profile
from orthobench.executors.job import Job
from orthobench.executors.profile import profile_job, profile_run
from orthobench.planning.estimate import Estimate, Estimator
from orthobench.planning.sweep_runs import PlannedRun, plan
from orthobench.plugins import Catalog
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.store import Environment, Store, open_store
from orthobench.store.merge import opened_unchanged
from orthobench.system import environment
from orthobench.system.location import Location

CATALOG = Catalog()
CPU = torch.device("cpu")
CHECKOUT = Path(__file__).parents[2]
HERE = {name: environment.describe(CPU)[name] for name in ("cpu", "cpu_model", "accelerator")}


def run(model: str = "scornn", seed: int = 0, **settings) -> RunConfig:
    base = {"sequence_length": "100", "train_size": "1000", "batch_size": "50", "epochs": "4", "hidden_size": "32"}
    return resolve(CATALOG, "adding", model, base | {k: str(v) for k, v in settings.items()}, seed=seed)


@pytest.fixture
def store(tmp_path: Path):
    with open_store(str(tmp_path / "r.db"), create=True) as opened:
        yield opened


def enter(store: Store, config: RunConfig, iterations: int, total: int, seconds: dict[str, float], **columns) -> str:
    spec = config.spec
    facts = {name: columns.pop(name) for name in (*HERE, "threads") if name in columns}
    device = columns.pop("device", "cpu")
    record = run_record(spec, device=device, total_iterations=total, iterations_per_epoch=20)
    entered = store.start(record, {**HERE, "threads": 1, **facts})
    status = "finished" if iterations == total else "interrupted"
    store.update(entered.id, {"iterations": iterations, "seconds": seconds, "status": status, **columns})
    return spec.key


def planned(store: Store | None, *runs: RunConfig) -> list[PlannedRun]:
    return plan([(config, {}) for config in runs], store, Path("nowhere"))


def tried(config: RunConfig, seconds: float, weights: int = 0) -> Experience:
    """Return the profile of a run of 80 iterations, 20 in an epoch, which takes this many seconds."""
    return Experience(config.spec.settings, {}, seconds / 80, 20, 7, "3 steps tried", weights)


def estimate(store: Store | None, config: RunConfig, profile=None) -> Estimate:
    (planned_run,) = planned(store, config)
    return Estimator(store, CPU, profile).of(planned_run)


def test_begun_run_is_estimated_from_itself(store):
    enter(store, run(seed=1), 80, 80, {"train": 800.0})
    enter(store, run(), 30, 80, {"train": 50.0, "test": 9.0, "log": 1.0}, peak_memory=2**30)
    assert estimate(store, run()) == Estimate(100.0, 2**30, "its own 30 of 80 iterations")


def test_run_begun_on_another_device_is_ignored(store):
    enter(store, run(), 30, 80, {"train": 50.0}, device="cuda")
    assert estimate(store, run()).seconds is None


def test_finished_run_is_not_pending(store):
    enter(store, run(), 80, 80, {"train": 8.0})
    assert not planned(store, run())[0].is_pending


def test_another_seed_is_estimated_from_the_first(store):
    key = enter(store, run(), 80, 80, {"train": 30.0, "test": 10.0}, peak_memory=5)
    assert estimate(store, run(seed=1)) == Estimate(40.0, 5, f"run {key[:8]}")


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({"epochs": 8}, 80.0),
        ({"train_size": 500}, 20.0),
        ({"train_size": 10_000, "max_iterations": 100}, 50.0),
        ({"batch_size": 40}, 50.0),  # 25 iterations an epoch
        ({"learning_rate": 1e-5}, 40.0),
        ({"hidden_size": 40, "negative_ones": 16}, 40.0),
        ({"sequence_length": 150}, 60.0),
        ({"sequence_length": 60}, 24.0),
    ],
)
def test_time_scales_with_the_iterations(store, changes, seconds):
    enter(store, run(), 80, 80, {"train": 40.0})
    assert estimate(store, run(**changes)).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("task", "first", "second", "same"),
    [
        ("timit", {"dataset": "timit_sample"}, {"dataset": "timit"}, False),  # 8 training files, and 3,696
        ("ptb", {}, {"text": "book.txt"}, False),
        ("ptb", {}, {"unroll_length": "100"}, False),  # half as many pieces again
        ("ptb", {"text": "book.txt"}, {"text": "copy.txt"}, True),
        ("timit", {}, {"audio_metrics": "false"}, True),
        ("mnist", {}, {"dataset": "fashion"}, True),  # train_size counts its images
    ],
)
def test_another_data_set_gives_no_estimate(store, tmp_path, monkeypatch, task, first, second, same):
    monkeypatch.chdir(tmp_path)
    for name in ("book.txt", "copy.txt"):
        (tmp_path / name).write_text("to be or not to be\n", "utf-8")
    known, config = (resolve(CATALOG, task, "scornn", settings) for settings in (first, second))
    enter(store, known, 80, 80, {"train": 40.0})
    assert (estimate(store, config).seconds is not None) is same


PARTIAL = """
from orthobench.settings import Settings
from orthobench.tasks.adding import Adding


class PartialSettings(Settings):
    sequence_length: int = 100
    share: float = 1.0
    train_size: int | None = None


class Partial(Adding):
    title = "a part of some data"
    Settings = PartialSettings
"""


@pytest.mark.parametrize(
    ("first", "second", "seconds"),
    [
        ({}, {}, 40.0),
        ({"share": "0.1"}, {}, None),  # a tenth of the iterations
        ({"train_size": "1000"}, {}, None),  # none: all there are
        ({}, {"train_size": "1000"}, None),
        ({"train_size": "1000"}, {"train_size": "2000"}, 80.0),
    ],
)
def test_task_from_outside_is_estimated_only_from_as_much_data(store, tmp_path, first, second, seconds):
    """Its `train_size` may be unset, and a share may say how much it reads."""
    (tmp_path / "partial.py").write_text(PARTIAL)
    catalog = Catalog([tmp_path / "partial.py"])
    fixed = {"batch_size": "50", "epochs": "4"}
    known, config = (resolve(catalog, "partial", "scornn", fixed | settings) for settings in (first, second))
    if first == second:
        config = resolve(catalog, "partial", "scornn", fixed | second, seed=1)
    enter(store, known, 80, 80, {"train": 40.0})
    assert estimate(store, config).seconds == seconds


def test_time_is_proportional_to_the_longest_word(store):
    known, config = (
        resolve(CATALOG, "group_word", "scornn", {"longest": longest, "train_size": "1000", "epochs": "1"})
        for longest in ("20", "30")
    )
    enter(store, known, 80, 80, {"train": 40.0})
    settings = config.spec.settings
    iterations = round(20 * known.spec.settings["batch_size"] / settings["batch_size"])
    assert estimate(store, config).seconds == pytest.approx(1.5 * 0.5 * iterations)


def test_estimate_uses_the_nearest_run(store):
    for size, spent in ((24, 10.0), (36, 20.0), (60, 30.0)):
        enter(store, run(hidden_size=size, negative_ones=5), 80, 80, {"train": spent})
    estimated_seconds = [estimate(store, run(hidden_size=n, negative_ones=5)).seconds for n in (20, 28, 32, 40, 50)]
    assert estimated_seconds == pytest.approx([10.0, 10.0, 20.0, 20.0, 30.0])


def test_newest_of_equally_near_runs_counts(store):
    keys = [enter(store, run(seed=1 + i), 80, 80, {"train": time}) for i, time in enumerate((30.0, 10.0))]
    assert estimate(store, run()) == Estimate(10.0, None, f"run {keys[1][:8]}")
    enter(store, run(seed=3, learning_rate=1e-5), 80, 80, {"train": 20.0})  # newer, and a little further
    assert estimate(store, run()).seconds == 10.0


def test_estimate_leaves_out_a_run_that_two_machines_have_trained(store):
    """Its seconds are a sum: nobody knows how long an iteration took on either. Its own rest has no estimate either."""
    key = enter(store, run(seed=1), 40, 80, {"train": 40.0})
    for iteration in (-1, 20):
        store.rewind(store.get(key).id, iteration, f"t{iteration}")
    assert estimate(store, run()).seconds == estimate(store, run(seed=1)).seconds * 2 == 80.0
    store.start(run_record(run(seed=1).spec), {"cpu": "another CPU"})
    store.rewind(store.get(key).id, 30, "t")
    store.start(run_record(run(seed=1).spec), HERE)
    store.rewind(store.get(key).id, 35, "u")
    store.update(store.get(key).id, {"status": "interrupted"})
    assert store.get(key).machines == [Environment(facts=HERE).machine, "another CPU"]
    assert estimate(store, run()).seconds is None
    assert estimate(store, run(seed=1)).seconds is None


def test_estimate_uses_cpu_time_of_a_run_on_a_busy_machine(store):
    enter(store, run(seed=1), 80, 80, {"train": 30.0, "test": 10.0, "cpu": 16.0})
    assert estimate(store, run()).seconds == pytest.approx(16.0)
    enter(store, run(seed=1, hidden_size=64), 80, 80, {"train": 30.0, "test": 10.0, "cpu": 16.0}, threads=2)
    assert estimate(store, run(hidden_size=64)).seconds == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("config", "columns"),
    [
        (run("lstm"), {}),
        (run(hidden_size=64, negative_ones=16), {}),
        (run(bandwidth=4), {}),
        (run(probes="jacobian"), {}),
        (run(seed=1), {"device": "cuda"}),
        (run(seed=1), {"cpu": "Zilog Z80"}),
        (run(seed=1), {"cpu_model": "8/0/0"}),
        (run(seed=1), {"seconds": {}}),
    ],
    ids=["model", "twice the size", "banded", "probes", "device", "processor", "same name", "no time"],
)
def test_distant_run_gives_no_estimate(store, config, columns):
    enter(store, config, 80, 80, **({"seconds": {"train": 40.0}} | columns))
    assert estimate(store, run()) == Estimate(None, None, "no run like it yet")


def test_unknown_run_is_timed_once(store):
    sizes = []

    def pace(planned_run):
        sizes.append(planned_run.config.spec.model_settings["hidden_size"])
        return tried(planned_run.config, 8.0)

    estimator = Estimator(store, CPU, pace)
    runs = [run(), run(seed=1), run(learning_rate=1e-5), run(epochs=2), run(hidden_size=128), run(hidden_size=128)]
    estimates = [estimator.of(planned_run) for planned_run in planned(store, *runs)]
    assert sizes == [32, 128]
    assert [run_estimate.seconds for run_estimate in estimates] == pytest.approx([8.0, 8.0, 8.0, 4.0, 8.0, 8.0])
    assert estimates[0] == Estimate(8.0, 7, "3 steps tried")


@pytest.mark.parametrize(("keep_weights", "size"), [("none", 0), ("best", 2250), ("last", 11_250), ("both", 13_500)])
def test_kept_weights_grow_with_the_square_of_the_hidden_size(store, keep_weights, size):
    """The profile has 1,000 bytes with 32 units, so 48 units have (48 / 32)^2 = 2.25 times as many in each copy."""
    estimator = Estimator(store, CPU, lambda planned_run: tried(planned_run.config, 8.0, weights=1000), keep_weights)
    known, larger = planned(store, run(negative_ones=16), run(hidden_size=48, negative_ones=16))
    estimator.of(known)
    assert estimator.of(larger).weights == size


def test_impossible_estimate_states_its_reason_once(store):
    """And that it is not tried again for every seed."""
    failed = []

    def fail(planned_run):
        failed.append(planned_run)
        raise UsageError("mnist is not installed")

    estimator = Estimator(None, CPU, fail)
    estimates = [estimator.of(planned_run) for planned_run in planned(None, run(), run(seed=1))]
    assert estimates == [Estimate(None, None, "mnist is not installed")] * 2
    assert len(failed) == 1


def test_accuracy_over_the_shipped_runs_matches_the_documents():
    """Nine in ten estimates are within a factor of 1.5, because the CPU time of most runs is known."""
    script = runpy.run_path(str(CHECKOUT / "workshop" / "benchmarks" / "estimate_accuracy.py"))
    with opened_unchanged(str(CHECKOUT / "results.db")) as store:
        measured = script["accuracy"](store.runs(), earlier_only=False)
        repeated = script["repeats"](store.runs())
    assert len(measured.ratios) > 900
    assert 0.85 < measured.within(1.5) < 0.95
    assert measured.within(3) > 0.95
    (near, _), (far, _) = repeated.values()
    assert near > 0.9
    assert 0.5 < far < 0.7


def test_steps_are_counted_and_timed(tiny):
    config = resolve(CATALOG, "adding", "lstm", tiny | {"train_size": "300", "test_size": "95"})
    pace = profile_run(config)
    assert (pace.name, pace.iterations_per_epoch) == ("3 steps tried", 30)
    assert pace.seconds_per_iteration > 0
    assert pace.memory > 2**20
    assert profile_run(resolve(CATALOG, "adding", "lstm", tiny | {"max_iterations": "1"})).name == "one step timed"


def test_profile_counts_every_step_and_every_evaluation(tiny, monkeypatch):
    """Each step, and each batch of an evaluation, takes 2 seconds.

    90 steps take 180 seconds. The run evaluates at iterations 0, 20, 30, 40, 60, 80 and 90, because every epoch has 30.
    The 95 examples are 5 batches of 20. So the 7 evaluations take 70 seconds.
    """
    monkeypatch.setattr(profile, "_seconds", lambda function, device: 2.0)
    sizes = {"train_size": "300", "test_size": "95", "evaluation_batch_size": "20", "evaluate_every": "20"}
    # With the 40 examples of validation, 2 batches, whose 7 evaluations take 28 seconds: alone, or next to the tests.
    for judged, seconds in (
        ({}, 250.0),
        ({"validation_size": "40", "judged_by": "validation_only"}, 208.0),
        ({"validation_size": "40", "judged_by": "validation"}, 278.0),
    ):
        config = resolve(CATALOG, "adding", "rnn", tiny | sizes | judged)
        assert 90 * profile_run(config).seconds_per_iteration == pytest.approx(seconds)


def test_streams_and_validation_sets_are_timed(small_data):
    for task, settings in (("ptb", {"batch_size": "2"}), ("mnist", {"batch_size": "5", "validation_size": "10"})):
        overrides = settings | {"hidden_size": "4", "evaluation_batch_size": "2"}
        assert profile_run(resolve(CATALOG, task, "rnn", overrides, "quick")).seconds_per_iteration > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("states", "message"),
    [
        (
            "raise ArithmeticError('on purpose')",
            "its first steps failed: wrong.py:4 raises ArithmeticError: on purpose",
        ),
        ("os._exit(9)", "ended the process"),
    ],
    ids=["error", "death"],
)
def test_failure_in_the_first_steps_is_reported_and_ends_nothing_else(tmp_path, states, message):
    file = tmp_path / "wrong.py"
    file.write_text(
        "import os, orthobench.models.rnn as rnn\n"
        f"class Wrong(rnn.RNN):\n    title = 'wrong'\n    def states(self, *_): {states}\n"
    )
    config = resolve(Catalog([file]), "adding", "wrong", {"train_size": "200", "test_size": "50"})
    with pytest.raises(UsageError, match=message):
        profile_job(Job(config.spec, "a run", database=Location(""), plugins=config.catalog.files))


@pytest.mark.slow
def test_dry_run_shows_estimates_and_leaves_nothing(orthobench, tmp_path, tiny_options):
    command = ("sweep", "adding", "--models", "rnn", "--seeds", "3", *tiny_options)
    dry = orthobench(*command, "--dry-run")
    assert dry.code == 0
    assert dry.err.count("trying a few steps of rnn") == 1
    assert len(re.findall(r"missing +~ 1s +\d+ MiB +3 steps tried", dry.out)) == 3
    assert re.search(r"to train: 3 runs, about \d+s one after the other, at most \d+ MiB", dry.out)
    assert list(tmp_path.iterdir()) == []
    assert orthobench(*command[:4], *tiny_options).code == 0
    later = orthobench(*command, "--dry-run")
    assert later.err == ""
    assert len(re.findall(r"missing +~ 1s +\d+ MiB +run [0-9a-f]{8}", later.out)) == 2
    assert "1 finished, 2 missing" in later.out
    assert (
        "~ 1s" not in orthobench("sweep", "adding", "--models", "lstm", *tiny_options, "--dry-run", "--no-profile").out
    )
