"""Figures are plain records: valid for Plotly, which the page does not import, and with Plotly's script and colours."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import plotly.graph_objects as go
import pytest
from support.pages import figures

from orthobench.reporting.account.scope import Scope
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.page.compressed_blocks import plotly_script
from orthobench.reporting.page.html import write_html
from orthobench.spec.index import built_in
from orthobench.store import open_store

SHIPPED = Path(__file__).parents[2] / "results.db"


@pytest.mark.slow
def test_every_shipped_figure_is_valid_for_plotly(tmp_path):
    """`test_studies.py` tests the figures of studies of which the shipped results have none."""
    database = tmp_path / "results.db"
    shutil.copy(SHIPPED, database)
    with open_store(str(database)) as store:
        page = write_html(store, tmp_path / "page.html", Scope(), built_in()["variants"])
    drawn = figures(page.read_text("utf-8")).values()  # raises ValueError for a figure that Plotly refuses
    kinds = {trace["type"] for named in drawn for figure in named.values() for trace in figure["data"]}
    assert kinds == {"scatter", "heatmap"}


def test_plotly_refuses_what_the_record_does_not_check():
    figure = Figure({"xaxis": {"title": {"text": "x"}}})
    figure.add_scatter(x=[1], y=[2], stroke="red")
    with pytest.raises(ValueError, match="stroke"):
        figure.to_plotly()


def test_record_updates_like_a_plotly_figure():
    layout = {"xaxis": {"title": {"text": "x"}, "automargin": True}, "yaxis": {"type": "log"}}
    record, plotly = Figure(layout), go.Figure(layout={"template": "none", **layout})
    for figure in (record, plotly):
        figure.add_scatter(x=[1, 2], y=[3, 4], mode="lines", line={"width": 1}, marker=None)
        figure.add_heatmap(x=[1], y=[1], z=[[0.5]])
        figure.update_xaxes(range=[0, 1], title={"standoff": 4})
        figure.update_yaxes(type="linear")
        figure.update_layout(hovermode="closest", margin={"t": 8})
    assert record.to_plotly().to_plotly_json() == plotly.to_plotly_json()


def test_figures_of_one_layout_are_independent():
    layout = {"xaxis": {"automargin": True}}
    first, second = Figure(layout), Figure(layout)
    first.update_xaxes(range=[0, 1])
    assert second.layout == layout == {"xaxis": {"automargin": True}}


def test_script_is_a_released_bundle_that_draws_every_trace():
    script = plotly_script()
    assert script.startswith("/**\n* plotly.js (cartesian - minified) v4.1.1\n")
    released = (
        "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"  # of npm's plotly.js-cartesian-dist-min
    )
    assert hashlib.sha256(script.encode()).hexdigest() == released
    kinds = {name.removeprefix("add_") for name in vars(Figure) if name.startswith("add_")}
    assert kinds == {"scatter", "heatmap"}
    for kind in kinds:
        assert f'moduleType:"trace",name:"{kind}"' in script
