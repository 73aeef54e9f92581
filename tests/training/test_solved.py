"""A run that stops when its task is solved is finished there, everywhere."""

from __future__ import annotations

import json

import pytest
from support.trained import KEEPING, rows, train_in, weights

import orthobench as ob
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve

QUICK = {"epochs": "4", "evaluate_every": "2", "probes": "heat_map"}


@pytest.fixture
def uninterrupted(tmp_path, tiny):
    """The settings of a run, its test values by iteration, and a limit that it first reaches in the middle."""
    settings = tiny | QUICK
    full = ob.run("adding", "rnn", db=str(tmp_path / "full.db"), settings=settings)
    with ob.open_results(str(tmp_path / "full.db")) as results:
        run = results.store.get(full.key)
        values = {row.iteration: row.value for row in results.store.metrics([run.id], split="test", name="mse")}
    best, reached = float("inf"), {}
    for iteration, value in values.items():
        if iteration and value < best:
            best, reached[iteration] = value, value
    at = next(i for i in reached if i >= full.total_iterations // 3)
    assert 0 < at < full.total_iterations
    return settings, full, at, repr(reached[at])


def test_solved_run_stops_training(tmp_path, uninterrupted):
    settings, full, at, limit = uninterrupted
    stopped = ob.run("adding", "rnn", db=str(tmp_path / "r.db"), settings=settings | {"solved_at": limit})
    assert (stopped.status, stopped.iterations, stopped.solved_at) == ("finished", at, at)
    assert stopped.message == f"solved at iteration {at}: mse reached solved_at"
    assert (full.solved_at, full.message) == (None, None)
    metrics, _ = rows(str(tmp_path / "full.db"), full.key)
    own, traces = rows(str(tmp_path / "r.db"), stopped.key)
    assert [row for row in own if row[0] == "test"] == [row for row in metrics if row[0] == "test" and row[3] <= at]
    assert at in {iteration for _, iteration, _ in traces}  # every probe measures the end


def test_initial_weights_are_not_judged(tmp_path, tiny):
    run = ob.run("adding", "rnn", db=str(tmp_path / "r.db"), settings=tiny | {"solved_at": "1e9"})
    assert run.iterations == int(tiny["evaluate_every"]) == run.solved_at


def test_maximised_metric_is_reached_from_below(tmp_path, tiny):
    settings = {"hidden_size": "4", "sequence_length": "4", "train_size": "40", "test_size": "20", "batch_size": "10"}
    below, above = (
        ob.run("copying", "rnn", db=str(tmp_path / "r.db"), settings=settings | {"epochs": "2", "solved_at": limit})
        for limit in ("1e-9", "1e9")
    )
    assert (below.solved_at, below.iterations) == (None, below.total_iterations)
    assert above.solved_at == above.iterations_per_epoch


@pytest.mark.parametrize("stop_before", [1, 2, 3])
def test_run_interrupted_before_the_solution_resumes_and_stops_there(tmp_path, uninterrupted, stop_before):
    settings, _, at, limit = uninterrupted
    config = resolve(Catalog(), "adding", "rnn", settings | {"solved_at": limit})
    (tmp_path / "cut").mkdir()
    uncut, metrics, _ = train_in(tmp_path, config)
    train_in(tmp_path / "cut", config, stop_at=at - stop_before)
    run, resumed, _ = train_in(tmp_path / "cut", config)
    assert (run.iterations, run.solved_at, resumed) == (at, at, metrics)
    assert run.final_value == uncut.final_value
    again, _, iterations = train_in(tmp_path / "cut", config)
    assert (again.key, iterations) == (run.key, [])


def test_stop_in_the_final_metrics_trains_no_further(tmp_path, uninterrupted, monkeypatch):
    settings, _, at, limit = uninterrupted
    config = resolve(Catalog(), "adding", "rnn", settings | {"solved_at": limit})
    (tmp_path / "cut").mkdir()
    monkeypatch.setattr(config.task_class, "final_metrics", lambda self, model, report: report(0, 1) or {})
    train_in(tmp_path / "cut", config, stop_at=at)
    run, _, iterations = train_in(tmp_path / "cut", config)
    assert (run.iterations, run.solved_at, [i for i in iterations if i > at]) == (at, at, [])


def test_longer_run_stops_at_the_same_iteration(tmp_path, uninterrupted):
    settings, _, at, limit = uninterrupted
    settings = settings | {"solved_at": limit}
    longer = settings | {"epochs": "9"}
    fresh = ob.run("adding", "rnn", db=str(tmp_path / "f.db"), settings=longer, options=KEEPING)
    short = ob.run("adding", "rnn", db=str(tmp_path / "r.db"), settings=settings, options=KEEPING)
    assert weights(str(tmp_path / "r.db"), short.key, "state")[0] == at
    long = ob.run("adding", "rnn", db=str(tmp_path / "r.db"), settings=longer, options=KEEPING, extend=True)
    assert (long.continued_from, long.iterations) == (short.key, at)
    assert rows(str(tmp_path / "r.db"), long.key) == rows(str(tmp_path / "f.db"), fresh.key)


def test_commands_name_the_iteration_of_the_solution(tmp_path, uninterrupted, orthobench):
    settings, _, at, limit = uninterrupted
    options = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    first = orthobench("run", "adding", "rnn", *options, "-s", f"solved_at={limit}")
    assert f"solved at iteration {at}" in first.out
    assert f"solved at iteration {at}" in first.err
    again = orthobench("run", "adding", "rnn", *options, "-s", f"solved_at={limit}")
    assert again.out == first.out
    (listed,) = json.loads(orthobench("ls", "--json").out)
    assert (listed["status"], listed["solved_at"]) == ("finished", at)
    assert "solved_at" in orthobench("ls").out
    plan = orthobench(
        "sweep", "adding", "--models", "rnn", *options, "-s", f"solved_at={limit}", "--seeds", "2", "--dry-run"
    )
    assert "less if solved earlier" in plan.out
    assert "1 of 2" in plan.out or "finished" in plan.out
    assert (
        orthobench("sweep", "adding", "--models", "rnn", *options, "-s", f"solved_at={limit}", "--seeds", "2").code == 0
    )


def test_end_of_a_solved_run_is_its_last_test(tmp_path, uninterrupted):
    """The median of the last tenth of the tests would reach back into training."""
    from orthobench.analysis.conditions import collect

    settings, _, _, limit = uninterrupted
    run = ob.run("adding", "rnn", db=str(tmp_path / "r.db"), settings=settings | {"solved_at": limit})
    with ob.open_results(str(tmp_path / "r.db")) as results:
        (condition,) = collect(results.store)
    (end,) = condition.variants[0].ends.values()
    assert end.tests == (run.final_value,)
