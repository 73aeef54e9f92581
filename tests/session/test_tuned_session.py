"""A tuned comparison: real small runs, with budgets counted in the database, and models that are broken on purpose."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.command import call_here
from support.sweeps import numbers

import orthobench as ob
from orthobench.analysis.conditions import collect
from orthobench.analysis.judged import Choice, choice_of, how_judged
from orthobench.analysis.statistics import curve_end
from orthobench.reporting.account.matrix import compute_matrix
from orthobench.reporting.account.matrix_cell import EDGES
from orthobench.session.tuned_session import _undecided
from orthobench.settings import text
from orthobench.store import Run, open_store
from orthobench.store.sqlite import protect
from orthobench.system.location import DATABASE_VARIABLE
from orthobench.tasks.adding import Adding, AddingSplit
from orthobench.training.events import EventSink
from workshop.website.matrix_picture import picture

SIZES = {
    "sequence_length": "4",
    "batch_size": "20",
    "train_size": "3200",
    "max_iterations": "160",
    "evaluate_every": "20",
    "validation_size": "100",
    "test_size": "100",
}
"""160 iterations, after which a cell has learnt the sum."""
WHOLE, SEEDS = 160, 2
PLUGIN = """
from orthobench.models.rnn import RNN


class Stuck(RNN):
    '''A plain RNN whose weights return to their start after each step.'''

    def __init__(self, *args):
        super().__init__(*args)
        self.first = None

    def after_step(self):
        super().after_step()
        if self.first is None:
            self.first = [parameter.detach().clone() for parameter in self.parameters()]
        for parameter, first in zip(self.parameters(), self.first):
            parameter.data.copy_(first)
"""
DEAF = """
import torch
from orthobench.models.rnn import RNN


class Deaf(RNN):
    '''A plain RNN that reads zeros whatever the inputs are, so it can only learn one answer.'''

    def forward(self, inputs, *args, **options):
        return super().forward(torch.zeros_like(inputs), *args, **options)
"""
CELL = """
import torch


class Cell(torch.nn.Module):
    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.rnn = torch.nn.RNN(input_size, hidden_size)

    def forward(self, x, h=None):
        return self.rnn(x, h)
"""


def compare(
    folder: Path, models: list[str], sizes: dict[str, str] = SIZES, display: ob.Display | None = None
) -> list[ob.TunedColumn]:
    options = ob.SweepOptions(
        plugins=tuple(file for name in ("stuck", "deaf") if (file := folder / f"{name}.py").exists())
    )
    return ob.compare_tuned(
        "adding",
        models,
        seeds=SEEDS,
        settings=sizes,
        match_parameters=500,
        db=str(folder / "r.db"),
        jobs=0,
        options=options,
        display=display,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "stuck.py").write_text(PLUGIN)
    (folder / "deaf.py").write_text(DEAF)
    (folder / "cell.py").write_text(CELL)
    return folder


@pytest.fixture(scope="module")
def column(folder: Path) -> ob.TunedColumn:
    (column,) = compare(folder, ["scornn", f"{folder}/cell.py:Cell", "stuck", "deaf"])
    return column


def stored(folder: Path) -> list[Run]:
    with open_store(str(folder / "r.db")) as store:
        return store.runs()


def test_broken_model_loses_and_a_constant_does_not_win(column):
    values = {model.word.rpartition(":")[2]: [*model.values.values()] for model in column.models}
    assert column.is_complete
    assert {name: len(own) for name, own in values.items()} == dict.fromkeys(values, SEEDS)
    assert max(*values["scornn"], *values["Cell"]) < 0.1  # the variance of the target is 0.167
    assert min(values["deaf"]) > 0.12
    assert min(values["stuck"]) > 0.12
    first_lower = [contrast.result.first_lower for contrast in column.contrasts()[1:]]  # scoRNN against the broken ones
    assert first_lower == [1.0, 1.0]


def test_winners_at_the_edge_of_the_search_are_named(folder, column):
    """A winner at an edge had two rates added beyond."""
    runs = {run.key: run for run in stored(folder)}
    for model in column.models:
        tried = [
            point.rate
            for point, run in zip(model.entry.points, model.entry.trials, strict=True)
            if run.config.spec.key in runs
        ]
        best = float(model.chosen["learning_rate"])
        expected = {max(tried): "highest", min(tried): "lowest"}.get(best, "")
        assert model.search.edge == expected
        assert not expected or len({*tried}) == 6


def test_results_name_the_sizes_that_were_trained(column):
    trained = column.column
    assert (trained.parameters, trained.iterations, trained.settings["sequence_length"]) == (500, WHOLE, 4)


def test_searches_spend_what_the_rule_says(folder, column):
    """All of the first trials train for half of the iterations, and the better half of them to the end."""
    runs = {run.key: run for run in stored(folder)}
    for model in column.models:
        first = [runs[run.config.spec.key] for run in model.entry.trials[: model.entry.first]]
        whole = [run for run in first if run.iterations == WHOLE]
        assert len(first) == (4 if ":" in model.word else 8)
        assert {run.iterations for run in first} <= {WHOLE // 2, WHOLE}
        half = f"paused at iteration {WHOLE // 2}"
        assert {run.message for run in first if run.iterations < WHOLE} <= {half}
        assert len(whole) >= len(first) / 2
    fresh = [run for run in runs.values() if not run.is_trial]
    assert {run.iterations for run in fresh} == {WHOLE}
    assert Counter(run.model for run in fresh) == dict.fromkeys({run.model for run in fresh}, SEEDS)


def test_trials_keep_their_curves_and_no_vectors(folder, column):
    with open_store(str(folder / "r.db")) as store:
        trials = [run.id for run in store.runs() if run.is_trial]
        assert not store.traces(trials)
        assert {row.split for row in store.metrics(trials)} == {"train", "valid"}
        assert store.traces([run.id for model in column.models for run in model.runs])


def test_training_differs_in_the_rates_alone(folder, column):
    training = {tuple(sorted(map(str, run.spec["training"].items()))) for run in stored(folder)}
    assert len(training) == 2  # of trials and of results, which differ in judged_by
    assert {run.spec["model_settings"]["optimizer"] for run in stored(folder)} == {"adam"}
    assert all(abs(model.size.matched.deviation) < 0.05 for model in column.models)


def test_winner_is_the_best_by_validation_and_its_seeds_are_fresh(folder, column):
    with open_store(str(folder / "r.db")) as store:
        for model in column.models:
            keys = [trial.config.spec.key for trial in model.entry.trials]
            ends = {}
            for run in store.runs(keys=keys):
                assert {row.split for row in store.metrics([run.id], name="mse")} == {"valid"}
                assert (run.final_value, run.best_value, run.seed) == (None, None, 0)
                if run.status == "finished":
                    zero = run.baselines["valid/mse"]
                    values = [row.value for row in store.metrics([run.id], split="valid", name="mse")]
                    ends[run.key] = round(100 * (1 - curve_end(values).value / zero))
            winner = model.entry.trial(model.search.winner).config.spec.key
            assert ends[winner] == max(ends.values())  # of several with one score, that with the better neighbours
            assert [run.seed for run in model.runs] == [1, 2]
            for run in model.runs:
                settings = {name: text(value) for name, value in run.spec["model_settings"].items()}
                assert {name: settings[name] for name in model.chosen} == model.chosen


def test_validation_values_are_not_shown(column):
    assert not {"valid", "validation"} & {word for name in column.table.columns for word in name.split()}
    shown = {*column.table["median"], *column.table["lowest"], *column.table["highest"]}
    assert shown <= {sum(own.values()) / 2 for own in (model.values for model in column.models)} | {
        value for model in column.models for value in model.values.values()
    }


def test_same_call_trains_nothing_again(folder, column):
    before = numbers(str(folder / "r.db"))
    (again,) = compare(folder, [model.entry.model if ":" not in model.word else model.word for model in column.models])
    assert numbers(str(folder / "r.db")) == before
    assert again.records() == column.records()


def test_matrix_shows_the_fresh_seeds_as_tuned(folder, column):
    with open_store(str(folder / "r.db")) as store:
        (condition,) = collect(store)
        choices = {each.run.model: choice_of(condition, each) for each in condition.variants if each.scores}
        matrix = compute_matrix([condition])
    cells = {row.model: row.cells[0] for row in matrix.rows}
    edges = {model.entry.model: model.search.edge for model in column.models}
    assert [each.block for each in matrix.columns] == ["tuned"]
    trials = Counter(run.model for run in stored(folder) if run.is_trial)
    assert choices == {name: Choice(trials[name], edge) for name, edge in edges.items()}
    assert {name: cell.how.split("; ")[1:] for name, cell in cells.items()} == {
        name: [f"trials: {trials[name]}", "fresh seeds: 2", *([EDGES[edge]] if cells[name].edge else [])]
        for name, edge in edges.items()
    }
    assert picture(matrix).count("ᴱ") == sum(cells[name].score < 0.995 for name, edge in edges.items() if edge)
    at_edge = [replace(row.cells[0], choice=Choice(4, "highest"), score=0.5) for row in matrix.rows]
    rows = [replace(row, cells=[cell]) for row, cell in zip(matrix.rows, at_edge, strict=True)]
    assert picture(replace(matrix, rows=rows)).count("ᴱ") == len(rows)
    assert cells["scornn"].score > 0.5 > cells["stuck"].score


def test_variant_is_not_tuned_if_a_trial_is_missing(folder, column, monkeypatch):
    """Runs of less than an epoch are in the matrix only if their models are tuned alike."""
    with open_store(str(folder / "r.db")) as store:
        runs = store.runs(model="scornn")
        trials = [run for run in runs if run.is_trial]
        fewer = [run for run in runs if run.key != trials[0].key]
        (condition,), (whole,) = collect(store, fewer), collect(store, runs)
        assert [how_judged(condition, each) for each in condition.variants if each.scores] == ["own"]
        monkeypatch.setattr(Run, "epochs", property(lambda run: 0.5))
        assert [each.block for each in compute_matrix([whole]).columns] == ["tuned"]
        assert compute_matrix([condition]).columns == []


def test_models_that_seeds_do_not_tell_apart_get_two_more():
    """Unless the best one solves the task, where equal scores decide no place."""

    def made(*scores: float):
        return SimpleNamespace(scores=[*scores], values=[*scores])

    first, near, far = made(0.8, 0.7, 0.9), made(0.6, 0.71, 0.5), made(0.6, 0.69, 0.5)
    assert _undecided([far, near, first], 3) == [near, first]
    assert _undecided([far, first], 3) == []
    assert _undecided([made(1.0, 0.999, 0.9), made(0.998, 1.0, 1.0)], 3) == []
    assert _undecided([first, made(0.8)], 3) == []


def test_undecided_models_get_more_seeds(tmp_path, monkeypatch):
    """Two copies of one cell, whose seeds overlap."""

    def undecided(models: list, seeds: int) -> list:
        return models[1:] if all(model.values for model in models) else []

    monkeypatch.setattr("orthobench.session.tuned_session._undecided", undecided)
    short = SHORT | {"max_iterations": "20", "train_size": "400"}
    given = {"settings": short, "match_parameters": 500, "db": tmp_path / "r.db", "jobs": 0}
    (column,) = ob.compare_tuned("adding", ["rnn", "irnn"], seeds=3, **given)
    (planned,) = ob.compare_tuned("adding", ["rnn", "irnn"], dry_run=True, **given)
    assert [model.cost.left for model in planned.models] == [0, 2 * 20]
    (column,) = ob.compare_tuned("adding", ["rnn", "irnn"], **given)
    assert [[run.seed for run in model.runs] for model in column.models] == [[1, 2, 3], [1, 2, 3, 4, 5]]
    assert column.is_complete


class Interrupting(EventSink):
    """Presses Ctrl-C after a number of iterations of all runs."""

    def __init__(self, after: int) -> None:
        self.left = after

    def on_iteration(self, iteration: int) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGINT)


class InterruptingDisplay(ob.Display):
    def __init__(self, after: int) -> None:
        self.sink = Interrupting(after)

    def open_jobs(self, count, in_this_process):
        display = ob.JobsDisplay()

        @contextmanager
        def opened(label: str) -> Iterator[EventSink]:
            yield self.sink

        display.open_sink = opened

        @contextmanager
        def whole():
            yield display

        return whole()


SHORT = SIZES | {"train_size": "800", "max_iterations": "40", "evaluate_every": "10"}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, list]:
    """What an uninterrupted comparison stores and returns."""
    whole = tmp_path_factory.mktemp("whole")
    (expected,) = compare(whole, ["rnn"], SHORT)
    return numbers(str(whole / "r.db")), expected.records()


@pytest.mark.parametrize(
    "after",  # in the first rung, the second, at the end, in a fresh seed
    [pytest.param(7, marks=pytest.mark.slow), 95, pytest.param(130, marks=pytest.mark.slow), 175],
)
def test_interrupted_comparison_ends_like_an_uninterrupted_one(tmp_path, uninterrupted, after):
    stored, records = uninterrupted
    with pytest.raises(ob.Stopped):
        compare(tmp_path, ["rnn"], SHORT, display=InterruptingDisplay(after))
    assert numbers(str(tmp_path / "r.db")) != stored
    (resumed,) = compare(tmp_path, ["rnn"], SHORT)
    assert numbers(str(tmp_path / "r.db")) == stored
    assert resumed.records() == records


def test_search_never_reads_the_test_data(tmp_path, monkeypatch):
    read: list[int] = []

    class Watched(AddingSplit):
        def batch(self, examples):
            read.append(self.seed)
            return super().batch(examples)

    start = Adding.__init__

    def watched(self, settings, seed, device):
        start(self, settings, seed, device)
        self.test.__class__, self.test.seed = Watched, seed

    monkeypatch.setattr(Adding, "__init__", watched)
    compare(tmp_path, ["rnn"], SHORT)
    assert set(read) == {1, 2}  # the fresh seeds, and not the search's


def test_stopping_ignores_the_test_data(tmp_path):
    """A run stops at the first evaluation whose validation value reaches the limit."""
    settings = SHORT | {"judged_by": "validation", "learning_rate": "1e-2", "hidden_size": "8", "evaluate_every": "2"}
    whole = ob.run("adding", "rnn", db=str(tmp_path / "a.db"), settings=settings)
    with open_store(str(tmp_path / "a.db")) as store:
        rows = {
            split: {row.iteration: row.value for row in store.metrics([whole.id], split=split, name="mse")}
            for split in ("valid", "test")
        }
    first = {iteration: value for iteration, value in rows["valid"].items() if iteration}
    lows = [at for at in first if first[at] == min(value for other, value in first.items() if other <= at)]
    at = next(at for at in lows if at > 10)
    assert rows["test"][at] > first[at] or min(value for i, value in rows["test"].items() if 0 < i < at) < first[at]
    limit = {"solved_at": repr(first[at])}
    stopped = ob.run("adding", "rnn", db=str(tmp_path / "b.db"), settings=settings | limit)
    assert stopped.solved_at == at
    assert whole.best_value == rows["test"][whole.best_iteration]
    assert first[whole.best_iteration] == min(first.values())


def test_weights_are_those_of_the_best_validation(tmp_path):
    settings = SHORT | {"judged_by": "validation", "hidden_size": "8", "learning_rate": "1e-2"}
    run = ob.run("adding", "rnn", db=str(tmp_path / "a.db"), settings=settings)
    with open_store(str(tmp_path / "a.db")) as store:
        (record,) = store.weights([run.id])
    assert (record.kind, record.iteration) == ("best", run.best_iteration)


def test_run_without_validation_data_is_refused(tmp_path):
    with pytest.raises(ob.UsageError, match="judged_by=validation needs validation data, and adding has none"):
        ob.run(
            "adding",
            "rnn",
            db=str(tmp_path / "a.db"),
            settings=SHORT | {"judged_by": "validation", "validation_size": "0"},
        )
    assert not (tmp_path / "a.db").exists()


def test_own_data_is_a_column(tmp_path, monkeypatch, capsys):
    """Its runs are so short that the protocol has to evaluate within an epoch, before its half."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    labels = np.arange(600) % 2
    data = ob.Data(np.random.RandomState(0).normal(size=(600, 3, 2)) + 2 * labels[:, None, None], labels, name="mine")
    db = tmp_path / "a.db"
    (column,) = ob.compare_tuned(data, ["rnn", "gru"], db=db, seeds=2, jobs=0, epochs=3, hidden_size=4)
    assert (column.column.task, column.metric, column.is_complete) == ("classification:mine.npz", "accuracy", True)
    assert [model.entry.iterations for model in column.models] == [39, 39]  # 420 training sequences, 32 in a batch
    assert all(run.best_value > 0.8 for model in column.models for run in model.runs)
    word = data.task_word().replace("classification:", "array:")
    command = ["compare-tuned", "-t", word, "--models", "rnn,gru", "--seeds", "2", "-s", "epochs=3"]
    assert call_here(monkeypatch, [*command, "-s", "hidden_size=4", "--db", str(db), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "classification:mine.npz: 39 iterations, a search and 2 fresh seeds a model" in shown
    assert [line.split()[-2:] for line in shown.splitlines() if line.split()[:1] in (["rnn"], ["gru"])] == [
        ["0", "0s"],
        ["0", "0s"],
    ]
    with pytest.raises(ob.UsageError, match=r"classification:mine\.npz has none: give a validation_share$"):
        ob.compare_tuned([data], "rnn", db=tmp_path / "b.db", jobs=0, validation_share=0)


def given(*sizes: str) -> list[str]:
    return [word for name, value in SHORT.items() for word in ("-s", f"{name}={value}")]


def test_command_states_the_budget_and_then_prints_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["compare-tuned", "--models", "rnn,lstm", "-t", "adding", "--seeds", "2", "-j", "0", *given()]
    command += ["--match-parameters", "500", "-q"]
    assert call_here(monkeypatch, [*command, "--dry-run", "--no-profile"]) == 0
    budget = capsys.readouterr().out
    assert "40 iterations, a search and 2 fresh seeds a model" in budget
    assert [line.split()[-3:] for line in budget.splitlines() if line.split()[:1] == ["rnn"]] == [["80", "360", "?"]]
    assert "seeds; unknown time left\n" in budget
    assert "0.0" not in budget
    assert not list(tmp_path.iterdir())
    assert call_here(monkeypatch, command) == 0
    shown = capsys.readouterr().out
    assert "permutation test of the ranks" in shown
    (again,) = [line for line in shown.splitlines() if line.startswith("again: ")]
    assert call_here(monkeypatch, again.split()[2:]) == 0
    assert "2 finished" in capsys.readouterr().out
    assert call_here(monkeypatch, [*command, "--dry-run", "--no-profile"]) == 0
    left = [
        line.split()[-2:] for line in capsys.readouterr().out.splitlines() if line.split()[:1] in (["rnn"], ["lstm"])
    ]
    assert left == [["0", "0s"], ["0", "0s"]]
    # A protected database is the default one of commands that read; this command uses it only if it is named.
    protect(Path("results.db"))
    monkeypatch.delenv(DATABASE_VARIABLE, raising=False)
    for words, left in (([], "~"), (["--db", "results.db"], "0s")):
        assert call_here(monkeypatch, [*command, *words, "--dry-run"]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["rnn"]]
        assert [left in row for row in rows] == [True]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--models", "rnn", "-t", "adding", "-s", "lr=1"], "learning_rate"),
        (
            ["--models", "rnn", "-t", "adding", "-s", "learning_rate=1"],
            "learning_rate belongs to the search",
        ),
        (["--models", "rnn", "-t", "addin"], "unknown task 'addin'"),
        (
            ["--models", "rnn", "-t", "adding", "-s", "evaluate_every=3000"],
            "evaluate_every=3000 leaves the first half of 4000 iterations without an evaluation",
        ),
        (
            ["--models", "rnn", "-t", "adding", "--match-state", "8", "--match-parameters", "9"],
            "both choose the hidden sizes",
        ),
    ],
)
def test_mistakes_have_one_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert call_here(monkeypatch, ["compare-tuned", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_comparison_of_all_models_says_at_once_that_it_takes_hours(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    stopped = RuntimeError("planned")

    def plan(*args, **options):
        raise stopped

    monkeypatch.setattr(ob, "compare_tuned", plan)
    monkeypatch.setattr("orthobench.api.compare_tuned", plan)
    call_here(monkeypatch, ["compare-tuned"])
    assert capsys.readouterr().err.startswith(
        "all built-in models and columns: several hours of CPU time for each column"
    )
