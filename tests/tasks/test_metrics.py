"""A metric's declaration decides which way is better, everywhere, also for a task from outside the package."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.claims import has_held, stated
from support.databases import RunDatabase, experiment, paper
from support.records import run_record

from orthobench.analysis.conditions import collect
from orthobench.gate.baseline import read_baseline
from orthobench.metric import Metric, run_columns
from orthobench.papers import Printed
from orthobench.planning.search import Search
from orthobench.planning.space import Space
from orthobench.plugins import Catalog
from orthobench.reporting.account.leaderboards import leaderboard
from orthobench.reporting.account.paper_views import group_of
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.figures.figures import against_cost, learning_curves
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page.html import write_html
from orthobench.store import MetricRow, Status, open_store
from orthobench.testing import problems

PLUGIN = """\
import torch
from orthobench.task import Metric
from orthobench.tasks.adding import Adding


class Balanced(Adding):
    title = "balanced"
    metrics = (Metric("balance", "max", "points", "balance of the sums"),)

    def measure(self, outputs, targets):
        (total, weight) = super().measure(outputs, targets)["mse"]
        return {"balance": (weight - total, weight)}

    @classmethod
    def baselines(cls, settings):
        return {"balance": 1 - 2 / 12}
"""


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "balanced.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture
def database(tmp_path, plugin):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        yield RunDatabase(store, [plugin])


def balanced(model, selection="last", printed=()):
    return experiment(model, selection, list(printed)).model_copy(update={"task": "balanced"})


def test_contract_names_an_undeclared_metric(plugin):
    task = Catalog([plugin]).load("task", "balanced")
    assert problems("task", task) == []
    task.metrics = (Metric("other", "max"),)
    assert "balance is measured but not declared: add it to metrics" in " ".join(problems("task", task))
    with pytest.raises(ValueError, match="'up'"):
        Metric("balance", "up")


@pytest.mark.parametrize(("value", "verdict"), [(0.9, "differs, better"), (0.3, "differs, worse"), (0.501, "agrees")])
def test_maximised_metric_is_compared_with_published_values(database, value, verdict):
    ran = balanced("rnn", "best_test", [Printed(metric="balance", value=0.5)])
    for seed in range(3):
        database.run(ran, seed, test=[0.1, value, 0.2])
    (cell,) = database.view(paper(ran)).artifacts[0].table.cells
    assert (cell.words, cell.measured.value) == (verdict, pytest.approx(value))  # the rule selects the highest value


@pytest.mark.parametrize(
    ("printed", "values", "words", "group"),
    [
        (1.0, [1.0, 1.0, 1.0], "agrees, at the ceiling", "at_limit"),
        (0.996, [0.996, 0.996, 0.9961], "agrees, at the ceiling", "at_limit"),
        (0.99, [0.99, 0.99, 0.9901], "agrees", "agree"),
        (0.27, [0.27, 0.27, 0.2701], "at chance, as published", "at_limit"),
        (0.29, [0.29, 0.29, 0.2901], "agrees", "agree"),
        (1.0, [0.6, 0.61, 0.6], "differs, worse, at the ceiling", "worse"),
        (1.0, [1.0], "undecided, at the ceiling", "undecided"),
    ],
)
def test_number_reached_by_a_broken_model_is_marked_and_counted_separately(
    tmp_path, plugin, printed, values, words, group
):
    """The fraction by chance is 0.2 here. A tenth of the way from there to 1 is 0.28."""
    plugin.write_text(PLUGIN.replace('of the sums"', 'of the sums", is_fraction=True'))
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        view = _view_of(RunDatabase(store, [plugin]), printed, values)
    (cell,) = view.artifacts[0].table.cells
    assert (cell.words, group_of(cell)) == (words, group)
    assert view.verdicts[group] == 1
    assert view.compared == (group != "at_limit")


def _view_of(database, printed, values):
    ran = balanced("rnn", "last", [Printed(metric="balance", value=printed)])
    for seed, value in enumerate(values):
        database.run(ran, seed, test=[0.5, value])
    return database.view(paper(ran))


def test_maximised_metric_orders_ranks_claims_and_figures(database, tmp_path):
    low, high = balanced("rnn"), balanced("lstm")
    database.run(low, 0, test=[0.1, 0.3])
    database.run(high, 0, test=[0.1, 0.9])
    (condition,) = collect(database.store)
    assert [row.variant.run.model for row in leaderboard(condition)] == ["lstm", "rnn"]
    for model, check, holds in (("lstm", "best", True), ("rnn", "best", False), ("rnn", "worst", True)):
        claim = stated(check, model)
        artifact = {"name": "table 1", "shows": "learning_curves", "claims": [claim]}
        view = database.view(paper(low, high, artifacts=[artifact]))
        assert [has_held(finding) for finding in view.claim_results] == [holds]
    for figure in (
        learning_curves(condition, Styles([condition])),
        against_cost(condition, Styles([condition]), "parameters"),
    ):
        assert figure.layout["yaxis"]["title"]["text"] == "test balance of the sums (points)"
        low, high = figure.layout["yaxis"].get("range", (0, 1))  # a minimised metric's axis would end near its baseline
        assert low <= 0.3 < 0.9 <= high
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert "Higher is better" in page
    assert "Lower is better" not in page


def test_search_maximises(database, monkeypatch):
    optuna = pytest.importorskip("optuna", reason="optuna is not installed")
    directions = []
    create = optuna.create_study
    monkeypatch.setattr(
        optuna, "create_study", lambda **options: directions.append(options["direction"]) or create(**options)
    )
    search = Search(database.catalog, "balanced", "rnn", {}, "paper", Space(["hidden_size=8,16"]), prune=True)
    trial = search.draw([], 1)
    assert directions == ["maximize"]
    search.record(trial, database.store, {})
    record = run_record(trial.config.spec, **run_columns(search.task_class.metrics))
    run = database.store.start(record, {})
    rows = [MetricRow("test", "balance", i, i, value) for i, value in enumerate([0.1, 0.5, 0.3])]
    database.store.log(run.id, rows, [], {"status": Status.FINISHED})
    (ended,) = search.trials(database.store)
    assert ended.bests == [0.1, 0.5, 0.5]
    rule = search.rule(replace(ended, number=5), [ended] * 5, 1)
    assert rule.should_prune([0.05, 0.2])
    assert not rule.should_prune([0.05, 0.8])


BASELINE = """\
[task.balanced]
seeds = [0, 1, 2, 3, 4, 5, 6, 7]
settings = { sequence_length = 10, train_size = 200, test_size = 20, batch_size = 10, epochs = 1, hidden_size = 8 }

[[run]]
task = "balanced"
model = "rnn"
"""


@pytest.mark.slow
def test_check_fails_a_lower_value(plugin, tmp_path, orthobench):
    file = tmp_path / "checks" / "baseline.toml"
    file.parent.mkdir()
    file.write_text(BASELINE)
    options = ("--plugin", str(plugin), "--db", "runs.db")
    assert orthobench("check", "--update", "--seeds", "20", "--reason", "first", *options).code == 0
    recorded = read_baseline(file).run[0].metrics["balance"]
    assert recorded.direction == "max"
    measured = file.with_name("baseline.measured.json")
    text = measured.read_text()
    for by, code, verdict in ((1000, 1, "worse"), (-1000, 0, "better")):
        shifted = text
        for value in recorded.values.values():
            shifted = shifted.replace(str(value), str(value + by))
        assert shifted != text
        measured.write_text(shifted)
        outcome = orthobench("check", "--json", *options)
        assert (outcome.code, json.loads(outcome.out)["findings"][0]["verdict"]) == (code, verdict)
    measured.write_text(text)
    file.write_text(BASELINE + '\n[run.metrics.balance]\ndirection = "min"\n')
    outcome = orthobench("check", *options)
    assert outcome.code == 2
    assert 'declares the goal "max": correct the baseline' in outcome.err


@pytest.mark.parametrize("name", sorted(Catalog().names("task")))
def test_tasks_that_no_value_solves_say_so(name):
    """Halfway to a perfect value on MNIST is reached in one epoch."""
    graded = name in ("cifar10", "fitzhugh_nagumo", "mnist", "ptb", "timit")
    assert Catalog().load("task", name).metrics[0].is_graded == graded
