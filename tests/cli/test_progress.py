"""The display of progress fits the terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from orthobench.display.downloads import busy
from orthobench.display.live import is_live, short_label
from orthobench.display.progress import Progress, SideBySide
from orthobench.store import MetricRow
from orthobench.training.events import Evaluation, RunProgress

LABEL = "[2/4] scornn sequence_length=2000 hidden_size=190 seed 2"
START: Any = SimpleNamespace(
    key="0123456789abcdef",
    preset="paper",
    parameter_count=21764,
    device="cpu",
    metric="cross_entropy",
    baselines={"cross_entropy": 0.01029},
    total_iterations=10_000,
    iterations_per_epoch=1000,
)
PROGRESS = RunProgress(1500, backend=None, best_value=None, best_iteration=None, seconds={}, peak_memory=None)


def evaluation(iteration: int, loss: float, value: float, split: str = "test") -> Evaluation:
    """Return an evaluation that measured the mean training loss and a value of the main metric."""
    rows = [
        MetricRow("train", "loss", 1, iteration, loss),
        MetricRow(split, "cross_entropy", 1, iteration, value),
    ]
    return Evaluation(iteration, 1, rows, [], value, PROGRESS, judge=split)


def row(width: int, monkeypatch) -> str:
    """Return the row of a run in training, as a terminal of this width shows it."""
    monkeypatch.setenv("COLUMNS", str(width))
    progress = Progress(LABEL, live=True)
    progress.on_start(START)
    for iteration in (1, 1500):
        progress.on_iteration(iteration)
    progress.on_evaluation(evaluation(1500, 0.002324, 0.00239))
    shown = io.StringIO()
    Console(file=shown, width=width).print(progress.bar.get_renderable())
    (line,) = shown.getvalue().splitlines()
    return line.rstrip()


@pytest.mark.parametrize(
    ("width", "texts"),
    [
        (200, ["sequence_length=2000", "seed 2", "loss 0.002324", "cross_entropy 0.00239", "(baseline 0.01029)", ":"]),
        (80, ["scornn seed 2", "━", "1.5/10", " it/s", "cross_entropy 0.00239", ":"]),
        (76, ["[2/4] scornn", "1.5/10", " it/s", "cross_entropy 0.00239", ":"]),
        (60, ["scornn seed 2", "1.5/10", "cross_entropy 0.00239", ":"]),
        (45, ["scornn seed 2", "cross_entropy 0.00239"]),
        (30, ["…", "cross_entropy 0.00239"]),
    ],
)
def test_row_fits_one_line(width, texts, monkeypatch):
    line = row(width, monkeypatch)
    assert len(line) <= width
    for text in texts:
        assert text in line


def test_narrow_row_leaves_out_settings(monkeypatch):
    assert "=" not in row(80, monkeypatch)
    assert short_label(LABEL) == "[2/4] scornn seed 2"


@pytest.mark.parametrize("width", [200, 80, 40])
def test_total_row_counts_once(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("orthobench.display.progress.is_live", lambda: True)
    shown = io.StringIO()
    Console(file=shown, width=width).print(SideBySide(4).bar.get_renderable())
    assert shown.getvalue().count("0 of 4 ended") == 1


def test_plain_lines_name_the_settings_once(capsys):
    progress = Progress(LABEL, live=False)
    progress.on_start(START)
    progress.on_iteration(1)
    progress.on_evaluation(evaluation(2000, 0.1, 0.2))
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"{LABEL}: run 0123456789abcdef, 21764 parameters, cpu, preset paper"
    assert second.startswith("[2/4] scornn seed 2: epoch 2.00  loss 0.1  cross_entropy 0.2 (baseline 0.01029)")


@pytest.mark.parametrize(
    ("width", "texts"),
    [
        (120, ["loss 0.1", "cross_entropy 0.2", "(baseline 0.01029)", " it/s", "ETA"]),
        (80, ["loss 0.1", "cross_entropy 0.2", "ETA"]),
        (60, ["cross_entropy 0.2"]),
    ],
)
def test_plain_line_fits_a_terminal_that_cannot_move_its_cursor(width, texts, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    progress = Progress(LABEL, live=False)
    progress.on_start(START)
    progress.on_iteration(1)
    progress.on_evaluation(evaluation(2000, 0.1, 0.2))
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("[2/4] scornn seed 2: epoch 2.00  ")
    assert len(line) <= width
    known = ("loss 0.1", "cross_entropy 0.2", "(baseline 0.01029)", " it/s", "ETA")
    assert [text for text in known if text in line] == texts


def test_run_without_tests_names_its_validation_data(capsys):
    progress = Progress(LABEL, live=False)
    progress.on_start(START)
    progress.on_iteration(1)
    progress.on_evaluation(evaluation(2000, 0.1, 0.2, "valid"))
    assert "loss 0.1  validation cross_entropy 0.2 (baseline 0.01029)" in capsys.readouterr().err


@pytest.mark.parametrize(("terminal", "live"), [("xterm", True), ("dumb", False), ("unknown", False)])
def test_dumb_terminal_gets_lines(terminal, live, monkeypatch):
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert is_live() == live


def test_silent_work_is_announced(capsys):
    with busy("verifying mnist"):
        assert capsys.readouterr().err == "verifying mnist\n"


def test_import_and_check_name_the_data_set(orthobench, small_data):
    outcome = orthobench("data", "verify", "mnist", "--data-dir", str(small_data))
    assert outcome.err.splitlines()[0] == "verifying mnist"
    outcome = orthobench("data", "import", "mnist", str(small_data / "mnist"), "--data-dir", "new")
    assert outcome.err.splitlines()[0] == "importing and checking mnist"
