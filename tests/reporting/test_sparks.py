"""Dot plots: an interval that goes beyond the shown range ends in an arrowhead. Sketches: no label is cut off."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from orthobench.reporting.figures.drawing import empty_figure
from orthobench.reporting.figures.styles import PALETTE
from orthobench.reporting.page.sparks import WIDTH, dot_plot, sketch


def shapes(offset: float, low: float | None, high: float | None) -> tuple[list[str], list[str]]:
    """Return the paths of the interval and of the mean's arrow."""
    dot: Any = SimpleNamespace(offset=offset, low=low, high=high, is_single=False)
    whiskers, dots = (
        re.findall(rf'<path class="{name}" d="([^"]*)"', str(dot_plot(dot))) for name in ("whisker", "dot")
    )
    return whiskers, dots


@pytest.mark.parametrize(
    ("low", "high", "left", "right"),
    [(-1.0, 2.0, False, False), (-10.0, 5.4, True, True), (-10.0, 4.0, True, False), (-4.0, 5.4, False, True)],
)
def test_clipped_ends_of_an_interval_have_arrowheads(low, high, left, right):
    (line, *heads), arrows = shapes(0.5, low, high)
    assert re.fullmatch(r"M[\d.]+ 20H[\d.]+", line)
    ends = [min(float(across) for across in re.findall(r"(?<=[ML])\d+", head)) for head in heads]
    assert [end < WIDTH / 2 for end in ends] == [True] * left + [False] * right
    assert not arrows


def test_mean_beyond_the_range_has_one_arrow_at_that_end():
    (_, *heads), arrows = shapes(-6.0, -9.0, 5.0)
    assert len(arrows) == 1
    assert [head.startswith(f"M{WIDTH - 16} ") for head in heads] == [True]  # the mean's own arrow is at the left


def test_plot_without_an_interval_has_a_dot_alone():
    assert shapes(0.5, None, None) == ([], [])


@pytest.mark.browser
def test_label_of_a_short_curve_ends_within_the_sketch(chromium):
    figure = empty_figure("step t", "norm", logarithmic=True)
    for name, first in (("scoRNN, n = 170", 1), ("LSTM, n = 60", 188), ("GRU, n = 60", 499)):
        steps = list(range(first, 501))
        own = {"name": name, "mode": "lines+markers", "line": {"color": PALETTE[0]}, "meta": {"model": name}}
        figure.add_scatter(x=steps, y=[10.0 ** (0.04 * (step - 500)) for step in steps], **own)
    style = "<style>.sketch text { font: 600 9px system-ui, sans-serif }</style>"
    chromium.execute_script("document.body.innerHTML = arguments[0]", f"{style}{sketch(figure)}")
    names = "[...document.querySelectorAll('text:not(.tick)')].map((one) => one.getBBox())"
    assert max(chromium.execute_script(f"return {names}.map(({{ x, width }}) => x + width)")) <= 300
