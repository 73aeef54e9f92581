"""The tuned protocol: equal searches for all models, and sizes that fit its columns."""

from __future__ import annotations

import pytest
import torch

from orthobench.analysis.rate_search import RATES, TrialCurve
from orthobench.analysis.scores import score_of
from orthobench.errors import UsageError
from orthobench.planning.tuned_protocol import RATE, RECURRENT_RATE, Column, Planner, protocol
from orthobench.plugins import Catalog
from orthobench.spec.model_sizes import Counter

CATALOG = Catalog()
MODELS = CATALOG.built_in("model")
COARSE = {"aussm", "kru", "goru", "pd_ssm", "slstm"}
"""Models that come no closer: their size is a power of two, or one step of it adds a tenth of the parameters."""
QUICK = ("rnn", "slstm", "lru", "kru", "pd_ssm")
"""Models of which each kind of size is tried in a short run of the tests."""
ADDING = next(column for column in protocol().columns if column.name == "adding")
ORDER = [1e-3, 3e-3, 1e-2, 3e-2, 1e-4, 3e-4, 1e-1, 3e-1]
"""The rates with which a search begins, and those that it may add."""


def points_of(model: str):
    return protocol().points(CATALOG.load("model", model))


def test_every_search_has_the_same_rates():
    for model in CATALOG.built_in("model"):
        points = points_of(model)
        values = {point.value for point in points}
        assert 1 <= len(values) <= 3
        assert [point.rate for point in points] == [rate for rate in ORDER for _ in values]
        assert {float(point.settings[RATE]) for point in points} == {*RATES}


def test_second_axis_is_the_recurrent_share_or_what_the_class_names():
    assert [point.value for point in points_of("lstm")[:1]] == [""]
    shares = {round(float(point.settings[RECURRENT_RATE]) / point.rate, 3) for point in points_of("scornn")}
    assert shares == {1.0, 0.1}
    steps = {point.settings["step_size"] for point in points_of("cornn")}
    assert steps == {"0.042", "0.06", "0.3"}
    assert RECURRENT_RATE not in points_of("cornn")[0].settings


def test_other_rates_of_a_model_follow_the_learning_rate():
    for point in points_of("scurnn"):
        assert point.settings["phase_learning_rate"] == point.settings[RATE]


def test_values_of_a_second_axis_have_equal_parameter_counts():
    """A second layer has units of its own, so the hidden size is chosen for each value."""
    entry = Planner(CATALOG, {}).entry(ADDING, "ind_rnn")
    sizes = {value: size.matched.hidden_size for value, size in entry.sizes.items()}
    assert sizes["layers=1"] > sizes["layers=2"]
    for point, run in zip(entry.points, entry.trials, strict=True):
        assert run.config.spec.model_settings["hidden_size"] == sizes[point.value]
        assert Counter().count(run.config) == pytest.approx(3000, rel=0.05)


def test_solved_runs_stop_where_the_score_is_nearly_perfect():
    for column in protocol().columns:
        if column.solved_at is None:
            continue
        task = CATALOG.load("task", column.task)
        zero = task.baselines(task.Settings(**column.settings))[task.main_metric().name]
        assert score_of(column.solved_at, zero, task.main_metric().perfect([zero])) == pytest.approx(0.995, abs=1e-3)


def test_sequences_of_the_scored_lengths_stop_a_run():
    """A cell that has learnt the training lengths may fail at others."""
    device = torch.device("cpu")
    columns = [column for column in protocol().columns if "validation_lengths" in column.settings]
    assert {column.name for column in columns} == {"parity", "A5", "S3"}
    for column in columns:
        task_class = CATALOG.load("task", column.task)
        task = task_class(task_class.Settings(**column.settings, train_size=10), 0, device)
        lengths = [
            {int(n) for n in split.batch(torch.arange(len(split))).lengths.unique()}
            for split in (task.validation, task.test)
        ]
        assert lengths[0] == lengths[1] == {*range(min(lengths[1]), min(lengths[1]) + 21)}
        assert max(lengths[0]) > task_class.trained_lengths(task_class.Settings(**column.settings))[1]


def test_all_models_train_alike_and_none_as_its_paper_says():
    planner = Planner(CATALOG, {})
    entries = [
        planner.entry(ADDING, model) for model in ("scornn", "exprnn", "lstm", "full_urnn", "soft_orthogonal", "lru")
    ]
    trainings = [run.config.spec.training for entry in entries for run in entry.trials]
    assert all(training == trainings[0] for training in trainings)
    assert {entry.iterations for entry in entries} == {ADDING.iterations}
    searches = {entry.model: entry.search_iterations() / ADDING.iterations for entry in entries}
    assert searches == {"lstm": 4.0} | dict.fromkeys({*searches} - {"lstm"}, 7.0)  # four or eight trials, and one more
    settings = {entry.model: entry.trials[0].config.spec.model_settings for entry in entries}
    assert {own["optimizer"] for own in settings.values()} == {"adam"}
    recurrent = {name: own["recurrent_optimizer"] for name, own in settings.items() if "recurrent_optimizer" in own}
    assert recurrent == {"scornn": "adam", "exprnn": "adam", "full_urnn": "cayley", "soft_orthogonal": "cayley"}


def test_results_differ_from_trials_in_seed_and_judge_alone():
    entry = Planner(CATALOG, {}).entry(ADDING, "lstm")
    keys = [run.config.spec.key for run in entry.trials]
    fresh = [run.config.spec for run in entry.fresh(TrialCurve(entry.points[3].rate, ""), 5)]
    trial = entry.trials[3].config.spec
    assert [spec.seed for spec in fresh] == [1, 2, 3, 4, 5]
    assert {spec.condition for spec in fresh} == {trial.condition}
    assert fresh[0].model_settings == trial.model_settings
    assert fresh[0].training == trial.training | {"judged_by": "validation"}
    assert not {spec.key for spec in fresh} & {*keys}


def test_settings_of_the_protocol_cannot_be_set():
    for name in ("learning_rate", "optimizer", "recurrent_optimizer", "judged_by"):
        with pytest.raises(UsageError, match=f"{name} belongs to the search"):
            Planner(CATALOG, {name: "1"}).entry(ADDING, "scornn")


def test_state_sizes_can_be_equal_instead():
    planner = Planner(CATALOG, {}, state=64)
    entries = {model: planner.entry(ADDING, model) for model in ("rnn", "lstm", "cornn", "urnn")}
    own = {model: next(iter(entry.sizes.values())) for model, entry in entries.items()}
    assert {size.state for size in own.values()} == {64}
    sizes = {model: size.matched.hidden_size for model, size in own.items()}
    assert sizes == {"rnn": 64, "lstm": 32, "cornn": 32, "urnn": 32}  # h; h and c; y and z; complex numbers


def test_columns_come_in_the_order_of_the_protocol():
    rules = protocol()
    names = [column.name for column in rules.columns]
    assert names == ["copying", "parity", "A5", "adding", "MNIST", "mqar", "S3", "selective"]
    assert [column.name for column in rules.chosen(CATALOG, ["group_word", "adding"])] == ["A5", "adding", "S3"]
    assert rules.chosen(CATALOG, ["memorization"]) == [Column("memorization", "memorization", "memorization")]
    with pytest.raises(UsageError, match="unknown task 'S33'"):
        rules.chosen(CATALOG, ["S33"])


def test_columns_are_called_after_the_settings_that_change_their_task():
    overrides = {"sequence_length": "10", "hidden_size": "8", "lr": "0.1"}
    chosen = protocol().chosen(CATALOG, ["adding", "copying"], overrides)
    assert [column.title for column in chosen] == ["copying with sequence_length=10", "adding with sequence_length=10"]
    (unchanged,) = protocol().chosen(CATALOG, ["adding"], {"hidden_size": "8"})
    assert unchanged.title == "adding, T = 200"


def test_column_of_an_entry_has_what_its_runs_have():
    assert Planner(CATALOG, {}).entry(ADDING, "lstm").column == ADDING
    overrides = {
        "sequence_length": "20",
        "max_iterations": "200",
        "evaluate_every": "10",
        "batch_size": "10",
        "solved_at": "0.01",
    }
    column = Planner(CATALOG, overrides, parameters=1000).entry(ADDING, "lstm").column
    assert column.settings == {**ADDING.settings, "sequence_length": 20}
    assert (column.parameters, column.iterations, column.batch_size, column.solved_at) == (1000, 200, 10, 0.01)
    assert Planner(CATALOG, {}, state=64).entry(ADDING, "lstm").column.parameters is None
    assert Planner(CATALOG, {"hidden_size": "8"}).entry(ADDING, "lstm").column.parameters is None


def test_task_without_a_column_keeps_its_length():
    entry = Planner(CATALOG, {"hidden_size": "8", "train_size": "640", "batch_size": "64"}).entry(
        Column("memorization", "memorization", "memorization"), "lstm"
    )
    spec = entry.trials[0].config.spec
    assert spec.task_settings["validation_size"] == 2000
    assert entry.iterations == spec.training["epochs"] * 10


@pytest.mark.parametrize(
    "model", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_every_model_fits_every_column_that_needs_no_files(model):
    planner = Planner(CATALOG, {})
    for column in protocol().columns:
        if column.task == "mnist":
            continue
        entry = planner.entry(column, model)
        for point, run in zip(entry.points, entry.trials, strict=True):
            size = entry.sizes[point.value]
            assert size.parameters == Counter().count(run.config)
            if model not in COARSE:
                assert abs(size.matched.deviation) < 0.05
