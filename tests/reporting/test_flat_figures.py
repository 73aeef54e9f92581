"""Charts that would be empty become a sentence, and logarithmic axes show more than the noise of rounding."""

from __future__ import annotations

import numpy as np
import pytest

from orthobench.reporting.figures.drawing import add_baseline, empty_figure, flat_words, span_a_decade
from orthobench.reporting.figures.figure_record import Figure


def figure_of(*values: list[float], baseline: float | None = None, logarithmic: bool = False) -> Figure:
    figure = empty_figure("x", "y", logarithmic)
    for number, own in enumerate(values):
        figure.add_scatter(x=[1, 2], y=own, mode="lines", name=f"model {number}", meta={"label": f"model {number}"})
    if baseline is not None:
        add_baseline(figure, [1, 2], baseline)
    return figure


@pytest.mark.parametrize(
    ("values", "baseline", "words"),
    [
        (([0.0, 0.0], [0.0, 0.0]), 0.0, "no curve leaves the baseline"),
        (([0.0, 0.0],), None, "no curve leaves 0"),
        (([0.5, 0.5002],), 0.5, "no curve leaves the baseline"),
        (([0.5, 0.51],), 0.5, ""),
        (([0.0, 0.0], [0.0, 1e-9]), 0.0, ""),
        (([0.0, np.nan],), 0.0, ""),
        ((), 0.5, ""),
    ],
)
def test_only_a_chart_without_any_course_becomes_a_sentence(values, baseline, words):
    assert flat_words(figure_of(*values, baseline=baseline)) == words


@pytest.mark.parametrize(
    ("values", "decades"), [([4.3e-7, 5.4e-7], 1.0), ([1.0, 1.0], 1.0), ([1e-3, 1.0], None), ([0.0, 5e-7], 1.0)]
)
def test_logarithmic_axis_spans_at_least_a_decade(values, decades):
    figure = figure_of(values, logarithmic=True)
    span_a_decade(figure)
    shown = figure.layout["yaxis"].get("range")
    assert (shown and shown[1] - shown[0]) == pytest.approx(decades)
    if shown:
        positive = np.log10([value for value in values if value > 0])
        assert shown[0] <= positive.min() <= positive.max() <= shown[1]


def test_linear_axis_and_a_given_range_stay():
    linear = figure_of([4.3e-7, 5.4e-7])
    span_a_decade(linear)
    assert "range" not in linear.layout["yaxis"]
    given = figure_of([4.3e-7, 5.4e-7], logarithmic=True)
    given.update_yaxes(range=[-7, -6.5])
    span_a_decade(given)
    assert given.layout["yaxis"]["range"] == [-7, -6.5]
