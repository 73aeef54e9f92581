"""The figures of the horizons: which runs are in them, where their points lie, and which of them fit."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.length_variants import LONGEST
from support.length_variants import with_horizons as variant

from orthobench.analysis.horizons import Horizon, horizons, log_correlation
from orthobench.reporting.figures.drawing import remarks
from orthobench.reporting.figures.styles import PALETTE
from orthobench.reporting.figures.tracking_figures import BEYOND, CORRELATED, tracking_figures


def drawn(*variants: SimpleNamespace):
    condition: Any = SimpleNamespace(variants=list(variants))
    return tracking_figures([("S3", condition)])


def points(figure) -> list[tuple[str, str, float, float]]:
    """The points of a figure as family, symbol, x and y."""
    return [
        (trace["name"], trace["marker"]["symbol"], x, y)
        for trace in figure.data
        if trace["mode"] == "markers"
        for x, y in zip(trace["x"], trace["y"], strict=True)
    ]


def test_horizons_tell_whether_a_run_fits_and_whether_it_loses():
    whole, loses, unfitted = horizons(variant("lstm", (math.inf, math.inf), (64.0, 60.0), (30.0, 12.0)))
    assert (whole.fits, loses.fits, unfitted.fits) == (True, True, False)
    assert (whole.loses, loses.loses, unfitted.loses) == (False, True, False)
    assert [whole.shown(whole.measured), loses.shown(loses.measured)] == [LONGEST, 60]


@pytest.mark.parametrize(("tested", "least"), [((18.0, 34.0), 18.0), ((6.0, 14.0, 20.0), 20.0), ((22.0, 38.0), 22.0)])
def test_run_fits_if_it_reads_every_test_of_training_lengths(tested, least):
    """Tests of several lengths count as the longest of them, so no test need end at the training lengths' end."""
    below, reached = horizons(variant("lstm", (9.0, 0.0), (9.0, least), tested=tested))
    assert (below.fits, reached.fits) == (False, True)


def test_each_run_is_a_point_in_the_colour_of_its_family():
    figures = drawn(variant("lstm", (math.inf, math.inf), lowest=-0.5), variant("lru", (64.0, 60.0), (0.0, 0.0)))
    _, figure = figures["horizons"]
    far = BEYOND * LONGEST
    expected = [("gated", "circle", far, far), ("linear", "circle", 64, 60), ("linear", "circle-open", 1, 1)]
    assert points(figure) == expected
    assert [list(trace["hovertext"]) for trace in figure.data[:3]] == [
        ["lstm, S3, seed 0"],
        ["lru, S3, seed 0"],
        ["lru, S3, seed 1, states not read at the training lengths"],
    ]
    assert remarks(figure) == ([], [])  # the points are no marks of seeds that ended
    assert [(family, y) for family, _, _, y in points(figures["families"][1])] == [
        ("gated", far),
        ("linear", 60),
        ("linear", 1),
    ]
    assert points(figures["eigenvalues"][1]) == [("gated", "circle", -0.5, far)]  # the smallest after training
    for _, each in figures.values():
        each.to_plotly()


def test_correlation_leaves_out_runs_beyond_the_tests_and_runs_that_do_not_fit():
    """Points on the edge of the tests agree, whatever the models do."""
    inside = [(40.0, 30.0), (60.0, 90.0), (100.0, 50.0)]
    words, figure = drawn(variant("lstm", (math.inf, math.inf), (0.0, 0.0), *inside))["horizons"]
    logarithms = np.log(np.array(inside)).T
    assert words.facts == (f"correlation {np.corrcoef(logarithms)[0, 1]:.2f}",)
    assert CORRELATED in words.notes
    assert [trace["name"] for trace in figure.data if trace["mode"] == "lines"] == ["implied = measured"]
    alone, _ = drawn(variant("lstm", (64.0, 60.0)))["horizons"]
    assert (alone.facts, CORRELATED in alone.notes) == ((), False)


def test_runs_that_predict_nothing_are_in_no_figure_of_predictions():
    """With a threshold of 0 the implied horizon is where the ratio leaves 0."""
    figures = drawn(variant("lru", (64.0, 60.0)), variant("scornn", (1.0, 20.0), threshold=0.0))
    _, figure = figures["horizons"]
    assert points(figure) == [("linear", "circle", 64, 60)]
    assert len(points(figures["families"][1])) == 2
    assert "horizons" not in drawn(variant("scornn", (1.0, 20.0), threshold=0.0))


def test_family_has_the_colour_of_the_first_screen():
    """The page's stylesheet names the number of each family's colour."""
    style = files("orthobench.reporting.page").joinpath("page.css").read_text()
    numbers = {name: int(number) for name, number in re.findall(r"\.f-(\w+) { --family: var\(--model-(\d+)\)", style)}
    assert {family for family, *_ in points(drawn(variant("scornn", (64.0, 60.0)))["families"][1])} == {"orthogonal"}
    for model, family in (("scornn", "orthogonal"), ("lstm", "gated"), ("rnn", "plain"), ("lru", "linear")):
        (trace,) = drawn(variant(model, (64.0, 60.0)))["families"][1].data
        assert (trace["name"], trace["marker"]["color"]) == (family, PALETTE[numbers[family]])


def test_family_has_one_colour_in_all_figures():
    figures = drawn(variant("lstm", (1.0, 20.0), threshold=0.0), variant("lru", (64.0, 60.0)))
    colors = [
        {trace["name"]: trace["marker"]["color"] for trace in figure.data if trace["mode"] == "markers"}
        for _, figure in figures.values()
    ]
    assert {"gated", "linear"} == {*colors[1]}
    assert colors[0]["linear"] == colors[1]["linear"] != colors[1]["gated"]


def test_correlation_is_of_logarithms():
    pairs = [Horizon(0, 0, predicted, predicted**2, 1e9, 1) for predicted in (2.0, 30.0, 400.0)]
    assert log_correlation(pairs) == pytest.approx(1)
    turned = [Horizon(0, 0, p, 1 / p * 1e6, 1e9, 1) for p in (2.0, 30.0, 400.0)]
    assert log_correlation(turned) == pytest.approx(-1)
    numbers = np.random.default_rng(0).lognormal(size=(6, 2)) * 100
    mixed = [Horizon(0, 0, *row, 1e9, 1) for row in numbers]
    assert log_correlation(mixed) == pytest.approx(np.corrcoef(np.log(numbers).T)[0, 1])
    assert log_correlation(pairs[:2]) is None
    assert log_correlation([pairs[0]] * 3) is None


def test_no_figure_without_horizons():
    bare = variant("lstm", (1.0, 1.0))
    bare.curves_of_runs = lambda *_: {}
    assert drawn(bare) == {}
