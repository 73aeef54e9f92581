"""What a paper's table or figure needs, at full size and scaled."""

from __future__ import annotations

import json

import pytest

from orthobench.errors import UsageError
from orthobench.papers import find_paper
from orthobench.planning.paper import resolve_experiments, restrict, select_experiments
from orthobench.plugins import Catalog
from workshop.index import experiment_runs

CATALOG = Catalog()


def test_runs_of_a_figure_are_its_experiments():
    chosen = select_experiments(find_paper("helfrich2018"), "figure", "1")
    runs = resolve_experiments(CATALOG, chosen, range(2))
    assert [(run.spec.model, run.spec.task_settings["sequence_length"], run.spec.seed) for run, _ in runs[:10]] == [
        (experiment.model, experiment.settings["sequence_length"], 0) for experiment in chosen
    ]
    assert {run.spec.seed for run, _ in runs[10:]} == {1}
    scornn = next(run.spec for run, _ in runs if run.spec.model == "scornn")
    assert scornn.model_settings["negative_ones"] == 95
    assert (scornn.training["epochs"], scornn.task_settings["train_size"]) == (10, 20_000)


@pytest.mark.parametrize(
    ("conditions", "models"),
    [
        ({"sequence_length": "200"}, ["scornn", "lstm", "ornn", "full_urnn", "urnn", "eurnn"]),
        ({"sequence_length": "200", "n": "60"}, ["lstm"]),
        ({"forget_bias": "2"}, ["lstm"]),
        ({"sequence_length": "200,750", "n": "60"}, ["lstm"] * 2),
        ({"sequence_length": 400, "n": "60"}, ["lstm"]),
        ({"task": "adding", "recurrent_learning_rate": "0.0001"}, ["scornn"] * 3),
    ],
)
def test_figure_is_restricted_to_some_experiments(conditions, models):
    chosen = restrict(find_paper("helfrich2018"), figure="2", where=conditions)
    assert [experiment.model for experiment in chosen] == models


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"sequence_lenght": "200"}, "unknown column or setting 'sequence_lenght': did you mean sequence_length"),
        (
            {"sequence_length": "300"},
            "no experiment has sequence_length=300; experiments have sequence_length 200, 400",
        ),
        ({"T": "200"}, "unknown column or setting 'T': did you mean sequence_length"),
        (
            {"forget_bias": "1", "hidden_size": "170"},
            "no experiment has forget_bias=1; experiments have forget_bias ",
        ),
    ],
)
def test_condition_without_a_match_is_refused(conditions, said):
    with pytest.raises(UsageError, match=said):
        restrict(find_paper("helfrich2018"), figure="2", where=conditions)


def test_scale_changes_the_settings_and_the_run():
    chosen = select_experiments(find_paper("helfrich2018"), "figure", "1")
    configs, _ = experiment_runs(CATALOG)
    keys = {config.spec.variant for config in configs.values()}
    for run, chosen_settings in resolve_experiments(CATALOG, chosen, [0], scale=0.1):
        spec = run.spec
        assert spec.training["epochs"] == 1
        assert spec.task_settings["sequence_length"] in (100, 200)
        sizes = (10_000, 1_000) if spec.model in ("urnn", "full_urnn") else (2_000, 100)
        assert (spec.task_settings["train_size"], spec.task_settings["test_size"]) == sizes
        assert chosen_settings["epochs"] == "1"
        assert spec.variant not in keys


def test_scaled_settings_have_lower_bounds():
    """Never less than a batch, an epoch, a test sequence, ten steps."""
    chosen = select_experiments(find_paper("helfrich2018"), "figure", "2")
    (run, _) = resolve_experiments(CATALOG, chosen, [0], scale=1e-6)[0]
    spec = run.spec
    assert (spec.training["epochs"], spec.task_settings["train_size"]) == (1, spec.training["batch_size"])
    assert (spec.task_settings["sequence_length"], spec.task_settings["test_size"]) == (10, 1)


def test_every_experiment_has_runs():
    configs, reasons = experiment_runs(CATALOG)
    assert reasons == {}
    full = [run.spec.variant for run, _ in resolve_experiments(CATALOG, find_paper("chang2019").experiments(), [0])]
    assert set(full) <= {config.spec.variant for config in configs.values()}


@pytest.mark.parametrize("key", ["siems2025", "grazzi2025", "lezcano2019", "vorontsov2017"])
def test_runs_of_a_paper_are_described_uniquely(key):
    """Runs that size and task tell apart have no other settings in their text."""
    runs = resolve_experiments(CATALOG, find_paper(key).experiments(), [0])
    shown = [(run.config.spec.task, run.config.spec.model, str(run.settings)) for run in runs]
    assert len(set(shown)) == len(shown) > 1
    if key == "siems2025":
        assert runs[0].settings == {
            "hidden_size": "256", "group": "S3", "negative_eigenvalues": "true", "householders": "1",
        }  # fmt: skip
    if key == "grazzi2025":
        assert [list(run.settings) for run in runs if run.config.spec.model == "slstm"] == [
            ["hidden_size", "language", "train_size"]
        ] * 3


def test_table_and_figure_names_are_parsed():
    paper = find_paper("lezcano2019")
    assert select_experiments(paper, "table", "MNIST table") == paper.experiments_in("MNIST table")
    with pytest.raises(UsageError, match="no table 1 that can be run here; it has copying figure, MNIST table"):
        select_experiments(paper, "table", "1")


@pytest.mark.parametrize("scale", ["0", "1.5", "-1"])
def test_scale_outside_zero_to_one_is_refused(orthobench, scale):
    outcome = orthobench("reproduce", "helfrich2018", "--figure", "1", f"--scale={scale}", "--dry-run")
    assert outcome.code == 2
    assert "should be above 0 and at most 1" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep"], "missing arguments: give a TASK"),
        (["sweep", "adding"], "missing arguments: give a TASK"),
        (["reproduce"], "name a paper, for example `orthobench reproduce helfrich2018`"),
        (["reproduce"], "`orthobench reproduce --small`"),
        (["reproduce", "--small", "--table", "1"], "--small has its own sizes"),
        (["reproduce", "helfrich2018", "-s", "epochs=1"], "No such option: -s"),
        (["reproduce", "helfrich2018", "--figure", "1", "--table", "1"], "one at a time"),
        (["reproduce", "helfrich2018", "--figure", "1", "--models", "gru"], "unknown model of this paper 'gru'"),
    ],
)
def test_invalid_arguments_are_one_line(orthobench, arguments, message):
    outcome = orthobench(*arguments, "--dry-run")
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_scaled_figure_is_trained_and_kept_out_of_the_papers_cells(orthobench):
    """From the command line to the table of everything measured; the paper's cells stay empty."""
    command = ("reproduce", "helfrich2018", "--figure", "2", "--models", "ornn", "--scale", "0.001")
    assert orthobench(*command).code == 0
    listed = json.loads(orthobench("ls", "--json").out)
    assert {(run["task"], run["model"], run["status"]) for run in listed} == {("adding", "ornn", "finished")}
    assert orthobench("report", "--html").code == 0
    assert "0 missing" not in orthobench(*command, "--dry-run", "--no-profile").out
    (sheet,) = json.loads(orthobench("report", "--format", "json").out)
    assert sheet["title"] == "adding, T = 10"
