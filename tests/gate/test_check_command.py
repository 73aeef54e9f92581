"""`orthobench check` as its users meet it: runs of a fraction of a second, end to end."""

from __future__ import annotations

import json
import subprocess
from xml.etree import ElementTree

import pytest

from orthobench.gate.baseline import measured_file, read_baseline
from orthobench.reporting.account.regressions import gated_numbers
from orthobench.store import open_store
from orthobench.store.tables import CHECK

METRIC = """
[run.metrics.mse]
direction = "min"
allowed_loss = 3.0
"""
TEXT = """\
[task.adding]
seeds = [0, 1, 2]
settings = { sequence_length = 10, train_size = 200, test_size = 20, batch_size = 10, epochs = 1, hidden_size = 8 }

[[run]]
task = "adding"
model = "gru"

[run.metrics.mse]
direction = "min"
allowed_loss = 3.0

[[run]]
task = "adding"
model = "rnn"

[run.metrics.mse]
direction = "min"
allowed_loss = 3.0
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "checks" / "baseline.toml"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


@pytest.fixture
def measured(file, after):
    """Return the command line in a folder whose baseline has values of this code."""
    first = ("check", "--update", "--reason", "first", "--db", "runs.db")
    return after(first, **{"checks/baseline.toml": TEXT})


def findings(outcome) -> dict[str, dict]:
    return {f"{finding['run']} {finding['metric']}": finding for finding in json.loads(outcome.out)["findings"]}


def change(file, model, by):
    """As if the baseline's values had been greater by this much."""
    content = json.loads(measured_file(file).read_text())
    values = content["runs"][f"adding/{model}"]["metrics"]["mse"]["values"]
    content["runs"][f"adding/{model}"]["metrics"]["mse"]["values"] = {seed: v + by for seed, v in values.items()}
    measured_file(file).write_text(json.dumps(content))


@pytest.mark.slow
def test_unchanged_code_passes_anew_from_the_database_and_with_other_seeds(measured, file):
    for options in ((), ("--db", "runs.db"), ("--db-only", "--db", "runs.db"), ("--first-seed", "50")):
        outcome = measured("check", *options)
        assert outcome.code == 0, outcome.out
        assert "as good as the baseline: 2 same" in outcome.out
    assert "gru seed 50" in outcome.err
    assert measured("check", "--db", "runs.db").err == ""  # nothing trains again


def test_runs_are_trained_anew_unless_a_database_is_named(measured, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    outcome = measured("check", "--only", "adding/rnn")
    assert outcome.err.count("[3/3] adding rnn seed 2: epoch 1.00") == 1
    assert "gru" not in outcome.out
    assert sorted(tmp_path.rglob("*")) == before


def test_conditions_select_runs_of_the_baseline(measured):
    outcome = measured("check", "--db", "runs.db", "--model", "rnn")
    assert "rnn" in outcome.out
    assert "gru" not in outcome.out
    refused = measured("check", "--db", "runs.db", "--where", "prest=quick")
    assert (refused.code, "unknown column or setting 'prest': did you mean preset?" in refused.err) == (2, True)


def test_worse_result_fails(measured, file):
    change(file, "gru", -1000)
    outcome = measured("check", "--db", "runs.db", "--json", "--history", "history.db")
    assert outcome.code == 1
    by_metric = findings(outcome)
    with open_store("history.db") as store:
        (record,) = store.benchmarks(CHECK)
    assert record.results == json.loads(outcome.out) | {"commit": ""}  # in a folder without a repository
    assert by_metric["adding/gru mse"]["verdict"] == "worse"
    assert by_metric["adding/rnn mse"]["verdict"] == "same"
    assert json.loads(outcome.out)["summary"] == "WORSE than the baseline: 1 same, 1 worse"


@pytest.mark.parametrize("place", ["nowhere/history.db", "sqlite://"])
def test_history_that_cannot_be_written_is_refused_before_training(measured, place):
    outcome = measured("check", "--only", "adding/rnn", "--history", place)
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1, outcome.err


def test_better_result_passes(measured, file):
    change(file, "rnn", 1000)
    outcome = measured("check", "--db", "runs.db", "--json")
    assert outcome.code == 0
    assert findings(outcome)["adding/rnn mse"]["verdict"] == "better"


def test_baseline_without_values_is_undecided_and_trains_nothing(file, orthobench):
    outcome = orthobench("check")
    assert outcome.code == 3
    command = "orthobench check --only adding/rnn --update --seeds 20 --reason '...'"
    assert f"not measured yet; to measure it: `{command}`" in outcome.out
    assert outcome.err == ""


def test_run_absent_from_the_database_is_missing(measured):
    outcome = measured("check", "--db-only", "--db", "runs.db", "--first-seed", "1")
    assert outcome.code == 3
    assert "seed 3: not in the database" in outcome.out


@pytest.mark.parametrize("changed", [{"commit": "another"}, {"dirty": True, "changes": "0123456789abcdef"}])
def test_runs_of_other_code_do_not_count_unless_asked_for(measured, changed):
    from orthobench.store import open_store
    from orthobench.store.tables import Environment

    def forge(session):
        for environment in session.query(Environment):
            environment.facts = environment.facts | changed

    with open_store("runs.db") as store:
        store._write(forge)
    outcome = measured("check", "--db", "runs.db")
    assert outcome.code == 3
    assert "by other code or versions" in outcome.out
    assert measured("check", "--db", "runs.db", "--db-only").code == 0
    outcome = measured("check", "--db", "runs.db", "--db-only", "--update", "--reason", "as if they were ours")
    assert outcome.code == 3
    assert "run adding/gru seed 0: by other code or versions" in outcome.err


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (
            "sequence_length = 10",
            "sequence_length = 11",
            "settings have changed: sequence_length=10 (now 11); to measure again: `orthobench",
        ),
        ("sequence_length = 10", "sequence_length = 10, learning_rate = 3e-3", "learning_rate=default (now 0.003)"),
    ],
)
def test_changed_baseline_is_undecided(measured, file, old, new, shown):
    """The loss would be that of the settings, or hide that of the code."""
    file.write_text(file.read_text().replace(old, new))
    outcome = measured("check")
    assert outcome.code == 3
    assert shown in " ".join(outcome.out.split())


def test_task_of_another_version_is_undecided(measured, file):
    values = file.with_suffix(".measured.json")
    content = json.loads(values.read_text())
    for run in content["runs"].values():
        run["condition"] = "0123456789abcdef"
        del run["settings"]  # as of an update before they were kept
    values.write_text(json.dumps(content))
    outcome = measured("check")
    assert outcome.code == 3
    assert "the task's settings or version differ from the baseline's" in outcome.out


def test_two_seeds_are_refused_as_evidence_and_as_a_baseline(measured, file):
    outcome = measured("check", "--seeds", "2")
    assert (outcome.code, outcome.err) == (3, "")
    assert "too few seeds: 2" in outcome.out
    before = measured_file(file).read_text()
    outcome = measured("check", "--seeds", "2", "--update", "--reason", "hasty", "--db", "runs.db")
    assert outcome.code == 2
    assert "a baseline needs 3 seeds or more" in outcome.err
    assert measured_file(file).read_text() == before


@pytest.mark.slow
def test_one_seed_is_enough_for_an_exact_run(file, orthobench):
    file.write_text(TEXT.replace("[[run]]", "[[run]]\nexact = true\nseeds = [4]"))
    first = orthobench("check", "--update", "--reason", "exact", "--seeds", "1")
    assert (first.code, first.out) == (0, "")
    assert "compared" not in first.err  # there is nothing to compare with
    outcome = orthobench("check")
    assert outcome.code == 0
    assert outcome.out.count("equal to the last bit") == 2  # of each run the metric that the file names
    change(file, "gru", -1e-12)
    outcome = orthobench("check", "--json")
    assert outcome.code == 1
    assert findings(outcome)["adding/gru mse"]["verdict"] == "worse"


@pytest.mark.slow
def test_more_seeds_can_be_measured_than_are_checked(file, orthobench):
    assert orthobench("check", "--update", "--reason", "many", "--seeds", "5", "--only", "adding/rnn").code == 0
    gru, rnn = read_baseline(file).run
    assert (gru.has_values, len(rnn.metrics["mse"].values), rnn.seeds) == (False, 5, (0, 1, 2))
    assert "(3)" in orthobench("check", "--only", "adding/rnn").out


@pytest.fixture
def git(tmp_path):
    """A function that runs git in the test's folder."""

    def call(*arguments):
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    return call


@pytest.mark.slow
def test_update_records_the_origin_of_the_values(file, orthobench, tmp_path, git):
    (tmp_path / "code.py").write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    update = ("check", "--update", "--db", "runs.db", "--reason")
    assert orthobench(*update, "a fresh start").code == 0
    head = git("rev-parse", "HEAD")
    written = read_baseline(file)
    (origin,) = written.update
    assert (origin.reason, origin.commit, origin.runs) == ("a fresh start", head, ("adding/gru", "adding/rnn"))
    assert origin.versions.keys() >= {"python", "torch", "orthobench"}
    assert origin.machine["cpu"]
    assert all(run.step_ratio is not None and run.step_ratio > 0 for run in written.run)

    assert orthobench(*update, "again").code == 0  # the baseline itself is changed now: no matter
    assert read_baseline(file).update[0].commit == head
    (tmp_path / "code.py").write_text("2")
    assert orthobench(*update, "and again").code == 0
    assert read_baseline(file).update[0].commit == f"{head}+changes"


def test_update_keeps_values_set_by_a_person(measured, file):
    text = TEXT.removesuffix("3.0\n") + "0.25 # our choice\n"
    file.write_text(text)
    outcome = measured("check", "--update", "--reason", "again", "--db", "runs.db")
    assert outcome.code == 0
    assert file.read_text() == text
    assert read_baseline(file).run[1].metrics["mse"].margin == 0.25


def test_update_that_fails_keeps_the_baseline_and_the_runs_of_the_database(file, orthobench, tmp_path):
    """The same command later trains only what is missing."""
    (tmp_path / "bad.py").write_text(
        "from orthobench.models.rnn import RNN\n"
        "class Bad(RNN):\n    title = 'bad'\n    def states(self, *_): raise ArithmeticError('on purpose')\n"
    )
    file.write_text(TEXT + '\n[[run]]\ntask = "adding"\nmodel = "bad"\n')
    update = ("check", "--plugin", "bad.py", "--update", "--db", "runs.db", "--reason", "first")
    outcome = orthobench(*update)
    assert outcome.code == 3
    assert "run adding/bad seed 0: failed: bad.py:4 raises ArithmeticError: on purpose" in outcome.err
    assert "checks/baseline.toml is unchanged" in outcome.err
    assert not measured_file(file).exists()
    file.write_text(TEXT)
    again = orthobench(*update)
    assert (again.code, "epoch" in again.err) == (0, False)


CELL = """
import torch

class MyCell(torch.nn.RNNCell):
    pass
"""


def test_layer_of_a_file_is_checked_by_its_path(file, orthobench, tmp_path):
    """It needs no registration."""
    (tmp_path / "cell.py").write_text(CELL)
    file.write_text(TEXT.rpartition("\n[[run]]")[0].replace('"gru"', '"./cell.py:MyCell"'))
    assert orthobench("check", "--update", "--reason", "first").code == 0
    (run,) = read_baseline(file).run
    assert (run.name, sorted(run.metrics["mse"].values)) == ("adding/./cell.py:MyCell", [0, 1, 2])
    outcome = orthobench("check", "--json")
    assert (outcome.code, findings(outcome)["adding/./cell.py:MyCell mse"]["verdict"]) == (0, "same")
    change(file, "./cell.py:MyCell", -1000)
    outcome = orthobench("check", "--json")
    assert (outcome.code, findings(outcome)["adding/./cell.py:MyCell mse"]["verdict"]) == (1, "worse")


def test_run_without_its_data_set_is_skipped_visibly(file, orthobench, data_folder, tmp_path):
    """Missing data is not a fault of the code; the rest is judged."""
    run = '[[run]]\ntask = "mnist"\nmodel = "rnn"\nexact = true\nseeds = [1]\npreset = "quick"\n'
    file.write_text(f"{TEXT}\n{run}")
    assert orthobench("check", "--update", "--reason", "first", "--model", "gru").code == 0
    outcome = orthobench("check", "--junit", "out.xml", "--only", "adding/gru", "--only", "mnist/rnn")
    assert outcome.code == 0, outcome.out
    assert "as good as the baseline: 1 same, 1 skipped" in outcome.out
    assert ElementTree.parse(tmp_path / "out.xml").getroot().get("skipped") == "1"
    outcome = orthobench("check", "--json", "--only", "mnist/rnn")
    assert outcome.code == 3
    assert findings(outcome)["mnist/rnn -"]["reason"].startswith("mnist is not installed: orthobench data get mnist")
    update = orthobench("check", "--update", "--reason", "x", "--only", "mnist/rnn")
    assert (update.code, "mnist is not installed" in update.err) == (2, True)


def test_seed_without_effect_is_worse(measured, monkeypatch):
    from orthobench.task import seeds

    derive = seeds.derive_seed
    monkeypatch.setattr(seeds, "derive_seed", lambda seed, *purpose: derive(0, *purpose))
    outcome = measured("check", "--only", "adding/gru", "--json")
    assert outcome.code == 1
    assert (
        "the seed has no effect; equal in all metrics: seeds 0, 1, 2" in findings(outcome)["adding/gru mse"]["reason"]
    )


@pytest.mark.slow
def test_margin_that_lets_everything_pass_is_reported(file, orthobench):
    file.write_text(TEXT.replace("3.0", "9.5"))
    outcome = orthobench("check", "--update", "--reason", "x")
    assert "adding/rnn: mse may reach 10" in outcome.err
    assert "a model without memory scores 0.167" in outcome.err


def test_reports_are_written(measured, file, tmp_path):
    change(file, "gru", -1000)
    assert measured("check", "--db", "runs.db", "--junit", "out.xml", "--markdown", "out.md").code == 1
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "0")
    (failed,) = (case for case in suite if case.find("failure") is not None)
    assert (failed.get("classname"), failed.get("name")) == ("orthobench.check.adding/gru", "mse")
    assert failed.find("failure").get("message").startswith("worse: ")

    lines = (tmp_path / "out.md").read_text().splitlines()
    assert lines[0] == "### orthobench check: WORSE than the baseline: 1 same, 1 worse"
    rows = [line for line in lines if line.startswith("| adding/")]
    assert len(rows) == 4
    assert {line.count("|") for line in lines if line.startswith("|")} == {9}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("none.toml",), "there is no baseline none.toml: run in a clone"),
        (("--update",), "--update needs --reason"),
        (("--update", "--reason", " "), "--update needs --reason"),
        (("--reason", "x"), "--reason belongs to --update"),
        (("--only", "adding/gur"), "did you mean adding/gru"),
        (("--db-only",), "there is no database results.db"),
        (("--seeds", "0"), "'--seeds'"),
        (("--db", "no/such/runs.db"), "there is no folder"),
        (("--junit", "no/such/check.xml"), "no/such/check.xml cannot be written"),
        (("--markdown", "checks"), "checks cannot be written"),
    ],
)
def test_invalid_usage_is_one_line(file, orthobench, options, message):
    outcome = orthobench("check", *options)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_unknown_setting_is_reported_with_its_run(file, orthobench):
    file.write_text(TEXT.replace('model = "rnn"', 'model = "rnn"\nsettings = { hidden_sise = 3 }'))
    outcome = orthobench("check")
    assert outcome.code == 2
    assert "run adding/rnn: unknown setting 'hidden_sise': did you mean hidden_size?" in outcome.err


@pytest.mark.parametrize("option", [(), ("--update", "--reason", "first")])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hidden_size = 8", "hidden_sise = 8", "unknown setting 'hidden_sise': did you mean hidden_size?"),
        ("hidden_size = 8", 'hidden_size = "eight"', "hidden_size"),
        ("metrics.mse", "metrics.mce", "unknown metric 'mce': did you mean mse?"),
        ("metrics.mse", "metrics.orthogonality", "unknown metric 'orthogonality': known: "),
        ('direction = "min"', 'direction = "max"', 'mse has direction = "max", but the task adding declares the goal'),
        (
            '.mse]\ndirection = "min"',
            '."train/loss"]\ndirection = "max"',
            'train/loss has direction = "max", but the task adding declares the goal "min"',
        ),
    ],
)
def test_invalid_run_is_one_line_before_training(file, orthobench, option, old, new, message):
    file.write_text(TEXT.replace(old, new))
    outcome = orthobench("check", *option)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith("error: run adding/gru: ")
    assert message in outcome.err


def test_metrics_of_validation_data_and_training_can_be_gated(file, orthobench):
    text = TEXT.partition("[run.metrics")[0].replace("train_size = 200", "train_size = 200, validation_size = 20")
    names = ("mse", "valid/mse", "train/loss")
    file.write_text(text + "".join(f'[run.metrics."{name}"]\ndirection = "min"\nallowed_loss = 3\n' for name in names))
    update = orthobench("check", "--update", "--reason", "first")
    assert update.code == 0, update.err
    for name in ("mse", "valid/mse"):
        assert f"adding/gru: {name} may reach 3." in update.err
    assert set(read_baseline(file).run[0].metrics) == set(names)


UNDECLARED = """\
from orthobench.tasks.adding import Adding


class Twice(Adding):
    title = "twice"

    def measure(self, outputs, targets):
        total, weight = super().measure(outputs, targets)["mse"]
        return {"mse": (total, weight), "doubled": (2 * total, weight)}
"""


def test_undeclared_metric_that_was_measured_is_still_judged(file, orthobench, tmp_path):
    (tmp_path / "twice.py").write_text(UNDECLARED)
    text = TEXT.partition('\n[[run]]\ntask = "adding"\nmodel = "rnn"')[0].replace("adding", "twice")
    file.write_text(text)
    plugin = ("--plugin", "twice.py")
    assert orthobench("check", "--update", "--reason", "first", *plugin).code == 0
    file.write_text(text.replace("metrics.mse", "metrics.doubled"))
    refused = orthobench("check", *plugin)
    assert refused.code == 2
    assert "unknown metric 'doubled'" in refused.err
    assert "if the task logs it, add it to the task's metrics" in refused.err
    measured_file(file).write_text(measured_file(file).read_text().replace('"mse"', '"doubled"'))
    outcome = orthobench("check", "--json", *plugin)
    assert findings(outcome)["twice/gru doubled"]["now"]


def test_help_explains_the_exit_codes(orthobench):
    assert "Exit code 0" in orthobench("check", "--help").out


OWN_CELL = """
import torch

class Mine(torch.nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.rnn = torch.nn.RNN(input_size, hidden_size)

    def forward(self, x):
        return self.rnn(x)
"""


FORGETFUL = OWN_CELL.replace("return self.rnn(x)", "return torch.cat([self.rnn(step[None])[0] for step in x])")


def test_cell_that_loses_its_memory_is_worse(measured, file, tmp_path):
    """Such a cell does not start at all, because its trial finds no gradient through time."""
    (tmp_path / "cell.py").write_text(OWN_CELL)
    file.write_text(f'{TEXT}\n[[run]]\ntask = "adding"\nmodel = "./cell.py:Mine"\n{METRIC}')
    own = ("--only", "adding/./cell.py:Mine")
    assert measured("check", "--update", "--reason", "a cell", *own).code == 0
    (tmp_path / "cell.py").write_text(FORGETFUL)
    outcome = measured("check", *own)
    assert outcome.code == 1, outcome.out
    assert "seeds 0, 1, 2: could not start: cell.py:Mine: its output at a step depends on none of" in outcome.out
    assert "WORSE than the baseline: 1 worse" in outcome.out


def test_cell_that_a_change_breaks_is_worse_and_stops_no_other_run(measured, file, tmp_path):
    (tmp_path / "cell.py").write_text(OWN_CELL)
    file.write_text(f'{TEXT}\n[[run]]\ntask = "adding"\nmodel = "./cell.py:Mine"\n{METRIC}')
    own = ("--only", "adding/./cell.py:Mine")
    assert measured("check", "--update", "--reason", "a cell", *own).code == 0
    (tmp_path / "cell.py").write_text(OWN_CELL.replace("self.rnn(x)", "self.rmm(x)"))
    outcome = measured("check", "--junit", "check.xml", "--markdown", "check.md", *own, "--only", "adding/rnn")
    assert outcome.code == 1
    assert "could not start: cell.py:Mine: cell.py:10 raises AttributeError" in (tmp_path / "check.md").read_text()
    assert "could not start" in (tmp_path / "check.xml").read_text()
    assert "rnn seed 2: epoch 1.00" in outcome.err
    assert measured("check", "--update", "--reason", "broken", *own).code == 2  # it has nothing to store


def test_history_names_the_commit_and_the_files_of_the_checked_repository(file, orthobench, tmp_path, git):
    (tmp_path / "cell.py").write_text(CELL)
    file.write_text(TEXT.rpartition("\n[[run]]")[0].replace('"gru"', '"./cell.py:MyCell"'))
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    assert orthobench("check", "--update", "--reason", "first").code == 0
    heads = [git("rev-parse", "HEAD")]
    assert orthobench("check", "--history", "history.db").code == 0
    (tmp_path / "cell.py").write_text(CELL.replace("pass", "slow = True"))
    assert orthobench("check", "--history", "history.db").code == 0
    git("commit", "-q", "-a", "-m", "second")
    heads.append(git("rev-parse", "HEAD"))
    change(file, "./cell.py:MyCell", -1000)
    assert orthobench("check", "--history", "history.db").code == 1
    with open_store("history.db") as store:
        (number, *_) = gated_numbers(store)
        records = store.benchmarks(CHECK)
    assert [check.commit for check in number.checks] == [heads[0][:9], f"{heads[0][:9]}+", heads[1][:9]]
    assert [check.commit for check in number.regressions] == [heads[1][:9]]
    revisions = [record.environment.facts["plugins"][0]["revision"] for record in records]
    assert revisions[0] != revisions[1] == revisions[2]


def test_history_that_is_no_database_is_refused_before_training(measured, tmp_path):
    (tmp_path / "notes.txt").write_text("not a database\n" * 100)
    outcome = measured("check", "--history", "notes.txt")
    assert (outcome.code, "seed" in outcome.err) == (2, False)
    assert "notes.txt is not a database" in outcome.err


def test_table_of_a_task_without_a_run_is_refused(measured, file):
    file.write_text(file.read_text().replace("[task.adding]", "[task.ading]"))
    outcome = measured("check")
    assert outcome.code == 2
    assert "on which it has no run: 'ading': did you mean adding?" in outcome.err
