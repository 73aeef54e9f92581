"""Draw where a cell stands among the built-in ones: a strip of scores for each column."""

from __future__ import annotations

import html
from collections.abc import Sequence

from orthobench.analysis.placement import Place
from orthobench.reporting.figures.drawing import empty_figure
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.styles import GREY

OWN = "#005A96"


def placement_figure(label: str, places: Sequence[tuple[str, Place]]) -> Figure:
    """Draw the median score of each cell in percent, and the cell's own seeds as a line from the lowest to the highest.

    Args:
        label: the cell's name.
        places: the columns, each with its name.
    """
    figure = empty_figure("", "score")
    for number, (_, place) in enumerate(places):
        others = [100 * rival.score for rival in place.rivals]
        figure.add_scatter(
            x=[number] * len(others),
            y=others,
            mode="markers",
            marker={"symbol": "circle-open", "size": 7, "color": GREY},
            name="built-in cells",
            legendgroup="built-in cells",
            showlegend=number == 0,
            text=[rival.model for rival in place.rivals],
        )
        ends = [100 * min(place.scores), 100 * place.score, 100 * max(place.scores)]
        figure.add_scatter(
            x=[number] * 3,
            y=ends,
            mode="lines+markers",
            line={"color": OWN, "width": 2},
            marker={"symbol": "diamond", "size": 9, "color": OWN},
            name=html.escape(label),  # because Plotly reads tags in names
            legendgroup="own",
            showlegend=number == 0,
        )
    figure.update_xaxes(
        tickvals=[*range(len(places))],
        ticktext=[html.escape(title) for title, _ in places],
        range=[-0.5, len(places) - 0.5],
    )
    return figure
