"""What a notebook shows: progress, and runs, results and sweeps as tables and figures."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from support.records import columns_of

import orthobench as ob


class Cell:
    """The output of a notebook's cell: the versions that it has shown."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def update(self, shown) -> None:
        self.shown.append(shown._repr_mimebundle_())


@pytest.fixture
def cells(monkeypatch) -> list[Cell]:
    """The cells in which a notebook has displayed something; the process believes that it is the notebook's kernel."""
    made: list[Cell] = []

    def display(shown, *, display_id):
        made.append(Cell())
        made[-1].update(shown)
        return made[-1]

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object())))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    return made


@pytest.fixture
def swept(after, tiny_options):
    after(("sweep", "adding", "--models", "rnn,scornn", "--seeds", "3", *tiny_options))
    with ob.open_results() as results:
        yield results


def table(html: str) -> pd.DataFrame:
    """Return the table in a page's part, whose cells are text."""
    root = ElementTree.fromstring(html[html.index("<table") :])
    header, *rows = [[cell.text for cell in row] for row in root.iter("tr")]
    return pd.DataFrame(rows, columns=header)


@pytest.mark.slow
def test_notebook_shows_progress(cells, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ob.run("adding", "rnn", settings=tiny)
    ((last,)) = [cell.shown[-1] for cell in cells]
    assert "adding rnn seed 0" in last["text/plain"]
    assert "epoch 3.0" in last["text/plain"]
    assert last["text/html"].startswith("<pre")
    assert len(last["text/plain"].splitlines()) == 1
    ob.sweep("adding", "rnn", seeds=3, settings=tiny, jobs=2)
    assert "2 of 2 ended" in cells[-1].shown[-1]["text/plain"]
    before = len(cells)
    ob.run("adding", "lstm", settings=tiny, display=ob.Display())
    assert len(cells) == before
    assert capsys.readouterr() == ("", "")


def test_ipython_on_a_terminal_shows_lines_and_a_script_nothing(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ob.run("adding", "rnn", settings=tiny)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: object()))
    ob.run("adding", "lstm", settings=tiny)
    assert "adding lstm seed 0: epoch 3.00" in capsys.readouterr().err


def test_failures_of_a_sweep_are_told_below_the_progress(cells, tiny, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise ValueError("out of luck")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orthobench.training.trainer.Trainer.step", fail)
    sweep = ob.sweep("adding", "rnn", settings=tiny, jobs=0)
    assert "rnn seed 0 failed" in capsys.readouterr().err
    assert repr(sweep).splitlines()[0] == "1 run: 1 failed"


@pytest.mark.slow
def test_runs_and_sweeps_are_tables(swept, tiny):
    sweep = ob.sweep("adding", ["rnn", "scornn"], seeds=3, settings=tiny)
    assert repr(sweep).splitlines()[0] == "6 runs: 6 finished"
    assert [line.split()[0] for line in repr(sweep).splitlines()[2:]] == ["rnn", "scornn"]
    shown = table(sweep._repr_html_())
    assert shown["model"].tolist() == ["rnn", "scornn"]
    assert shown["seeds"].tolist() == ["3 of 3", "3 of 3"]
    run = sweep.runs[0]
    assert repr(run) == (
        f"<run {run.key}: adding rnn, seed 0, finished, mse {run.final_value:.4g}, best {run.best_value:.4g}>"
    )
    shown = table(run._repr_html_())
    assert shown.loc[0, ["run", "metric"]].tolist() == [run.key, "mse"]
    assert float(shown.loc[0, "final"]) == pytest.approx(run.final_value, rel=1e-3)
    planned = ob.sweep("adding", ["rnn", "gru"], seeds=[7], settings=tiny, dry_run=True)
    assert repr(planned).startswith("2 runs: 2 missing\n")
    assert table(planned._repr_html_())["state"].tolist() == ["missing", "missing"]


def test_searches_are_tables_of_their_trials(tiny, tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason="optuna is not installed")
    monkeypatch.chdir(tmp_path)
    (search,) = ob.tune("adding", "rnn", {"learning_rate": "1e-4..1e-2:log"}, trials=3, settings=tiny, jobs=0)
    assert repr(search).splitlines()[0] == "search of 3 trials: adding rnn"
    shown = table(search._repr_html_())
    bests = shown["best"].astype(float).tolist()
    assert bests == sorted(bests)
    assert shown.loc[0, "run"] == search.best.key


def test_results_are_an_overview_of_their_runs(swept):
    assert repr(swept) == "Results('results.db'): 6 runs of 1 task"
    shown = table(swept._repr_html_())
    assert shown[["model", "runs", "finished"]].values.tolist() == [["rnn", "3", "3"], ["scornn", "3", "3"]]
    best = swept.runs().groupby("model")["best"].min()
    assert shown["best"].astype(float).tolist() == pytest.approx(best.tolist(), rel=1e-3)
    swept.close()
    assert repr(swept).startswith("Results('results.db'")


def test_tables_escape_what_is_stored(swept):
    run = swept.store.runs()[0]
    columns = columns_of(run.spec | {"model": "<script>alert(1)</script>"})
    swept.store.update(run.id, columns)
    hostile = swept.store.get(columns["key"])
    for html in (hostile._repr_html_(), swept._repr_html_()):
        assert "<script>" not in html
        assert "&lt;script&gt;" in html


def test_curves_are_medians_over_seeds(swept):
    figure = swept.plot_curves(task="adding", model="rnn")
    (line,) = [trace for trace in figure.data if trace.name == "rnn"]
    curves = [swept.curve(key, "mse") for key in swept.runs(model="rnn")["run"]]
    np.testing.assert_allclose(line.y, np.median(curves, axis=0))
    np.testing.assert_allclose(line.x, curves[0].index / 4)
    assert figure.layout.yaxis.title.text == "test MSE"
    (line,) = [trace for trace in swept.plot_curves(x="iteration", model="rnn").data if trace.name == "rnn"]
    np.testing.assert_array_equal(line.x, curves[0].index)


def test_each_figure_of_a_task_has_its_models(swept):
    for draw in (swept.plot_orthogonality, swept.plot_gradient_norms, swept.plot_ends):
        names = {str(trace.name).split()[0].removesuffix(",") for trace in draw().data if trace.name}
        assert names >= {"rnn", "scornn"}
    by_time = swept.plot_ends(against="seconds")
    assert by_time.layout.xaxis.title.text == "CPU seconds of training"


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda results: results.plot_curves(), "adding, T = 10; adding, T = 12: give `task` or its settings"),
        (lambda results: results.plot_curves(sequence_length=10, metric="msee"), "unknown test metric 'msee'"),
        (lambda results: results.plot_curves(sequence_length=10, x="time"), "unknown x 'time'"),
        (lambda results: results.plot_curves(["n=7"]), "no run has hidden_size=7"),
        (lambda results: results.plot_lengths(sequence_length=10), "no metric over length"),
        (lambda results: results.plot_ends(sequence_length=12), "no finished runs of two models"),
    ],
)
def test_figure_without_data_says_why(draw, words, swept, tiny):
    ob.run("adding", "rnn", settings=tiny | {"sequence_length": 12})
    with pytest.raises(ob.UsageError) as raised:
        draw(swept)
    assert words in str(raised.value)


SCRIPT = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="nocolor")
shell.run_cell("from orthobench.options.run_options import RunOptions, SweepOptions")
for cell in ("RunOptions(device='tpu')", "SweepOptions(jobs=-1)", "1 / 0"):
    print("In:", cell)
    shell.run_cell(cell)
    print("%tb")
    shell.run_line_magic("tb", "")
"""


def test_cell_shows_an_error_as_one_line_and_its_traceback_on_demand():
    """In a process of its own, because IPython changes the displays and hooks of a process."""
    pytest.importorskip("IPython", reason="IPython is not installed: pip install -e '.[dev]'")
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    device, jobs, division = (part.partition("\n")[2].split("%tb\n") for part in done.stdout.split("In:")[1:])
    assert device[0] == "UsageError: unknown device 'tpu': did you mean cpu?\n"
    assert jobs[0].startswith("UsageError: ")  # pydantic's ValidationError is its cause
    assert len(jobs[0].splitlines()) == 1
    for _, traceback in (device, jobs):
        assert "Traceback (most recent call last)" in traceback
        assert "in <module>" in traceback
    assert len(division[0].splitlines()) > 3  # other errors are as in any notebook
