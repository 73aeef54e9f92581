"""A search: its trials are ordinary runs, drawn alike whenever it is cut off, and cut short only in sight."""

from __future__ import annotations

import json
import math
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.sweeps import slow_model, wait_for

from orthobench.api.commands import reproduce
from orthobench.errors import UsageError
from orthobench.planning.search import Search, Trial
from orthobench.planning.space import Space
from orthobench.plugins import Catalog
from orthobench.settings import digest
from orthobench.spec.model_sizes import Counter
from orthobench.store import open_store

pytest.importorskip("optuna", reason="optuna is not installed")

GRID = ("--grid", "learning_rate=1e-5..1e-1:log", "--grid", "hidden_size=4..8")
CATALOG = Catalog()


@pytest.fixture
def command(tiny_options) -> list[str]:
    """A search of small runs, six tests each."""
    return ["tune", "adding", "--models", "lstm", *tiny_options[:-2], *GRID]


def stored_runs(name: str = "results.db") -> list[tuple[str, str, str | None, float | None, int]]:
    """Return the key, status, message, final value and iterations of every run, in the order of their starts."""
    with open_store(name) as store:
        return [(run.key, run.status, run.message, run.final_value, run.iterations) for run in store.runs()]


def a_search(*grid: str, **overrides: str) -> Search:
    return Search(CATALOG, "adding", "lstm", overrides, "paper", Space(grid), prune=True)


# Drawing


def with_result(trial: Trial, value: float | None) -> Trial:
    """A trial with a result: a number, or none for one that diverged."""
    return replace(trial, state="diverged") if value is None else replace(trial, state="finished", bests=[value])


def drawn(search: Search, count: int, result) -> list[Trial]:
    trials: list[Trial] = []
    for _ in range(count):
        trial = search.draw(trials, 1)
        assert trial is not None
        trials.append(with_result(trial, result(trial.settings)))
    return trials


def test_later_draws_are_nearer_to_the_best(monkeypatch):
    """Of a bowl around 1e-3 in the logarithm, with what is above 3e-2 diverging."""

    def distance(chosen):
        rate = float(chosen["learning_rate"])
        return None if rate > 3e-2 else abs(math.log10(rate) + 3)

    search = a_search("learning_rate=1e-6..1:log", "clip_norm=1,none")
    trials = drawn(search, 40, distance)
    near = [abs(math.log10(float(trial.settings["learning_rate"])) + 3) < 0.5 for trial in trials]
    assert sum(near[10:]) >= 12  # of 30; by chance, 5 are expected and 12 come once in a thousand times
    assert len({trial.key for trial in trials}) == 40

    monkeypatch.setattr(search.task_class, "metrics", (replace(search.metric, goal="max"),))
    turned = drawn(search, 40, lambda chosen: None if distance(chosen) is None else -distance(chosen))
    assert [trial.settings for trial in turned] == [trial.settings for trial in trials]


def test_every_point_is_drawn_once():
    search = a_search("hidden_size=4,8,16", "learning_rate=1e-3,0.001,1e-2")  # two of which are the same
    trials = drawn(search, 6, lambda chosen: float(chosen["hidden_size"]))
    assert len({trial.key for trial in trials}) == 6
    assert search.draw(trials, 1) is None


def test_incompatible_settings_are_skipped():
    search = Search(CATALOG, "adding", "scornn", {}, "paper", Space(["n=8,16", "rho=4,12"]), prune=True)
    trials = drawn(search, 3, lambda chosen: 1.0)
    assert sorted((trial.settings["n"], trial.settings["rho"]) for trial in trials) == [
        ("16", "12"),
        ("16", "4"),
        ("8", "4"),
    ]
    assert search.draw(trials, 1) is None
    with pytest.raises(UsageError, match="negative_ones"):
        Search(CATALOG, "adding", "scornn", {}, "paper", Space(["n=8,16", "rho=20,24"]), prune=True).draw([], 1)


# Trials


@pytest.mark.slow
def test_interrupted_search_has_the_trials_of_an_uninterrupted_one(orthobench, command):
    uncut = orthobench(*command, "--trials", "9", "--db", "uncut.db")
    assert uncut.code == 0
    for trials in ("1", "6", "9"):
        assert orthobench(*command, "--trials", trials, "--db", "cut.db").code == 0
    runs = stored_runs("uncut.db")
    assert len(runs) == 9
    assert stored_runs("cut.db") == runs

    again = orthobench(*command, "--trials", "9", "--db", "uncut.db")
    assert ", 0 to come" in again.out
    assert stored_runs("uncut.db") == runs

    # the pruned ones are interrupted runs, and say why
    pruned = {key: (message, at) for key, status, message, _, at in runs if status == "interrupted"}
    assert pruned
    listed = {run["run"]: run["status"] for run in json.loads(orthobench("ls", "--json", "--db", "uncut.db").out)}
    for key, (message, at) in pruned.items():
        assert message == f"pruned at iteration {at}"
        assert message in uncut.out
        assert 0.25 * 12 <= at < 12
        assert listed[key] == "interrupted"
    assert [status for _, status, *_ in runs[:5]] == ["finished"] * 5  # there was nobody to judge them

    # asked for, one goes on to the end, with the numbers of a run that was never stopped
    with open_store("uncut.db") as store:
        words = shlex.split(reproduce(store.get(next(iter(pruned))).spec))
    ended = []
    for name in ("uncut.db", "whole.db"):
        assert orthobench(*words[1:], "--db", name).code == 0
        ended.append({run[0]: run for run in stored_runs(name)}[next(iter(pruned))])
    assert ended[0] == ended[1]
    assert ended[0][1] == "finished"


@pytest.mark.slow
def test_search_on_a_server_continues_like_one_in_a_file(orthobench, command, postgres):
    for trials in ("1", "3"):
        assert orthobench(*command, "--trials", trials, "--db", postgres).code == 0
    assert orthobench(*command, "--trials", "3").code == 0
    assert stored_runs(postgres) == stored_runs()
    assert len(stored_runs()) == 3


def test_printed_command_trains_the_best_trial(orthobench, command):
    assert orthobench(*command, "--trials", "2").code == 0
    outcome = orthobench(*command, "--trials", "3", "--tag", "tuned")
    with open_store("results.db") as store:
        assert [run.tags for run in store.runs()] == [["tuned"]] * 3
        values = {run.key: min(row.value for row in store.metrics([run.id], "test", "mse")) for run in store.runs()}
    best = min(values, key=values.__getitem__)
    shown = [line.split()[1] for line in outcome.out.splitlines() if line.split()[1:2] and line.split()[1] in values]
    assert shown == sorted(values, key=values.__getitem__)
    assert "selected on the test set" in outcome.out
    words = shlex.split(outcome.out.splitlines()[-1])
    assert words[-2:] == ["--seeds", "5"]
    assert orthobench(*words[1:-1], "2").code == 0
    with open_store("results.db") as store:
        assert [run.seed for run in store.runs() if run.variant == store.get(best).variant] == [0, 1]
        assert len(store.runs()) == 4


def test_validation_split_decides_if_the_task_has_one(orthobench, small_data):
    sizes = {"validation_size": 20, "train_size": 40, "test_size": 10, "batch_size": 10, "epochs": 2, "hidden_size": 4}
    options = [word for name, value in sizes.items() for word in ("-s", f"{name}={value}")]
    search = ["tune", "mnist", "rnn", "--trials", "3", "--grid", "learning_rate=1e-3..1:log"]
    outcome = orthobench(search[0], search[1], "--models", *search[2:], *options)
    assert outcome.code == 0
    assert "highest accuracy" in outcome.out
    assert "selected on the test set" not in outcome.out
    with open_store("results.db") as store:
        values = {
            run.key: max(row.value for row in store.metrics([run.id], "valid", "accuracy")) for run in store.runs()
        }
    first = next(line.split() for line in outcome.out.splitlines() if line.split()[1:2] and line.split()[1] in values)
    assert values[first[1]] == max(values.values())
    assert float(first[-1]) == pytest.approx(max(values.values()), rel=1e-3)


FLAKY = """
import os
from orthobench.models.rnn import RNN

class Flaky(RNN):
    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        if settings.hidden_size == 5 and os.environ.get("FAILS"):
            self.after_step = self.fail

    def fail(self):
        raise RuntimeError("out of luck")
"""


@pytest.mark.slow
def test_failed_trial_does_not_end_the_search_and_is_retried(orthobench, tiny_options, tmp_path, monkeypatch):
    (tmp_path / "flaky.py").write_text(FLAKY)
    command = ["tune", "adding", "--models", "flaky", "--plugin", "flaky.py", "--trials", "9"]
    command += ["--grid", "hidden_size=4,5,6", *tiny_options[:-2]]
    monkeypatch.setenv("FAILS", "yes")
    outcome = orthobench(*command)
    assert outcome.code == 1
    assert "out of luck" in outcome.err
    assert "1 of 3 runs failed" in outcome.err
    assert "the space has only these 3 points" in outcome.out
    assert sorted(status for _, status, *_ in stored_runs()) == ["failed", "finished", "finished"]

    monkeypatch.delenv("FAILS")
    assert orthobench(*command).code == 0
    assert [status for _, status, *_ in stored_runs()] == ["finished"] * 3


def test_diverged_trial_is_a_result_but_never_the_best(orthobench, tiny_options):
    command = ["tune", "adding", "--models", "rnn", "--trials", "2", *tiny_options]
    outcome = orthobench(*command, "--grid", "learning_rate=1e-3,1e30")
    assert outcome.code == 0
    assert sorted(status for _, status, *_ in stored_runs()) == ["diverged", "finished"]
    assert "learning_rate=1e-3" in outcome.out.splitlines()[-1]
    dry_output = orthobench(*command, "--grid", "learning_rate=1e-3,1e30", "--dry-run").out
    assert "2 trials, 1 finished, 1 diverged, 0 to come" in dry_output.replace(
        "1 diverged, 1 finished", "1 finished, 1 diverged"
    )
    assert dry_output.splitlines()[-1] == "to train: 0 runs"


# The command


def test_dry_run_lists_the_trials_and_writes_nothing(orthobench, command, tmp_path):
    outcome = orthobench(*command, "--trials", "7", "--dry-run", "--no-profile")
    assert outcome.code == 0
    assert "learning_rate=1e-5..1e-1:log" in outcome.out
    assert "7 trials, 7 to come" in outcome.out
    assert "to train: 7 runs without an estimate" in outcome.out
    assert list(tmp_path.iterdir()) == []


def test_dry_run_estimates_the_remaining_time(orthobench, command):
    assert orthobench(*command, "--trials", "2", "-j", "0").code == 0
    dry_output = orthobench(*command, "--trials", "7", "--dry-run", "--no-profile").out
    assert "7 trials, 2 finished, 5 to come" in dry_output
    assert "to train: 5 runs, about " in dry_output
    assert len(stored_runs()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", "adding", "--models", "lstm"], "say what to search"),
        (["tune", "adding", "--models", "lstm", "--seeds", "2"], "No such option: --seeds"),
        (["tune", "adding", "--models", "lstm", "--grid", "hiden_size=4..8"], "did you mean hidden_size"),
        (["tune", "adding", "--models", "lstm", "--grid", "epochs=1,2", "-s", "epochs=3"], "both set and"),
        (["tune", "--grid", "epochs=1,2"], "missing arguments: give a TASK"),
        (["tune", "adding", "--models", "lstm,", "--grid", "epochs=1,2"], "has an empty name"),
    ],
)
def test_invalid_arguments_are_one_line(orthobench, tmp_path, arguments, message):
    outcome = orthobench(*arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_missing_optuna_names_the_extra(orthobench, command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    outcome = orthobench(*command)
    assert outcome.code == 2
    assert "pip install -e '.[search]' in the checkout" in outcome.err
    assert list(tmp_path.iterdir()) == []


def rows(database: Path) -> int:
    """Return the number of stored metrics."""
    with open_store(str(database), create=True) as store:
        return len(store.metrics([run.id for run in store.runs()]))


@pytest.mark.slow
@pytest.mark.parametrize(("how", "jobs"), [(signal.SIGKILL, "0"), (signal.SIGINT, "2")])
def test_killed_search_continues_with_the_same_trials(how, jobs, tmp_path, command, start):
    plugin, slow = slow_model(tmp_path, steps=20)
    command = [{"lstm": "slow", "train_size=40": "train_size=400"}.get(word, word) for word in command]
    command += ["--plugin", str(plugin), "--checkpoint-every", "0", "-j", jobs]
    uncut, cut = tmp_path / "uncut.db", tmp_path / "cut.db"
    assert start([*command, "--trials", "9", "--db", str(uncut)]).wait(300) == 0
    for finished in (0, 3, 6):
        if finished:
            assert start([*command, "--trials", str(finished), "--db", str(cut)]).wait(300) == 0
        before = rows(cut)
        slow.touch()
        process = start([*command, "--trials", "9", "--db", str(cut)])
        wait_for(lambda least=before + 10: rows(cut) >= least, process)
        process.send_signal(how)
        assert process.wait(60) == (-signal.SIGKILL if how == signal.SIGKILL else 130)
        slow.unlink()
    assert start([*command, "--trials", "9", "--db", str(cut)]).wait(300) == 0
    assert sorted(stored_runs(str(cut))) == sorted(stored_runs(str(uncut)))  # at once, they begin in any order


# Equal parameter counts


@pytest.mark.slow
def test_hidden_size_of_each_trial_is_matched_to_the_parameter_count(orthobench, command):
    words = [*command[:-4], "--grid", "learning_rate=1e-3,1e-2", "--match-parameters", "0.3k"]
    plan = orthobench(*words, "--trials", "2", "--dry-run")
    assert "hidden_size: chosen for each trial, for 300 parameters" in plan.out
    first = orthobench(*words, "--trials", "1")
    assert first.code == 0, first.err
    assert orthobench(*words[:-1], "300", "--trials", "2").code == 0
    with open_store("results.db") as store:
        runs = store.runs()
        assert len(runs) == 2
        assert {record.name for record in store.benchmarks()} == {f"search {matched_search(300).key}"}
        assert all(record.results["chosen"]["hidden_size"] == "7" for record in store.benchmarks())
    # of LSTM with input 2 and output 1: 4 n (2 + n + 1) + (n + 1), or with torch's second bias 4 n more
    n = 7
    assert {run.spec["model_settings"]["hidden_size"] for run in runs} == {n}
    assert all(abs(run.parameter_count - 300) <= 0.05 * 300 for run in runs)


def matched_search(count: int | str | None, model: str = "lstm", grid: tuple[str, ...] = ("learning_rate=1e-3,1e-2",)):
    fixed = {"sequence_length": "10", "train_size": "40", "test_size": "20", "batch_size": "10", "epochs": "3"}
    fixed["evaluate_every"] = "2"
    return Search(CATALOG, "adding", model, fixed, "paper", Space(grid), prune=True, match_parameters=count)


def test_parameter_count_of_the_searched_model_is_the_target():
    reference = matched_search("lstm").draw([], 1)
    matched = matched_search("lstm", model="rnn").draw([], 1)
    assert reference is not None
    assert matched is not None
    assert reference.settings["hidden_size"] == str(matched_search(None).draw([], 1).config.model_settings.hidden_size)
    counts = [Counter().count(trial.config) for trial in (reference, matched)]
    assert abs(counts[1] / counts[0] - 1) <= 0.05


def test_parameter_count_belongs_to_the_identity_of_a_search():
    keys = {matched_search(count).key for count in (None, 300, 400, "rnn")}
    assert len(keys) == 4
    plain = matched_search(None)
    earlier = {"task": "adding", "model": "lstm", "given": plain.overrides, "preset": "paper", "prune": True}
    assert plain.key == digest(earlier | {"space": plain.space.texts})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "n=4,8", "--match-parameters", "300"], "hidden_size is set or in the grid, and matching"),
        (
            ["--grid", "hidden_size=4..8", "--match-parameters", "300"],
            "hidden_size is set or in the grid, and matching",
        ),
        (["--grid", "learning_rate=1e-3,1e-2", "--match-parameters", "gru"], "'gru' is neither a number of parameters"),
        (["--grid", "learning_rate=1e-3,1e-2", "--match-parameters", "1"], "cannot have 1 parameters within 5%"),
    ],
)
def test_unmatchable_parameter_count_is_refused_in_one_line(words, message, orthobench, command, tmp_path):
    refused = orthobench(*command[:-4], *words, "--trials", "2")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert message in refused.err
    assert not (tmp_path / "results.db").exists()
