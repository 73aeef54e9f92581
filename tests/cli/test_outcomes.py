"""The table of compared samples in terminals of different widths."""

from __future__ import annotations

import io

import pytest

from orthobench.cli.outcomes import WHY, Outcome, print_outcomes
from orthobench.display import Console

LONG = "run `orthobench check --update --reason '...'`, because [red] is no markup"
ROWS = [
    Outcome(
        {
            "run": "adding/./cell.py:MyCell",
            "metric": "mse",
            "baseline": "0.8734 ± 0.0034 (3)",
            "now": "0.8741 ± 0.0035 (3)",
            "lost (95 %)": "+9.24e-05 (< 0.0123)",
            "allowed": "0.5",
            "verdict": verdict,
            WHY: why,
        }
    )
    for verdict, why in (("same", ""), ("inconclusive", LONG))
]


@pytest.mark.parametrize(
    ("width", "absent"),
    [
        (250, []),
        (150, [WHY]),
        (110, [WHY, "allowed"]),
        (86, [WHY, "allowed", "lost (95 %)"]),
        (66, [WHY, "allowed", "lost (95 %)", "baseline"]),
    ],
)
def test_narrow_table_cuts_no_cell(monkeypatch, width, absent):
    output = io.StringIO()
    monkeypatch.setattr("orthobench.cli.records.console", lambda: Console(file=output, width=width))
    print_outcomes(ROWS)
    text = output.getvalue()
    for heading, cell in ROWS[1].cells.items():
        if heading not in (*absent, "run", WHY):
            assert text.count(f" {cell}") >= 1, heading
        assert (f" {heading}" in f" {text.splitlines()[0]}") == (heading not in absent)
    words = " ".join(text.split())
    assert words.count(LONG) == 1
    assert (f"adding/./cell.py:MyCell mse: {LONG}" in words) == (WHY in absent)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [20, 40, 55])
def test_narrowest_terminal_has_a_line_for_each_cell(monkeypatch, width):
    output = io.StringIO()
    monkeypatch.setattr("orthobench.cli.records.console", lambda: Console(file=output, width=width))
    print_outcomes(ROWS)
    assert max(map(len, output.getvalue().splitlines())) <= width
    first, second = (" ".join(row.split()) for row in output.getvalue().split("\n\n"))
    for row, text in zip(ROWS, (first, second), strict=True):
        cells = [f"{heading}: {cell}" for heading, cell in row.cells.items() if cell]
        assert text.replace(" ", "") == "".join(cells).replace(" ", "")


def test_no_rows_print_nothing(capsys):
    print_outcomes([])
    assert capsys.readouterr().out == ""


def test_name_is_folded(monkeypatch):
    output = io.StringIO()
    monkeypatch.setattr("orthobench.cli.records.console", lambda: Console(file=output, width=80))
    print_outcomes(ROWS)
    text = output.getvalue()
    assert "".join(line.split("  ")[0].strip() for line in text.splitlines()[1:3]).startswith("adding/./cell.py:M")
