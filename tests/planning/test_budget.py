"""Runs within a time."""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orthobench.cli.records import show_duration
from orthobench.executors.job import Ending, Job
from orthobench.executors.processes import ProcessExecutor
from orthobench.executors.serial import SerialExecutor
from orthobench.options.arguments import parse_duration
from orthobench.planning.budget import Budget, by_priority, runs_within, span
from orthobench.planning.estimate import Estimate
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.system.location import Location


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("8h", 28_800),
        ("90m", 5_400),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("2d", 172_800),
        ("1.5h", 5_400),
        ("9s", 9),
    ],
)
def test_times_are_read_in_every_notation(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "8", "h", "8x", "0h", "30m1h", "-1h", "1h30", "1,5h", "eight hours"])
def test_invalid_time_is_refused(text):
    with pytest.raises(ValueError, match="write 8h, 90m or 1h30m"):
        parse_duration(text)


@given(st.integers(1, 10**7))
def test_displayed_time_is_read_back_to_its_second_unit(seconds):
    back = parse_duration(show_duration(seconds))
    unit = 1 if seconds < 3_600 else 60 if seconds < 86_400 else 3_600
    assert 0 <= seconds - back < unit


class One:
    """A planned run, as far as a budget looks at it."""

    def __init__(self, key, state="missing"):
        self.key, self.state = key, state
        self.is_pending = state not in ("finished", "running")
        self.config = self
        self.spec = self


def keys(runs):
    return [run.key for run in runs]


def test_begun_runs_come_first_and_failed_runs_last():
    states = ["failed", "missing", "finished", "stale", "interrupted", "missing", "running", "interrupted"]
    assert keys(by_priority([One(n, state) for n, state in enumerate(states)])) == [4, 7, 1, 3, 5, 0]


def estimates(*seconds):
    return {n: Estimate(run_seconds, None, "") for n, run_seconds in enumerate(seconds)}


@pytest.mark.parametrize(
    ("budget", "at_once", "taken"),
    [
        (100, 1, [0, 1, 2, 3]),
        (60, 1, [0, 1, 2]),
        (45, 1, [0, 1]),
        (25, 1, [0, 3]),  # the second does not fit, the last does
        (9, 1, []),
        (30, 2, [0, 1, 2]),  # ten and thirty, twenty next to the thirty
        (45, 2, [0, 1, 2, 3]),
    ],
)
def test_runs_that_fit_are_taken_in_order(budget, at_once, taken):
    runs = [One(n) for n in range(4)]
    assert keys(runs_within(runs, estimates(10, 30, 20, 15), budget, at_once)) == taken


def test_run_without_an_estimate_is_left_out():
    assert keys(runs_within([One(0), One(1)], estimates(None, 3), 10)) == [1]


@given(st.lists(st.floats(0.1, 100), max_size=8), st.floats(1, 300), st.integers(1, 4))
def test_selected_runs_never_exceed_the_budget(seconds, budget, at_once):
    """The longest, and the sum over all places; and one place alone takes whatever still fits."""
    known = estimates(*seconds)
    taken = keys(runs_within([One(n) for n in known], known, budget, at_once))
    assert sum(seconds[n] for n in taken) <= at_once * budget * (1 + 1e-12)
    if at_once == 1:
        left = budget - sum(seconds[n] for n in taken)
        assert all(seconds[n] > left - 1e-9 for n in known if n not in taken)


def test_budget_is_spent_when_its_time_is_over():
    now = [5.0]
    budget = Budget(10.0, lambda: now[0])
    assert not budget.is_spent()
    now[0] = 14.9
    assert not budget.is_spent()
    now[0] = 15.0
    assert budget.is_spent()


@given(st.lists(st.floats(0, 100), max_size=8), st.integers(1, 4))
def test_time_of_parallel_runs_stays_in_grahams_bound(seconds, at_once):
    """As long as the longest, as the sum's share, and Graham's bound on this order (1966)."""
    together = span(seconds, at_once)
    longest, share = max(seconds, default=0.0), sum(seconds) / at_once
    assert max(longest, share) - 1e-9 <= together <= share + longest * (1 - 1 / at_once) + 1e-9


class Watching:
    """An observer of nothing."""

    def __getattr__(self, _):
        return lambda *_, **__: None


@pytest.mark.parametrize("side_by_side", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_run_starts_after_the_budget_is_spent(tmp_path, tiny, side_by_side):
    """And the one under way goes on to its end."""
    jobs = [
        Job(resolve(Catalog(), "adding", "rnn", tiny, seed=seed).spec, f"seed {seed}", Location(str(tmp_path / "r.db")))
        for seed in range(3)
    ]
    started = []

    def watch(job):
        started.append(job.label)
        return nullcontext(Watching())

    with open_store(str(tmp_path / "r.db"), create=True) as store:
        executor = (
            ProcessExecutor(store, [None], 1, watch, lambda: False, print)
            if side_by_side
            else SerialExecutor(store, watch, lambda: False)
        )
        outcomes = list(executor.run(jobs, lambda: not started))
    assert [(outcome.job.label, outcome.ending) for outcome in outcomes] == [("seed 0", Ending.FINISHED)]


def test_no_process_starts_after_the_budget_is_spent(tmp_path, tiny):
    job = Job(resolve(Catalog(), "adding", "rnn", tiny).spec, "", Location(str(tmp_path / "r.db")))
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        executor = ProcessExecutor(store, [None, None], 2, lambda job: pytest.fail("started"), lambda: False, print)
        assert list(executor.run([job], lambda: False)) == []


def test_sweep_within_a_budget_trains_what_fits_and_names_the_rest(orthobench, tmp_path, tiny_options):
    """The runs that fit are made, the others are named; their times are made up."""
    sweep = ("sweep", "adding", *tiny_options, "--no-profile")
    assert orthobench(*sweep, "--models", "rnn,lstm").code == 0
    with open_store(str(tmp_path / "results.db")) as store:
        for run in store.runs():
            store.update(run.id, {"seconds": {"train": 3000.0 if run.model == "rnn" else 900.0}, "peak_memory": 2**30})
    command = (*sweep, "--models", "rnn,lstm", "--seeds", "3", "--budget", "1h40m")
    dry = orthobench(*command, "--dry-run")
    assert len(re.findall(r"missing +~ 50m +1024 MiB +run", dry.out)) == 1
    assert len(re.findall(r"missing, left out +~ 50m +1024 MiB +run", dry.out)) == 1
    assert len(re.findall(r"missing +~ 15m +1024 MiB +run", dry.out)) == 2
    assert "to train: 4 runs, about 2h 10m one after the other, at most 1024 MiB" in dry.out
    assert "within 1h 40m: 3 runs, about 1h 20m one after the other, at most 1024 MiB, " in dry.out
    assert "the budget leaves out 1 of 6 runs\n" in dry.out
    outcome = orthobench(*command)
    assert outcome.code == 0
    assert outcome.err.count("epoch 3.00") == 3
    assert "5 finished, 1 missing" in orthobench(*command, "--dry-run").out


def test_quiet_sweep_says_what_its_budget_leaves_out(orthobench, tmp_path, tiny_options):
    sweep = ("sweep", "adding", *tiny_options, "--no-profile", "--models", "rnn", "--quiet")
    outcome = orthobench(*sweep, "--budget", "8h")
    assert outcome.code == 0
    line = "the budget leaves out 1 of 1 run, 1 of them because their time cannot be estimated\n"
    assert outcome.err == line


def test_sweep_whose_budget_is_too_short_for_any_run_ends_quietly(orthobench, tiny_options):
    sweep = ("sweep", "adding", *tiny_options, "--no-profile", "--models", "rnn")
    outcome = orthobench(*sweep, "--budget", "8h")
    assert (outcome.code, "the page" in outcome.out) == (0, False)
    assert "the budget leaves out 1 of 1 run" in outcome.out


def test_plan_reports_too_little_memory(orthobench, tmp_path, tiny_options, monkeypatch):
    sweep = ("sweep", "adding", *tiny_options, "--no-profile", "--models", "rnn")
    assert orthobench(*sweep).code == 0
    with open_store(str(tmp_path / "results.db")) as store:
        (run,) = store.runs()
        store.update(run.id, {"peak_memory": 2**30})

    def planned(memory: int, *options: str) -> str:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=memory))
        return orthobench(*sweep, "--seeds", "3", "--dry-run", *options).out

    less = "smaller batches need less)"
    assert f"at most 1024 MiB, more than this machine's 512 MiB ({less}" in planned(2**29, "-j", "1")
    both = f"at most 2048 MiB, more than this machine's 2047 MiB (fewer runs at once (-j) or {less}"
    assert both in planned(2**31 - 2**20, "-j", "2")
    enough = planned(2**31, "-j", "2")
    assert "at most 2048 MiB" in enough
    assert less not in enough


def test_sweep_with_a_spent_budget_trains_nothing_more(orthobench, tmp_path, tiny_options, monkeypatch):
    sweep = ("sweep", "adding", *tiny_options, "--no-profile", "--models", "rnn")
    assert orthobench(*sweep).code == 0
    monkeypatch.setattr(Budget, "is_spent", lambda self: True)
    outcome = orthobench(*sweep, "--seeds", "3", "--budget", "8h")
    assert outcome.code == 0
    assert "the budget is spent: 2 runs are left for another time" in outcome.err
    assert "epoch" not in outcome.err


def test_invalid_budget_starts_nothing(orthobench, tmp_path, tiny_options):
    outcome = orthobench("sweep", "adding", "--models", "rnn", "--budget", "8")
    assert (outcome.code, list(tmp_path.iterdir())) == (2, [])
    assert outcome.err == "error: --budget '8' is not a time: write 8h, 90m or 1h30m\n"
