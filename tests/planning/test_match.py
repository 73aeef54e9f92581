"""Hidden sizes of equal parameter counts: those that papers chose, the nearest ones by formula, and clear refusals."""

from __future__ import annotations

import pytest

import orthobench as ob
from orthobench.errors import UsageError
from orthobench.papers.sizes import sizes
from orthobench.planning.grid import read_grid
from orthobench.planning.match import MatchedRuns, with_equal_parameters
from orthobench.planning.sweep_runs import resolve_grid
from orthobench.plugins import Catalog

CATALOG = Catalog()
FORMULAS = {
    "scornn": lambda n, m, p: m * n + n * (n - 1) // 2 + n + p * (n + 1),
    "lstm": lambda n, m, p: 4 * n * (n + m + 1) + p * (n + 1),
    "urnn": lambda n, m, p: 2 * m * n + 7 * n + n + 2 * n + p * (2 * n + 1),  # 3 phases, 2 complex reflections
}
"""Parameters with n units, m inputs and p outputs: input map, matrix, bias, start if trained, output map."""


def match(task, models, requested, overrides=None, grid=None, preset="paper", seeds=(0,)) -> MatchedRuns:
    overrides = overrides or {}
    runs = resolve_grid(CATALOG, task, models, overrides, read_grid(grid or {}), seeds, preset)
    return with_equal_parameters(CATALOG, runs, overrides, preset, requested)


@pytest.mark.parametrize(
    ("source", "task", "requested"),
    [("scoRNN figure 2", "adding", "15k"), ("scoRNN figure 1", "copying", "22k")],
)
def test_matched_sizes_are_near_the_papers(source, task, requested):
    printed = {size.model: int(size.settings.split("=")[1]) for size in sizes() if size.source == source}
    assert printed.keys() >= {"scornn", "lstm", "urnn", "full_urnn"}
    for size in match(task, list(printed), requested).sizes:
        assert size.hidden_size == pytest.approx(printed[size.model], rel=0.03)


@pytest.mark.parametrize("target", [700, 15_000, 1_234_567])
def test_no_other_size_is_nearer(target):
    for size in match("adding", list(FORMULAS), target).sizes:
        counts = {n: FORMULAS[size.model](n, 2, 1) for n in range(1, 80_000)}
        assert size.parameters == counts[size.hidden_size]
        assert abs(size.parameters - target) == min(abs(count - target) for count in counts.values())
        assert size.deviation == pytest.approx(size.parameters / target - 1)


def test_matched_run_equals_the_run_with_that_hidden_size():
    matched = match("adding", ["scornn", "lstm"], "9k", seeds=(0, 1))
    assert [(run.config.spec.model, run.config.spec.seed) for run in matched.runs] == [
        ("scornn", 0), ("lstm", 0), ("scornn", 1), ("lstm", 1),
    ]  # fmt: skip
    for run in matched.runs:
        chosen = {"hidden_size": run.settings["hidden_size"]}
        (same,) = resolve_grid(CATALOG, "adding", [run.config.spec.model], chosen, [], [run.config.spec.seed], "paper")
        assert run.config.spec.key == same.config.spec.key
    scornn = matched.runs[0].config.model_settings
    assert scornn.negative_ones == round(0.5 * scornn.hidden_size)  # a share follows the size


def test_parameter_count_of_a_model_is_the_target_at_each_point(small_data):
    matched = match("cifar10", ["lstm", "rnn"], "lstm", preset="quick", grid={"noise_padded": [True, False]})
    own = resolve_grid(CATALOG, "cifar10", ["lstm"], {}, read_grid({"noise_padded": [True, False]}), [0], "quick")
    assert [run.config.spec.key for run in matched.runs[:2]] == [run.config.spec.key for run in own]
    n = own[0].config.model_settings.hidden_size
    targets = [FORMULAS["lstm"](n, inputs, 10) for inputs in (96, 3)]
    assert [(size.model, size.target) for size in matched.sizes] == [
        ("lstm", targets[0]), ("lstm", targets[1]), ("rnn", targets[0]), ("rnn", targets[1]),
    ]  # fmt: skip
    assert len({run.settings["hidden_size"] for run in matched.runs[2:]}) == 2


def test_grid_of_other_settings_matches_each_size_once():
    matched = match("adding", ["rnn"], 4000, grid={"learning_rate": [1e-3, 1e-4]})
    assert len(matched.runs) == 2
    assert len(matched.sizes) == 1


@pytest.mark.parametrize(
    ("model", "requested", "allowed"),
    [("nnrnn", 4000, lambda n: n % 2 == 0), ("kru", 1850, lambda n: n == 256), ("dtriv", 600, lambda n: n > 0)],
)
def test_models_with_restricted_sizes_are_matched(model, requested, allowed):
    (size,) = match("adding", [model], requested).sizes
    assert allowed(size.hidden_size)
    assert abs(size.deviation) <= 0.05


def test_every_built_in_model_can_be_counted():
    for model in CATALOG.names("model"):
        (run,) = resolve_grid(CATALOG, "adding", [model], {}, [], [0], "paper")
        (own,) = with_equal_parameters(CATALOG, [run], {}, "paper", model).sizes
        assert own.hidden_size == run.config.model_settings.hidden_size
        assert own.parameters == own.target > 0


@pytest.mark.parametrize(
    ("models", "requested", "overrides", "grid", "message"),
    [
        (["rnn"], "15k", {"hidden_size": 8}, {}, "hidden_size is set or in the grid, and matching .* leave one"),
        (["rnn"], "15k", {"n": 8}, {}, "hidden_size is set or in the grid"),
        (["rnn"], "15k", {}, {"n": [8, 16]}, "hidden_size is set or in the grid"),
        (["rnn", "lstm"], "gru", {}, {}, "'gru' is neither a number of parameters nor a model .* rnn, lstm"),
        (["rnn"], "-5", {}, {}, "'-5' is neither"),
        (["rnn"], "9" * 400, {}, {}, "'9+' is neither"),
        (["rnn"], 0, {}, {}, "a model cannot have 0 parameters"),
        (["rnn"], 2, {}, {}, "rnn cannot have 2 parameters within 5%: the nearest count is 6, with hidden_size=1;"),
        (["kru"], 2700, {}, {}, "kru cannot have 2700 parameters .* is 1857, with hidden_size=256"),
    ],
)  # fmt: skip
def test_refusal_says_what_to_change(models, requested, overrides, grid, message):
    with pytest.raises(UsageError, match=message):
        match("adding", models, requested, overrides, grid)


def test_missing_data_is_named(data_folder):
    with pytest.raises(UsageError, match="mnist is not installed"):
        match("mnist", ["rnn"], "15k")


PLUGINS = {
    "fixed": "    class Settings(Settings):\n        optimizer: str = 'sgd'\n",
    "constant": "    def __init__(self, settings, signature, generator):\n"
    "        super().__init__(settings.model_copy(update={'hidden_size': 8}), signature, generator)\n",
}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fixed", "fixed has no setting hidden_size, so it cannot be matched"),
        ("constant", "constant cannot have 15000 parameters within 5%"),
    ],
)
def test_model_without_a_hidden_size_is_refused(name, message, tmp_path):
    file = tmp_path / f"{name}.py"
    file.write_text(
        "from orthobench.models.rnn import RNN\nfrom orthobench.settings import Settings\n"
        f"class Own(RNN):\n    title = '{name}'\n{PLUGINS[name]}"
    )
    options = ob.RunOptions(plugins=(file,))
    with pytest.raises(UsageError, match=message):
        ob.sweep("adding", [name], match_parameters="15k", dry_run=True, db=str(tmp_path / "r.db"), options=options)


def test_plan_shows_the_sizes(orthobench, tiny):
    del tiny["hidden_size"]
    words = [word for name, value in tiny.items() for word in ("-s", f"{name}={value}")]
    sweep = ("sweep", "adding", "--models", "scornn,lstm", "--match-parameters", "0.53k", *words)
    dry = orthobench(*sweep, "--dry-run", "--no-profile")
    assert dry.code == 0, dry.err
    for model, n in (("scornn", 29), ("lstm", 10)):
        count = FORMULAS[model](n, 2, 1)
        assert f"{model} {n} {count} 530 {count / 530 - 1:+.1%}" in " ".join(dry.out.split())
        assert f"{model} hidden_size={n} 0 missing" in " ".join(dry.out.split())


def test_file_and_python_api_match_sizes(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    del tiny["hidden_size"]
    options = ob.SweepOptions(jobs=0)
    result = ob.sweep("adding", ["rnn", "gru"], match_parameters=474, settings=tiny, options=options)
    assert {run.model: run.parameter_count for run in result.runs} == {s.model: s.parameters for s in result.sizes}
    lines = ['task = "adding"', 'models = ["rnn", "gru"]', "match_parameters = 474", "[settings]"]
    file = tmp_path / "sweep.toml"
    file.write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in tiny.items())]))
    again = ob.sweep_file(file, options=options)
    assert [run.key for run in again.runs] == [run.key for run in result.runs]
    assert again.sizes == result.sizes
    assert again.outcomes == []


@pytest.mark.parametrize("value", ["1.5", "0", "true", "[15000]"])
def test_file_with_an_invalid_target_is_refused_in_one_line(value, orthobench, tmp_path):
    (tmp_path / "sweep.toml").write_text(f'task = "adding"\nmodels = ["rnn"]\nmatch_parameters = {value}\n')
    outcome = orthobench("sweep", "--file", "sweep.toml", "--dry-run")
    assert outcome.code == 2
    assert outcome.err == (
        'error: sweep.toml: match_parameters should be a number of parameters such as 15000 or "15k", '
        "or a model of the sweep\n"
    )
