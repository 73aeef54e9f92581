"""The tuned protocol: equal searches for all models, and sizes that fit its columns."""

from __future__ import annotations

import itertools
import math

import pytest

from orthobench.errors import UsageError
from orthobench.planning.tuned_protocol import RATE, RECURRENT_RATE, Column, Planner, protocol
from orthobench.plugins import Catalog
from orthobench.spec.model_sizes import Counter

CATALOG = Catalog()
MODELS = CATALOG.built_in("model")
COARSE = {"kru", "goru", "pd_ssm"}
"""Models that come no closer: their size is a power of two, or one step of it adds a tenth of the parameters."""
QUICK = ("rnn", "slstm", "lru", "kru", "pd_ssm")
"""Models of which each kind of size is tried in a short run of the tests."""
ADDING = protocol().columns[0]


def settings_of(model: str):
    return CATALOG.load("model", model).Settings


@pytest.mark.parametrize("trials", [8, 12])
def test_models_with_and_without_a_recurrent_rate_get_equal_searches(trials):
    low, high = protocol().rates
    both = {name: protocol().points(settings_of(name), trials) for name in ("scornn", "lstm")}
    for points in both.values():
        assert len({tuple(point.items()) for point in points}) == trials
        rates = sorted({float(point[RATE]) for point in points})
        assert (rates[0], rates[-1]) == (low, high)
        steps = [math.log(after / before) for before, after in itertools.pairwise(rates)]
        assert steps == pytest.approx([steps[0]] * len(steps), rel=0.02)
    shares = {round(float(point[RECURRENT_RATE]) / float(point[RATE]), 2) for point in both["scornn"]}
    assert shares == {1.0, 0.1}
    assert len({point[RATE] for point in both["scornn"]}) == trials // 2 >= 4


def test_other_rates_of_a_model_follow_the_learning_rate():
    for point in protocol().points(settings_of("scurnn"), 8):
        assert point["phase_learning_rate"] == point[RATE]


@pytest.mark.parametrize("trials", [2, 7, 9])
def test_search_that_cannot_be_equal_is_refused(trials):
    with pytest.raises(UsageError, match=f"`tune={trials}`: give an even number of at least 8"):
        protocol().points(settings_of("lstm"), trials)


def test_all_models_train_alike_and_none_as_its_paper_says():
    planner = Planner(CATALOG, 8, {})
    entries = [
        planner.entry(ADDING, model) for model in ("scornn", "exprnn", "lstm", "full_urnn", "soft_orthogonal", "lru")
    ]
    trainings = [run.config.spec.training for entry in entries for run in entry.trials]
    assert all(training == trainings[0] for training in trainings)
    assert {entry.iterations for entry in entries} == {ADDING.iterations}
    assert len({entry.search_iterations() for entry in entries}) == 1
    settings = {entry.model: entry.trials[0].config.spec.model_settings for entry in entries}
    assert {own["optimizer"] for own in settings.values()} == {"adam"}
    recurrent = {name: own["recurrent_optimizer"] for name, own in settings.items() if "recurrent_optimizer" in own}
    assert recurrent == {"scornn": "adam", "exprnn": "adam", "full_urnn": "cayley", "soft_orthogonal": "cayley"}


def test_results_differ_from_trials_in_seed_and_judge_alone():
    entry = Planner(CATALOG, 8, {}).entry(ADDING, "lstm")
    keys = [run.config.spec.key for run in entry.trials]
    winner = type("Winner", (), {"number": 3})()
    fresh = [run.config.spec for run in entry.fresh(winner, 5)]
    trial = entry.trials[3].config.spec
    assert [spec.seed for spec in fresh] == [1, 2, 3, 4, 5]
    assert {spec.condition for spec in fresh} == {trial.condition}
    assert fresh[0].model_settings == trial.model_settings
    assert fresh[0].training == trial.training | {"judged_by": "validation"}
    assert not {spec.key for spec in fresh} & {*keys}


def test_settings_of_the_protocol_cannot_be_set():
    for name in ("learning_rate", "optimizer", "recurrent_optimizer", "judged_by"):
        with pytest.raises(UsageError, match=f"{name} is the same for all models"):
            Planner(CATALOG, 8, {name: "1"}).entry(ADDING, "scornn")


def test_state_sizes_can_be_equal_instead():
    planner = Planner(CATALOG, 8, {}, state=64)
    entries = {model: planner.entry(ADDING, model) for model in ("rnn", "lstm", "cornn", "urnn")}
    assert {entry.state for entry in entries.values()} == {64}
    sizes = {model: entry.size.hidden_size for model, entry in entries.items()}
    assert sizes == {"rnn": 64, "lstm": 32, "cornn": 32, "urnn": 32}  # h; h and c; y and z; complex numbers


def test_columns_come_in_the_order_of_the_protocol():
    rules = protocol()
    assert [column.name for column in rules.columns] == ["adding", "copying", "parity", "S3", "A5", "MNIST"]
    assert [column.name for column in rules.chosen(CATALOG, ["group_word", "adding"])] == ["adding", "S3", "A5"]
    assert rules.chosen(CATALOG, ["mqar"]) == [Column("mqar", "mqar", "mqar")]
    with pytest.raises(UsageError, match="unknown task 'S33'"):
        rules.chosen(CATALOG, ["S33"])


def test_columns_are_called_after_the_settings_that_change_their_task():
    overrides = {"sequence_length": "10", "hidden_size": "8", "lr": "0.1"}
    chosen = protocol().chosen(CATALOG, ["adding", "copying"], overrides)
    assert [column.title for column in chosen] == ["adding with sequence_length=10", "copying with sequence_length=10"]
    (unchanged,) = protocol().chosen(CATALOG, ["adding"], {"hidden_size": "8"})
    assert unchanged.title == "adding, T = 100"


def test_column_of_an_entry_has_what_its_runs_have():
    assert Planner(CATALOG, 8, {}).entry(ADDING, "lstm").column == ADDING
    overrides = {
        "sequence_length": "20",
        "max_iterations": "200",
        "evaluate_every": "10",
        "batch_size": "10",
        "solved_at": "0.01",
    }
    column = Planner(CATALOG, 8, overrides, parameters=1000).entry(ADDING, "lstm").column
    assert column.settings == {**ADDING.settings, "sequence_length": 20}
    assert (column.parameters, column.iterations, column.batch_size, column.solved_at) == (1000, 200, 10, 0.01)
    assert Planner(CATALOG, 8, {}, state=64).entry(ADDING, "lstm").column.parameters is None
    assert Planner(CATALOG, 8, {"hidden_size": "8"}).entry(ADDING, "lstm").column.parameters is None


def test_task_without_a_column_keeps_its_length():
    entry = Planner(CATALOG, 8, {"hidden_size": "8", "train_size": "640", "batch_size": "64"}).entry(
        Column("mqar", "mqar", "mqar"), "lstm"
    )
    spec = entry.trials[0].config.spec
    assert spec.task_settings["validation_size"] == 500
    assert entry.iterations == spec.training["epochs"] * 10


@pytest.mark.parametrize(
    "model", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_every_model_fits_every_column_that_needs_no_files(model):
    planner = Planner(CATALOG, 8, {})
    for column in protocol().columns:
        if column.task == "mnist":
            continue
        entry = planner.entry(column, model)
        assert entry.parameters == Counter().count(entry.trials[0].config)
        if model not in COARSE:
            assert abs(entry.size.deviation) < 0.05
