"""The table of compared samples in terminals of different widths."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from orthobench.cli.outcomes import WHY, Outcome, print_outcomes

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
        if heading not in (*absent, "run"):
            assert text.count(f" {cell}") >= 1, heading
        assert (f" {heading}" in text.splitlines()[0]) == (heading not in absent)
    reasons = [line for line in text.splitlines() if LONG in line]
    assert len(reasons) == 1
    if WHY in absent:
        assert reasons == [f"adding/./cell.py:MyCell mse: {LONG}"]
    assert "…" not in text


@pytest.mark.parametrize("width", [20, 40, 55])
def test_narrowest_terminal_has_a_line_for_each_cell(monkeypatch, width):
    output = io.StringIO()
    monkeypatch.setattr("orthobench.cli.records.console", lambda: Console(file=output, width=width))
    print_outcomes(ROWS)
    lines = output.getvalue().splitlines()
    assert all(f"{heading}: {cell}" in lines for row in ROWS for heading, cell in row.cells.items() if cell)


def test_no_rows_print_nothing(capsys):
    print_outcomes([])
    assert capsys.readouterr().out == ""


def test_name_is_folded(monkeypatch):
    output = io.StringIO()
    monkeypatch.setattr("orthobench.cli.records.console", lambda: Console(file=output, width=80))
    print_outcomes(ROWS)
    text = output.getvalue()
    assert "".join(line.split("  ")[0].strip() for line in text.splitlines()[1:3]).startswith("adding/./cell.py:My")
