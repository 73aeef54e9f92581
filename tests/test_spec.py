import numpy as np
import pytest
from pydantic import Field

from orthobench.errors import UsageError
from orthobench.options.assignments import parse_assignments
from orthobench.papers import experiments, papers
from orthobench.plugins import Catalog
from orthobench.settings import Settings
from orthobench.spec.resolve import resolve, resolve_again

CATALOG = Catalog()


def settings(task="adding", model="scornn", preset="paper", **overrides):
    return resolve(CATALOG, task, model, overrides, preset).spec.settings


def test_defaults_are_the_papers_values():
    defaults = settings()
    expected = {
        "sequence_length": 200,
        "hidden_size": 170,
        "negative_ones": 85,
        "optimizer": "adam_tf1",
        "recurrent_learning_rate": 1e-4,
        "batch_size": 50,
        "epochs": 10,
        "train_size": 100_000,
        "shuffle": False,
    }
    assert {name: defaults[name] for name in expected} == expected
    assert settings(model="lstm")["forget_bias"] == 2


def test_nearest_experiment_gives_the_defaults():
    assert settings(sequence_length="400")["negative_ones"] == 119
    assert settings(model="lstm", sequence_length="750")["forget_bias"] == 0
    assert settings("copying", sequence_length="2000")["output_bias"] == "glorot"


def test_training_length_does_not_choose_the_experiment():
    config = resolve(Catalog(), "adding", "lstm", {"epochs": 1})  # as figure 5 has it, of 300 iterations
    assert (config.task_settings.sequence_length, config.training.max_iterations) == (200, None)


def test_setting_tied_to_a_changed_one_falls_back_to_its_default():
    assert settings(hidden_size="64")["negative_ones"] == 32
    assert settings(hidden_size="64", negative_ones="5")["negative_ones"] == 5
    assert settings(hidden_size="170")["negative_ones"] == 85


def test_share_of_units_is_recorded_as_a_number():
    assert settings(negative_ones="0.1")["negative_ones"] == 17
    assert settings(negative_ones="0")["negative_ones"] == 0
    assert settings(hidden_size="10", negative_ones="1.0")["negative_ones"] == 10


@pytest.mark.parametrize("model", ["scornn", "enrnn", "deltanet", "kru", "lstm"])
def test_whole_numbers_may_have_a_decimal_point_or_a_power_of_ten(model):
    expected = settings(model=model, hidden_size="64")
    for value in ("64.0", "6.4e1", "640e-1", 64.0, np.float64(64)):
        assert settings(model=model, hidden_size=value) == expected


def test_optional_whole_numbers_may_have_a_power_of_ten():
    expected = settings(max_iterations="1000", embedding_size="20")
    assert settings(max_iterations="1e3", embedding_size="2e1") == expected
    assert (expected["max_iterations"], expected["embedding_size"]) == (1000, 20)


def test_requested_setting_overrides_the_preset():
    assert settings(preset="quick")["sequence_length"] == 100
    assert settings(preset="quick", sequence_length="30")["sequence_length"] == 30


def test_every_experiment_is_valid_and_its_own_default():
    for paper in papers():
        for experiment in paper.experiments():
            written = {name: str(value) for name, value in experiment.settings.items()}
            in_powers = {n: f"{v:e}" for n, v in experiment.settings.items() if isinstance(v, float)}
            for overrides in (written, written | in_powers):
                spec = resolve(CATALOG, experiment.task, experiment.model, overrides).spec
                assert experiment.differences(spec.settings) == {}
            assert experiment in experiments(experiment.task, experiment.model)


@pytest.mark.parametrize(("scientific", "decimal"), [("7e-4", "0.0007"), ("5e-4", "0.0005")])
def test_one_value_in_two_notations_is_one_run(scientific, decimal):
    first, second = (
        resolve(CATALOG, "mnist", "exprnn", {"permuted": "true", "learning_rate": rate}).spec
        for rate in (scientific, decimal)
    )
    assert first == second


def test_keys_are_equal_exactly_for_equal_runs():
    def key(seed=0, **overrides):
        return resolve(CATALOG, "adding", "scornn", overrides, seed=seed).spec.key

    assert key() == key(hidden_size="170", learning_rate="0.001") == key(learning_rate="1e-3")
    different = [key(), key(seed=1), key(learning_rate="2e-3"), key(sequence_length="100"), key(shuffle="true")]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize("model", ["ornn", "spectral_rnn"])
def test_default_above_its_limit_is_resolved_again_in_another_process(model):
    """By default k = 16 reflections, of which a model of 8 units has 8."""
    config = resolve(CATALOG, "adding", model, {"hidden_size": "8"})
    assert resolve_again(CATALOG, config.spec) == config
    with pytest.raises(UsageError, match="reflections=9 is more than hidden_size"):
        resolve(CATALOG, "adding", model, {"hidden_size": "8", "reflections": "9"})


def test_variant_ignores_the_seed_and_condition_the_model():
    first, second = (resolve(CATALOG, "adding", "scornn", {}, seed=seed).spec for seed in (0, 1))
    lstm = resolve(CATALOG, "adding", "lstm", {}).spec
    assert first.variant == second.variant != lstm.variant
    assert first.condition == lstm.condition
    assert first.with_seed(1) == second


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"hiden_size": "3"}, "unknown setting 'hiden_size': did you mean hidden_size"),
        ({"hidden_size": "-3"}, "hidden_size=-3: should be greater than or equal to 1"),
        ({"learning_rate": "fast"}, "learning_rate=fast: should be a number"),
        ({"learning_rate": "nan"}, "learning_rate=nan: should be a finite number"),
        ({"negative_ones": "171"}, "negative_ones=171 should be a whole number from 0 to hidden_size (170)"),
        ({"negative_ones": "-1"}, "negative_ones=-1 should be"),
        ({"optimizer": "rmsprob"}, "optimizer=rmsprob: should be 'adagrad_tf1'"),
        ({"seed": "3"}, "the seed is not a setting: give `seed=3`"),
        ({"lr": "1e-3"}, "unknown setting 'lr': did you mean learning_rate?"),
        ({"T": "100"}, "unknown setting 'T': did you mean sequence_length?"),
        ({"shuffle": "maybe"}, "shuffle=maybe: should be true or false"),
        ({"epochs": "1.5"}, "epochs=1.5: should be a whole number"),
        ({"epochs": "1.25e1"}, "epochs=1.25e1: should be a whole number"),
        ({"epochs": "1e99"}, "epochs=1e99: should be a smaller whole number"),
    ],
)
def test_invalid_settings_are_one_line(overrides, message):
    with pytest.raises(UsageError) as error:
        resolve(CATALOG, "adding", "scornn", overrides)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        *(([text], f"'{text}' is not a setting: write KEY=VALUE") for text in ("hidden_size", "=3", "a=", "")),
        (["a=1", "a=2"], r"a is given twice \(1 and 2\)"),
    ],
)
def test_invalid_assignments_are_refused(texts, message):
    with pytest.raises(UsageError, match=message):
        parse_assignments(texts)


@pytest.mark.parametrize(("task", "near"), [("addin", "adding"), ("Copying", "copying")])
def test_unknown_names_suggest_the_nearest(task, near):
    with pytest.raises(UsageError, match=f"did you mean {near}"):
        resolve(CATALOG, task, "lstm", {})


def test_setting_at_its_neutral_value_does_not_change_the_key():
    """So one that is added later changes no earlier run's key."""

    class Before(Settings):
        size: int = 3

    class After(Before):
        bandwidth: int | None = Field(None, json_schema_extra={"neutral": None})
        factor: float = Field(2.0, json_schema_extra={"neutral": 1.0})

    assert After(factor=1.0).canonical() == Before().canonical() == {"size": 3}
    assert After(bandwidth=0).canonical() == {"size": 3, "bandwidth": 0, "factor": 2.0}
