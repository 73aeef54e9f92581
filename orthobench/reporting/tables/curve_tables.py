"""Export the curves of figures, one record per point, with the band over seeds."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from orthobench.errors import UsageError
from orthobench.reporting.account.paper_views import PaperView
from orthobench.reporting.figures.drawing import GAP, floor_of, is_edge, is_mark, without_floor
from orthobench.reporting.figures.figure_files import missing_commands, paper_images
from orthobench.reporting.figures.figure_record import Figure, FigureRecord
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.tables.table import Table, table_of

HEADER = ["panel", "curve", "points", "x from", "x to", "median at the end", "lowest seed", "highest seed", "note"]


def figure_tables(views: Sequence[PaperView], styles: Styles) -> list[Table]:
    """Return a table for each measured figure of the papers.

    Raises:
        UsageError: nothing in the figures is measured; the message has the command that measures it.
    """
    images = paper_images(views, styles)
    if not images:
        raise UsageError(f"nothing in this figure is measured; measure it with: {'; '.join(missing_commands(views))}")
    tables = []
    for name, panels in images.items():
        records = [{"figure": name, "panel": title, **each} for title, figure in panels for each in records_of(figure)]
        shown = table_of(name, HEADER, _summaries(records))
        tables.append(replace(shown, frame=pd.DataFrame(records, dtype=object)))
    return tables


def records_of(figure: Figure) -> list[dict[str, Any]]:
    """Return the points of all curves and maps of a figure: curve, x, y, and the lower and upper edge of the band.

    The mark at a curve's end becomes the `note` of its point. For a map there are the value and both axes.
    """
    axes = {f"{axis}_axis": _plain(figure.layout[f"{axis}axis"]["title"]["text"]) for axis in "xy"}
    records: list[dict[str, Any]] = []
    for trace in figure.data:
        if trace["type"] == "heatmap":
            for y, line in zip(trace["y"], np.asarray(trace["z"], dtype=float), strict=True):
                for x, exponent in zip(trace["x"], line, strict=True):
                    if math.isfinite(exponent):
                        records.append({**axes, "curve": "", "x": x, "y": y, "value": float(10**exponent)})
        elif trace["type"] == "scatter" and trace.get("name") and _is_curve(trace):
            records += _points(figure, trace, axes)
    return records


def _is_curve(trace: FigureRecord) -> bool:
    return trace.get("showlegend") is not False and trace["name"] != GAP


def _points(figure: Figure, line: FigureRecord, axes: dict[str, str]) -> list[dict[str, Any]]:
    """Return the points of a curve with the edges of its band and its notes."""
    group = line.get("legendgroup")
    own = [trace for trace in figure.data if group and trace.get("legendgroup") == group]
    edges = [without_floor(trace["y"], floor_of(figure)) for trace in own if is_edge(trace)]
    y = np.asarray(line["y"], dtype=float)
    high, low = edges if len(edges) == 2 else (y, y)
    notes = {
        float(x): word
        for trace in own
        if is_mark(trace)
        for x, word in zip(trace["x"], trace["text"], strict=True)
        if word
    }
    return [
        {
            **axes,
            "curve": html.unescape(line["name"]),
            "x": float(x),
            "y": value,
            "low": lowest,
            "high": highest,
            "note": notes.get(float(x), ""),
        }
        for x, value, lowest, highest in zip(line["x"], y.tolist(), low.tolist(), high.tolist(), strict=True)
    ]


def _summaries(records: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each curve: its number of points, its range of x, and its last values."""
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        curves.setdefault((record["panel"], record["curve"]), []).append(record)
    return [
        [
            panel,
            curve,
            str(len(points)),
            *(f"{value:.4g}" for value in (points[0]["x"], points[-1]["x"])),
            *(f"{points[-1].get(name, math.nan):.4g}" for name in ("y", "low", "high")),
            "; ".join(point["note"] for point in points if point.get("note")),
        ]
        for (panel, curve), points in curves.items()
    ]


def _plain(markup: str) -> str:
    """Return the title of an axis without markup."""
    return html.unescape(re.sub(r"<[^>]+>", "", markup))
