"""The Python API: it trains, reads and compares as the command line does, prints nothing and raises errors."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.pages import table_of_runs

import orthobench as ob
from orthobench import api
from orthobench.store import open_store

ROOT = Path(__file__).parents[2]
SETTINGS = {"sequence_length": 10, "train_size": 40, "test_size": 20, "batch_size": 10, "epochs": 3, "hidden_size": 8}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def options_of(settings) -> list[str]:
    return [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]


def test_import_of_the_package_loads_nothing_heavy():
    code = (
        "import sys, orthobench as ob; assert ob.__version__; "
        "heavy = 'torch', 'pandas', 'sqlalchemy', 'numpy', 'pydantic'; "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_is_exported():
    assert set(ob.__all__) <= set(dir(ob))
    for name in ob.__all__:
        assert getattr(ob, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = ob.nothing


def test_every_public_name_has_its_module():
    assert sorted(name for names in api.NAMES.values() for name in names) == api.__all__ == ob_names()
    for module, names in api.NAMES.items():
        for name in names:
            assert getattr(api, name).__module__ == f"orthobench.{module}"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = api.nothing


def ob_names() -> list[str]:
    return [name for name in vars(ob)["__all__"] if name != "__version__"]


def test_no_submodule_hides_a_public_name():
    """An import of a submodule would bind its name in the package, in place of the function."""
    rooms = {path.stem for path in Path(ob.__file__).parent.iterdir()} | {"models", "tasks"}
    assert rooms & set(ob.__all__) == set()
    code = (
        "import inspect, orthobench as ob, orthobench.cli, orthobench.planning.sweep_runs, orthobench.gate, "
        "orthobench.reporting.page.html; print([name for name in ('run', 'sweep', 'report', 'check', 'compare') "
        "if not inspect.isfunction(getattr(ob, name))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_run_equals_the_command_lines(orthobench, capsys):
    run = ob.run("adding", "scornn", seed=1, settings=SETTINGS, negative_ones=3)
    assert capsys.readouterr() == ("", "")
    outcome = orthobench("run", "adding", "scornn", "--seed", "1", *options_of(SETTINGS), "-s", "negative_ones=3")
    assert outcome.err == ""  # it is finished: nothing trains
    assert f"run {run.key} finished" in outcome.out
    assert ob.run("adding", "scornn", seed=1, settings=SETTINGS, negative_ones=3).created_at == run.created_at


def test_force_trains_again():
    first = ob.run("adding", "rnn", settings=SETTINGS)
    again = ob.run("adding", "rnn", settings=SETTINGS, force=True)
    assert (again.key, again.final_value) == (first.key, first.final_value)
    assert again.created_at > first.created_at


def test_sweep_prints_nothing_and_returns_its_runs(capfd):
    planned = ob.sweep("adding", "rnn", seeds=2, settings=SETTINGS, dry_run=True, jobs=0)
    assert [run.state for run in planned.plan.runs] == ["missing", "missing"]
    assert planned.plan.totals().seconds > 0
    assert not Path("results.db").exists()
    sweep = ob.sweep(
        "adding", ["rnn", "lstm"], seeds=[0, 3], grid={"learning_rate": [1e-3, 1e-4]}, settings=SETTINGS, jobs=0
    )
    assert capfd.readouterr() == ("", "")
    assert len(sweep.runs) == len(sweep.outcomes) == 8
    assert sweep.failed == []
    assert {run.seed for run in sweep.runs} == {0, 3}
    assert (
        ob.sweep("adding", "rnn", seeds=[0, 3], grid={"learning_rate": "1e-3,1e-4"}, settings=SETTINGS).outcomes == []
    )


def test_bound_settings_form_one_axis():
    grid = {("hidden_size", "negative_ones"): [(8, 2), (6, 3)]}
    small = {name: value for name, value in SETTINGS.items() if name != "hidden_size"}
    runs = ob.sweep("adding", "scornn", grid=grid, settings=small, jobs=0).runs
    sizes = [run.spec["model_settings"] for run in runs]
    assert [(size["hidden_size"], size["negative_ones"]) for size in sizes] == [(8, 2), (6, 3)]


@pytest.mark.slow
def test_sweep_in_processes_prints_nothing(capfd):
    sweep = ob.sweep("adding", ["rnn", "lstm"], settings=SETTINGS, jobs=2)
    assert [run.status for run in sweep.runs] == ["finished"] * 2
    assert capfd.readouterr() == ("", "")


def test_failing_run_does_not_end_the_sweep():
    Path("flawed.py").write_text(
        "from orthobench.models.rnn import RNN\n"
        "class Flawed(RNN):\n"
        "    title = 'x'\n"
        "    def after_step(self):\n"
        "        raise ArithmeticError('on purpose')\n"
    )
    options = ob.RunOptions(plugins=(Path("flawed.py"),))
    sweep = ob.sweep("adding", ["flawed", "rnn"], settings=SETTINGS, jobs=0, options=options)
    assert [(outcome.job.spec.model, outcome.cause) for outcome in sweep.failed] == [
        ("flawed", "flawed.py:5 raises ArithmeticError: on purpose")
    ]
    assert {run.model: run.status for run in sweep.runs} == {"flawed": "failed", "rnn": "finished"}


def test_tune_ranks_its_trials(capfd):
    pytest.importorskip("optuna", reason="optuna is not installed")
    (result,) = ob.tune("adding", "rnn", {"learning_rate": "1e-5..1e-1:log"}, trials=3, settings=SETTINGS, jobs=0)
    assert capfd.readouterr() == ("", "")
    values = [trial.best for trial in result.ranked]
    assert len(values) == 3
    assert values == sorted(values)
    assert result.best is result.ranked[0]
    assert not result.is_exhausted


def test_reproduce_returns_the_papers_runs():
    result = ob.reproduce("helfrich2018", figure="2", models=["ornn"], scale=0.001, jobs=0)
    assert {run.status for run in result.runs} == {"finished"}
    assert {run.model for run in result.runs} == {"ornn"}


def test_study_writes_its_page():
    result = ob.study("toy-dynamics")
    assert result.sweep is None
    assert "Dynamics of two units" in result.page.read_text("utf-8")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ob.run("adding", "scorn"), "did you mean scornn"),
        (lambda: ob.run("adding", "rnn", hiden_size=3), "did you mean hidden_size"),
        (lambda: ob.run("adding", "rnn", hidden_size=-3), "greater than or equal to 1"),
        (lambda: ob.run("adding", "rnn", device="cpu"), "pass options=RunOptions(device=...)"),
        (lambda: ob.run("adding", "rnn", settings={"epochs": 1}, epochs=2), "epochs is given twice"),
        (lambda: ob.sweep("adding", []), "name a model"),
        (lambda: ob.sweep("adding", "rnn", seeds=0), "`seeds=0`: give a number of seeds of at least 1"),
        (lambda: ob.sweep("adding", "rnn", grid={"epochs": []}), "empty"),
        (lambda: ob.sweep("adding", "rnn", options=ob.SweepOptions(threads=2)), "executor='ray'"),
        (lambda: ob.SweepOptions(executor="lsf"), "is not known"),
        (lambda: ob.reproduce("helfrich"), "unknown paper"),
        (lambda: ob.open_results("none.db"), "none.db"),
    ],
)
def test_invalid_arguments_raise_and_store_nothing(call, message, tmp_path):
    with pytest.raises(ob.UsageError, match=re.escape(message)):
        call()
    assert list(tmp_path.iterdir()) == []


def test_run_held_by_another_process_is_refused():
    from orthobench.training.checkpoint import CheckpointFolder

    run = ob.run("adding", "rnn", settings=SETTINGS)
    with open_store("results.db") as store:
        store.update(run.id, {"status": "interrupted"})
    with CheckpointFolder(Path("results.db.checkpoints"), run.key).lock(), pytest.raises(ob.RunLockedError):
        ob.run("adding", "rnn", settings=SETTINGS)


class Events(ob.EventSink):
    def __init__(self, stop_at: int = -1) -> None:
        self.evaluations: list[Any] = []
        self.stop_at = stop_at

    def on_evaluation(self, evaluation):
        self.evaluations.append((evaluation.iteration, evaluation.metrics["mse"]))

    def on_iteration(self, iteration):
        if iteration == self.stop_at:
            signal.raise_signal(signal.SIGINT)


class Showing(ob.Display):
    def __init__(self, sink: Events) -> None:
        self.sink, self.stop_requests = sink, 0

    @contextmanager
    def open_jobs(self, count, in_this_process):
        display = ob.JobsDisplay()
        display.open_sink = self.open_sink
        yield display

    @contextmanager
    def open_sink(self, label):
        yield self.sink

    def on_stop_request(self):
        self.stop_requests += 1


def test_stopped_run_resumes_and_reports_events():
    uncut = ob.run("adding", "rnn", settings=SETTINGS, db="uncut.db")
    handler = signal.getsignal(signal.SIGINT)
    display = Showing(Events(stop_at=5))
    with pytest.raises(ob.Stopped):
        ob.run("adding", "rnn", settings=SETTINGS, display=display)
    assert display.stop_requests == 1
    assert signal.getsignal(signal.SIGINT) is handler
    rest = Events()
    run = ob.run("adding", "rnn", settings=SETTINGS, display=Showing(rest))
    assert (run.status, run.final_value) == ("finished", uncut.final_value)
    with ob.open_results("uncut.db") as results:
        curve = results.curve(uncut, "mse")
    assert display.sink.evaluations + rest.evaluations == list(curve.items())


def test_runs_train_in_other_threads():
    """Which receive no signals."""
    runs = []
    thread = threading.Thread(target=lambda: runs.append(ob.run("adding", "rnn", settings=SETTINGS)))
    thread.start()
    thread.join()
    assert runs[0].status == "finished"


# Results


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folder of a finished sweep, for tests to copy."""
    folder = tmp_path_factory.mktemp("swept")
    ob.sweep("adding", ["rnn", "lstm"], seeds=2, settings=SETTINGS, jobs=0, db=folder / "results.db")
    return folder


@pytest.fixture
def results(swept, tmp_path):
    shutil.copytree(swept, tmp_path, dirs_exist_ok=True)
    with ob.open_results() as opened:
        yield opened


def test_runs_become_a_table(results):
    runs = results.runs(task="adding")
    assert len(runs) == 4
    assert list(runs["model"]) == ["rnn", "lstm"] * 2
    assert set(runs["hidden_size"]) == {8}
    with open_store("results.db") as store:
        for row, run in zip(runs.itertuples(), store.runs(), strict=True):
            assert (row.run, row.final, row.best, row.status) == (run.key, run.final_value, run.best_value, "finished")
            assert row.seconds == run.wall_seconds
            assert row.baseline == run.baselines["mse"]
            assert row.environment == run.environment.facts
    assert len(results.runs(model="rnn", seed=1)) == 1
    assert len(results.runs(hidden_size=8, epochs="3")) == 4
    assert results.runs(hidden_size=9).empty
    assert results.runs(status="failed").empty
    with pytest.raises(ob.UsageError, match="did you mean hidden_size"):
        results.runs(hiden_size=8)


def test_runs_are_selected_by_conditions(results, orthobench):
    for where in (["model=rnn", "n=8"], ["model=rnn,lstm,seed=1"], ["tag=none", "status=finished"], ["n=9"]):
        options = [word for condition in where for word in ("--where", condition)]
        listed = json.loads(orthobench("ls", "--json", *options).out)
        assert list(results.runs(where)["run"]) == [row["run"] for row in listed]
    assert len(results.runs(["n=8"])) == 4
    assert set(results.runs(["seed=1"], model="rnn")["seed"]) == {1}
    assert set(results.runs(model=["rnn", "lstm"], seed=[0])["model"]) == {"rnn", "lstm"}
    for where in ("model", "modle=rnn", "status=done", "model=rn"):
        refused = orthobench("ls", "--where", where)
        with pytest.raises(ob.UsageError) as error:
            results.runs([where])
        assert refused.err == f"error: {error.value}\n"
    with pytest.raises(ob.UsageError, match="model is given twice"):
        results.runs(["model=rnn"], model="lstm")


def test_killed_run_is_listed_as_interrupted(results):
    key = results.runs()["run"][0]
    results.store.update(results.store.get(key).id, {"status": "running"})
    assert results.runs()["status"][0] == "interrupted"


def test_metrics_curves_and_vectors_are_read(results, orthobench):
    runs = results.runs(model="lstm")
    metrics = results.metrics(runs, split="test", name="mse")
    assert list(metrics.columns) == ["run", "split", "name", "epoch", "iteration", "value"]
    assert set(metrics["run"]) == set(runs["run"])
    key = runs["run"].iloc[0]
    shown = json.loads(orthobench("show", key, "--json").out)["metrics"]["test/mse"]
    curve = results.curve(key[:8], "mse")
    assert [(row["iteration"], row["value"]) for row in shown] == list(curve.items())
    assert list(metrics[metrics["run"] == key]["value"]) == list(curve)
    assert len(results.metrics(results.store.get(key))) == len(results.metrics([key])) == len(results.metrics(key))
    assert set(results.metrics()["run"]) == set(results.runs()["run"])

    traces = [each for each in results.store.traces([results.store.get(key).id]) if each.name == "gradient_norm/h"]
    norms = results.vectors(key, "gradient_norm/h")
    assert norms.shape == (len(traces), 10)
    for trace, (iteration, row) in zip(traces, norms.iterrows(), strict=True):
        assert iteration == trace.iteration
        assert list(row) == list(trace.values)
    with pytest.raises(ob.UsageError, match=r"unknown metric of run \w+ 'mes \(test\)': did you mean mse \(test\)"):
        results.curve(key, "mes")
    with pytest.raises(ob.UsageError, match="did you mean gradient_norm"):
        results.vectors(key, "gradient_norms")
    with pytest.raises(ob.UsageError, match="has several vectors: name one of gradient_norm/c, gradient_norm/h"):
        results.vectors(key, "gradient_norm")
    rnn = results.runs(model="rnn")["run"].iloc[0]
    assert results.vectors(rnn, "gradient_norm").equals(results.vectors(rnn, "gradient_norm/h"))


def test_paper_table_equals_the_reports(results, orthobench):
    table = results.table("helfrich2018", "1")
    (sheet,) = json.loads(orthobench("report", "--format", "json", "--paper", "helfrich2018", "--table", "1").out)
    assert table["printed"].dropna().tolist() == [
        cell["printed"] for cell in sheet["rows"] if cell["printed"] is not None
    ]
    assert set(table["verdict"]) == {"not measured"}
    with pytest.raises(ob.UsageError, match="has no table 9; it has table 1"):
        results.table("helfrich2018", "9")


def test_report_and_comparisons_are_returned(results, tmp_path):
    page = ob.report(results, "page.html")
    assert page == tmp_path / "page.html"
    assert ob.report("results.db", "again.html").exists()
    assert results.runs()["run"][0] in {row["key"] for row in table_of_runs(page)}
    (contrast,) = ob.compare(results, "model=rnn", "model=lstm", paired=True)
    finals = results.runs().pivot(index="seed", columns="model", values="final")
    assert contrast.paired
    assert contrast.result.difference.mean == pytest.approx((finals["rnn"] - finals["lstm"]).mean())
    with pytest.raises(ob.UsageError, match="name two selections"):
        ob.compare(results, "model=rnn")
    (contrast,) = ob.compare(results, "model=rnn", "model=lstm", where=["seed=0"], status="finished")
    assert [len(side.runs) for side in (contrast.first, contrast.second)] == [1, 1]


def test_report_accepts_the_formats_and_filters_of_the_command_line(results, orthobench):
    table = ob.report(results, form="markdown", where=["model=rnn"])
    assert table == orthobench("report", "--format", "markdown", "--model", "rnn").out
    assert "RNN" in table
    assert "LSTM" not in table
    assert ob.report(results, "tables.csv", form="csv") == Path("tables.csv").resolve()
    with pytest.raises(ob.UsageError, match="no run has model=gru; runs have model lstm, rnn"):
        ob.report(results, "page.html", model="gru")


@pytest.mark.slow
def test_merge_adds_runs_and_their_weights(orthobench):
    runs = [ob.run("adding", "rnn", seed=seed, db=f"{seed}.db", settings=SETTINGS) for seed in (0, 1)]
    merged = ob.merge(["0.db", Path("1.db")], "all.db")
    assert [(each.added, each.unchanged, each.copied_weights) for each in merged] == [
        ([run.key], [], 1) for run in runs
    ]
    assert ob.evaluate(runs[1].key, db="all.db").metrics[0].value == runs[1].best_value
    (again,) = ob.merge("0.db", "all.db")
    assert (again.added, again.unchanged, again.copied_weights) == ([], [runs[0].key], 0)
    assert "1 known" in orthobench("merge", "1.db", "--db", "all.db").out
    for wrong, message in (("all.db", "is the database to merge into"), ("no.db", "there is no database no.db")):
        with pytest.raises(ob.UsageError, match=message):
            ob.merge(["0.db", wrong], "all.db")
    with pytest.raises(ob.UsageError, match="there is no database to merge: name at least one"):
        ob.merge([], "new.db")
    assert not Path("new.db").exists()


def test_check_against_a_baseline(capfd):
    settings = ", ".join(f"{name} = {value}" for name, value in SETTINGS.items())
    Path("baseline.toml").write_text(
        f"[[run]]\ntask = 'adding'\nmodel = 'rnn'\nseeds = [0, 1, 2, 3, 4, 5, 6, 7]\nsettings = {{ {settings} }}\n"
    )
    first = ob.check("baseline.toml", seeds=20, for_update=True)
    assert first.exit_code == 3  # nothing is recorded yet
    first.update_baseline("the first")
    again = ob.check("baseline.toml")
    assert again.exit_code == 0
    assert {str(finding.verdict) for finding in again.findings if finding.counts} == {"same"}
    assert capfd.readouterr() == ("", "")


# The guide


@pytest.mark.slow
def test_example_of_the_guide_runs(monkeypatch, capsys):
    text = (ROOT / "docs" / "python.md").read_text("utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(block, "docs/python.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "unknown model 'scorn': did you mean scornn or cornn?" in shown
    assert "8 runs, 0 failed" in shown
    assert Path("page.html").is_file()
    assert names["norms"].shape[1] == 20
