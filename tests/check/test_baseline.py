from __future__ import annotations

import pytest

from orthobench.check.baseline import Update, condition, read_baseline, write_baseline, write_whole
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec import resolve

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
values = { 0 = 0.1, 1 = 0.2, 2 = 0.3 }

[[run]]
name = "wide"
task = "adding"
model = "lstm"
seeds = [5, 6, 7]
"""
UPDATE = Update(reason="why", date="2024-05-06", versions={"torch": "2"}, machine={"cpu": "x"}, runs=("adding/lstm",))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "baseline.toml"
    path.write_text(TEXT)
    return path


def test_what_runs_of_a_task_share_is_laid_under_each(file):
    first, second = read_baseline(file).run
    assert (first.name, second.name) == ("adding/lstm", "wide")
    assert first.preset == second.preset == "quick"
    assert (first.seeds, second.seeds) == ((0, 1, 2), (5, 6, 7))
    assert first.settings == {"hidden_size": 32, "epochs": 3}
    assert first.metrics["mse"].values == {0: 0.1, 1: 0.2, 2: 0.3}
    assert first.measured
    assert not second.measured


def test_selecting_names(file):
    baseline = read_baseline(file)
    assert [run.name for run in baseline.select([])] == ["adding/lstm", "wide"]
    assert [run.name for run in baseline.select(["wide"])] == ["wide"]
    with pytest.raises(UsageError, match="unknown run 'wid': did you mean wide"):
        baseline.select(["wid"])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[[run]]", "[run]]", "is not TOML"),
        ('direction = "min"', 'direction = "down"', "run adding/lstm metrics mse direction: input should be 'min'"),
        ("allowed_loss = 0.01", "allowed_loss = -1", "run adding/lstm metrics mse allowed_loss"),
        ("allowed_loss = 0.01", "alowed_loss = 1", "run adding/lstm metrics mse alowed_loss: extra"),
        ("0 = 0.1", "zero = 0.1", "run adding/lstm metrics mse values zero"),
        ("0 = 0.1", "0 = nan", "run adding/lstm metrics mse values 0: input should be a finite number"),
        ("[5, 6, 7]", "[5, 6, 6]", "run adding/lstm: seeds are named twice"),
        ("[5, 6, 7]", "[]", "run adding/lstm seeds"),
        ('"quick"', '"fast"', "preset: input should be 'paper' or 'quick'"),
        ('name = "wide"', "", "adding/lstm is there twice"),
        ("[task.adding]", "[tasks.adding]", "tasks: extra inputs"),
        ("[task.adding]", "[[task]]", r"write \[task.NAME\] for what runs share"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(file, old, new, told):
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(UsageError, match=told) as error:
        read_baseline(file)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_baseline(tmp_path / "none.toml")


def remeasured(run, values):
    metric = run.metrics["mse"].model_copy(update={"values": values})
    return run.model_copy(update={"metrics": {"mse": metric}, "condition": "c" * 16})


def test_writing_changes_what_was_measured_and_nothing_else(file):
    first = read_baseline(file).run[0]
    write_baseline(file, [remeasured(first, {2: 3.0, 0: 1.0, 1: 2.0})], UPDATE)
    text = file.read_text()
    for kept in ("# What our models must not lose.", 'model = "lstm" # the old friend', "hidden_size = 32, epochs = 2"):
        assert kept in text
    assert "values = {0 = 1.0, 1 = 2.0, 2 = 3.0} # mean 2, deviation 1" in text
    again = read_baseline(file)
    assert again.run[0] == remeasured(first, {0: 1.0, 1: 2.0, 2: 3.0})
    assert again.run[1] == read_baseline_text(file, TEXT).run[1]
    assert again.origin(again.run[0]) == UPDATE
    assert again.origin(again.run[1]) is None


COMMENTED = """\
# What our models must not lose.
[task.adding]
seeds = [0, 1, 2]

# Guards the gates.
# At a small size.
[[run]]
task = "adding"
model = "lstm"
# The one metric.
[run.metrics.mse] # mean squared error
direction = "min"
allowed_loss = 0.01


# ---- others

# Guards nothing.
[[run]]
task = "adding"
model = "rnn"
"""
FOUND = 'condition = "cccccccccccccccc"\n'
VALUES = "values = {0 = 1.0, 1 = 2.0, 2 = 3.0} # mean 2, deviation 1\n"


def test_comments_stay_above_what_they_speak_of(file):
    file.write_text(COMMENTED)
    lstm, rnn = read_baseline(file).run
    values = {0: 1.0, 1: 2.0, 2: 3.0}
    metric = {"mse": lstm.metrics["mse"].model_copy(update={"values": values})}
    runs = [run.model_copy(update={"metrics": metric, "condition": "c" * 16}) for run in (lstm, rnn)]
    write_baseline(file, runs, UPDATE)
    wanted = COMMENTED.replace("# The one metric.", FOUND + "# The one metric.")
    wanted = wanted.replace("allowed_loss = 0.01\n", "allowed_loss = 0.01\n" + VALUES)
    wanted += FOUND + '\n[run.metrics.mse]\ndirection = "min"\nallowed_loss = 0.01\n' + VALUES + "\n[[update]]\n"
    once = file.read_text()
    assert once.startswith(wanted)
    write_baseline(file, runs, UPDATE)
    assert file.read_text() == once


def read_baseline_text(file, text):
    other = file.with_name("other.toml")
    other.write_text(text)
    return read_baseline(other)


def test_an_update_none_of_whose_values_are_left_is_dropped(file):
    def write(names, reason):
        runs = [run for run in read_baseline(file).run if run.name in names]
        write_baseline(file, runs, UPDATE.model_copy(update={"reason": reason, "runs": tuple(names)}))
        return [(one.reason, one.runs) for one in read_baseline(file).update]

    write(["adding/lstm", "wide"], "first")
    assert write(["wide"], "second") == [("first", ("adding/lstm",)), ("second", ("wide",))]
    assert write(["adding/lstm"], "third") == [("second", ("wide",)), ("third", ("adding/lstm",))]


def test_writing_twice_the_same_changes_nothing(file):
    first = read_baseline(file).run[0]
    write_baseline(file, [first], UPDATE)
    once = file.read_text()
    write_baseline(file, [read_baseline(file).run[0]], UPDATE)
    assert file.read_text() == once


def test_a_write_that_fails_leaves_the_file_as_it_was(file, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(UsageError, match="cannot be written: No space left"):
        write_whole(file, "half")
    assert file.read_text() == TEXT
    assert list(file.parent.iterdir()) == [file]


def test_the_condition_is_the_tasks_settings_and_version():
    def of(task="adding", model="rnn", **given):
        return resolve(Catalog(), task, model, given).spec

    assert condition(of()) == condition(of(model="lstm", hidden_size="7", epochs="3"))
    assert condition(of()) != condition(of(sequence_length="7"))


def test_the_text_of_a_task_in_a_file_does_not_change_its_condition(tmp_path):
    file = tmp_path / "mine.py"
    found = []
    for comment in ("# one", "# two"):
        file.write_text(
            f"from orthobench.tasks.adding import Adding\nclass Mine(Adding):\n    title = 'mine' {comment}\n"
        )
        found.append(resolve(Catalog([file]), "mine", "rnn", {}).spec)
    assert found[0].condition != found[1].condition
    assert condition(found[0]) == condition(found[1])
