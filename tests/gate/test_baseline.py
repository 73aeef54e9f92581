from __future__ import annotations

import json

import pytest

from orthobench.errors import StorageError, UsageError
from orthobench.gate.baseline import Update, condition, measured_file, read_baseline, write_measured
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.system.files import write_text

TEXT = """\
# What our models must not lose.
[task.adding]
preset = "quick"
seeds = [0, 1, 2]
settings = { hidden_size = 32, epochs = 2 }

[[run]]
task = "adding"
model = "lstm" # the old friend
settings = { epochs = 3 }

[run.metrics.mse]
direction = "min"
allowed_loss = 0.01

[[run]]
name = "wide"
task = "adding"
model = "lstm"
seeds = [5, 6, 7]
"""
MEASURED = {
    "runs": {
        "adding/lstm": {
            "condition": "c",
            "speed": 0.5,
            "metrics": {
                "mse": {
                    "direction": "min",
                    "take": "final",
                    "measured_margin": 9.5,  # of an earlier update; it does not count
                    "values": {"0": 0.1, "1": 0.2, "2": 0.3},
                }
            },
        }
    },
    "updates": [],
}
UPDATE = Update(reason="why", date="2024-05-06", versions={"torch": "2"}, machine={"cpu": "x"}, runs=("adding/lstm",))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "baseline.toml"
    path.write_text(TEXT)
    measured_file(path).write_text(json.dumps(MEASURED))
    return path


def test_shared_settings_of_a_task_apply_to_each_run(file):
    first, second = read_baseline(file).run
    assert (first.name, second.name) == ("adding/lstm", "wide")
    assert first.preset == second.preset == "quick"
    assert (first.seeds, second.seeds) == ((0, 1, 2), (5, 6, 7))
    assert first.settings == {"hidden_size": 32, "epochs": 3}
    assert first.metrics["mse"].values == {0: 0.1, 1: 0.2, 2: 0.3}
    assert first.has_values
    assert not second.has_values
    assert (first.step_ratio, first.speed.allowed_factor) == (0.5, 3.0)


def test_built_in_plugins_declare_what_they_learn_and_their_exact_run(file):
    file.write_text(f"built_in = true\n{TEXT}")
    runs = {run.name: run for run in read_baseline(file).run}
    assert (runs["adding/lstm"].settings, runs["wide"].seeds) == ({"hidden_size": 32, "epochs": 3}, (5, 6, 7))
    irnn = runs["adding/irnn"]
    assert (irnn.settings, irnn.seeds) == ({"hidden_size": 32, "epochs": 2, "learning_rate": 3e-3}, (0, 1, 2))
    mqar = runs["mqar/exact"]
    assert (mqar.model, mqar.exact, mqar.preset, mqar.seeds, mqar.tolerance) == ("deltanet", True, "quick", (11,), 1e-3)
    assert mqar.settings["pairs"] == 2
    assert "model" not in mqar.settings
    file.write_text(f"built_in = false\n{TEXT}")
    assert [run.name for run in read_baseline(file).run] == ["adding/lstm", "wide"]


def test_names_select_runs(file):
    baseline = read_baseline(file)
    assert [run.name for run in baseline.select([])] == ["adding/lstm", "wide"]
    assert [run.name for run in baseline.select(["wide"])] == ["wide"]
    with pytest.raises(UsageError, match="unknown run 'wid': did you mean wide"):
        baseline.select(["wid"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[run]]", "[run]]", "is not TOML"),
        ("[5, 6, 7]", "5", "run wide seeds: input should be a valid tuple"),
        ('direction = "min"', 'direction = "down"', "run adding/lstm metrics mse direction: input should be 'min'"),
        ("allowed_loss = 0.01", "allowed_loss = -1", "run adding/lstm metrics mse allowed_loss"),
        ("allowed_loss = 0.01", "alowed_loss = 1", "run adding/lstm metrics mse alowed_loss is not a key of"),
        ("[5, 6, 7]", "[5, 6, 6]", "run wide seeds: a seed is given twice"),
        ("[5, 6, 7]", "[]", "run wide seeds"),
        ('"quick"', '"fast"', "preset: input should be 'paper' or 'quick'"),
        ('name = "wide"', "", "adding/lstm appears twice"),
        ("[task.adding]", "[tasks.adding]", "tasks is not a key of a baseline"),
        ('name = "wide"', "tolerance = 0.001\nname = 'wide'", "tolerance needs exact = true"),
        ("[task.adding]", "[[task]]", "task: input should be a valid dictionary"),
        ("[task.adding]", "built_in = 1\n[task.adding]", "built_in: input should be a valid boolean"),
        (TEXT, "run = [3]", "run 0: input should be a valid dictionary"),
        ("[task.adding]", "[task]\nlstm = 3\n[task.adding]", "task lstm: input should be a valid dictionary"),
        ('preset = "quick"', "metrics = { mse = 3 }", "task adding metrics mse: input should be a valid dictionary"),
        ('name = "wide"', "settings = 3", "run adding/lstm settings: input should be a valid dictionary"),
        ('name = "wide"', "speed = 3", "run adding/lstm speed: input should be a valid dictionary"),
    ],
)
def test_invalid_entry_is_reported_with_its_place(file, old, new, message):
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(UsageError, match=message) as error:
        read_baseline(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('preset = "quick"', "epochs = 12", "task adding epochs"),
        ('name = "wide"', "name = 'wide'\nforget_bias = 12", "run wide forget_bias"),
        ('direction = "min"', 'direction = "min"\nvalues = { 0 = 0.1 }', "run adding/lstm metrics mse values"),
        ("seeds = [5, 6, 7]", 'condition = "c"', "run wide condition"),
    ],
)
def test_key_of_no_run_is_reported_with_its_table(file, old, new, place):
    """Settings belong in a table, and only an update writes values."""
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(UsageError) as error:
        read_baseline(file)
    why = "is not a key of a baseline, whose runs name those of model and task in a table settings"
    assert str(error.value) == f"baseline {file}: {place} {why}"


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(UsageError, match="there is no baseline"):
        read_baseline(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"0": 0.1', '"zero": 0.1'),
        ('"0": 0.1', '"0": NaN'),
        ('"speed": 0.5', '"speed": -1'),
        ('"runs"', '"rums"'),
        ("{", ""),
        ('"metrics": {', '"metrics": [1], "metrix": {'),
    ],
)
def test_damaged_file_of_values_is_reported(file, old, new):
    measured_file(file).write_text(json.dumps(MEASURED).replace(old, new, 1))
    message = r"baseline.measured.json is damaged: restore it, or delete it and measure again"
    with pytest.raises(UsageError, match=message) as error:
        read_baseline(file)
    assert "\n" not in str(error.value)


def test_values_of_another_direction_or_selection_do_not_count(file):
    for changed in ('direction = "max"', 'direction = "min"\ntake = "best"'):
        file.write_text(TEXT.replace('direction = "min"', changed))
        assert not read_baseline(file).run[0].has_values


def with_values(run, values):
    metric = run.metrics["mse"].model_copy(update={"values": values})
    return run.model_copy(update={"metrics": {"mse": metric}, "condition": "c" * 16})


def test_writing_keeps_the_authors_file_and_the_other_runs(file):
    before = read_baseline(file)
    wide = with_values(before.run[0], {5: 1.0}).model_copy(update={"name": "wide"})
    write_measured(file, [wide], UPDATE.model_copy(update={"runs": ("wide",)}))
    assert file.read_text() == TEXT
    assert read_baseline(file).run[0] == before.run[0]
    assert read_baseline(file).run[1].metrics["mse"].values == {5: 1.0}


def test_written_values_are_read_back(file):
    first, second = read_baseline(file).run
    write_measured(file, [with_values(first, {2: 3.0, 0: 1.0, 1: 2.0})], UPDATE)
    again = read_baseline(file)
    assert again.run == (with_values(first, {0: 1.0, 1: 2.0, 2: 3.0}), second)
    assert again.origin(again.run[0]) == UPDATE
    assert again.origin(again.run[1]) is None
    lines = measured_file(file).read_text().splitlines()
    assert '     "values": {"0": 1.0, "1": 2.0, "2": 3.0}' in lines


def test_three_standard_deviations_are_allowed_where_the_authors_set_no_loss(file):
    assert read_baseline(file).run[0].metrics["mse"].margin == 0.01
    file.write_text(TEXT.replace("allowed_loss = 0.01\n", ""))
    first, second = read_baseline(file).run
    assert first.metrics["mse"].margin == pytest.approx(0.3)  # of 0.1, 0.2 and 0.3
    assert second.metrics == {}
    write_measured(file, [first], UPDATE)
    assert "margin" not in measured_file(file).read_text()


def test_run_removed_by_the_authors_goes_at_the_next_update(file):
    file.write_text(TEXT.partition("[[run]]")[0] + '[[run]]\ntask = "adding"\nmodel = "rnn"\n')
    rnn = with_values(read_baseline_text(file, TEXT).run[0], {0: 1.0}).model_copy(update={"name": "adding/rnn"})
    write_measured(file, [rnn], UPDATE.model_copy(update={"runs": ("adding/rnn",)}))
    assert set(json.loads(measured_file(file).read_text())["runs"]) == {"adding/rnn"}


def read_baseline_text(file, text):
    other = file.with_name("other.toml")
    other.write_text(text)
    measured_file(other).write_text(json.dumps(MEASURED))
    return read_baseline(other)


def test_update_without_remaining_values_is_dropped(file):
    def write(names, reason):
        first = read_baseline(file).run[0]
        runs = [first.model_copy(update={"name": name}) for name in names]
        write_measured(file, runs, UPDATE.model_copy(update={"reason": reason, "runs": tuple(names)}))
        return [(update.reason, update.runs) for update in read_baseline(file).update]

    write(["adding/lstm", "wide"], "first")
    assert write(["wide"], "second") == [("first", ("adding/lstm",)), ("second", ("wide",))]
    assert write(["adding/lstm"], "third") == [("second", ("wide",)), ("third", ("adding/lstm",))]


def test_writing_the_same_twice_changes_nothing(file):
    first = read_baseline(file).run[0]
    write_measured(file, [first], UPDATE)
    once = measured_file(file).read_text()
    write_measured(file, [read_baseline(file).run[0]], UPDATE)
    assert measured_file(file).read_text() == once


def test_failed_write_keeps_the_file(file, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(StorageError, match="cannot be written: No space left"):
        write_text(file, "half")
    assert file.read_text() == TEXT
    assert set(file.parent.iterdir()) == {file, measured_file(file)}


def test_condition_is_the_tasks_settings_and_version():
    def of(task="adding", model="rnn", **overrides):
        return resolve(Catalog(), task, model, overrides).spec

    assert condition(of()) == condition(of(model="lstm", hidden_size="7", epochs="3"))
    assert condition(of()) != condition(of(sequence_length="7"))


def test_text_of_a_task_in_a_file_does_not_change_its_condition(tmp_path):
    file = tmp_path / "mine.py"
    specs = []
    for comment in ("# one", "# two"):
        file.write_text(
            f"from orthobench.tasks.adding import Adding\nclass Mine(Adding):\n    title = 'mine' {comment}\n"
        )
        specs.append(resolve(Catalog([file]), "mine", "rnn", {}).spec)
    assert specs[0].condition != specs[1].condition
    assert condition(specs[0]) == condition(specs[1])


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "run = []\n", '[task.adding]\npreset = "quick"\n'])
def test_baseline_without_runs_is_an_error(text, orthobench, tmp_path):
    (tmp_path / "empty.toml").write_text(text)
    for command in (("check", "empty.toml"), ("check", "empty.toml", "--update", "--reason", "new")):
        refused = orthobench(*command)
        assert refused.code == 2
        assert refused.err == (
            "error: baseline empty.toml has no runs, so nothing would be checked: add a [[run]] with task and model\n"
        )
