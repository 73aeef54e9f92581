"""Write figures for papers as SVG, PDF, PNG and pgfplots code, one or two columns wide, with 8 pt text.

A single process of the system's Chromium draws all images of a report, through Kaleido.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from orthobench.analysis.conditions import Condition
from orthobench.arguments import ImageFormat
from orthobench.errors import UsageError, installation
from orthobench.files import refuse_file, refuse_other_kinds, write_bytes
from orthobench.reporting.drawing import PUBLISHED_SYMBOL, is_published, with_few_bands
from orthobench.reporting.figure_record import Figure
from orthobench.reporting.figures import learning_curves
from orthobench.reporting.length_figures import over_length
from orthobench.reporting.pages import PaperView
from orthobench.reporting.paper_figures import panel_figures, panel_title
from orthobench.reporting.pgfplots import pgfplots
from orthobench.reporting.studies import draw, figures_of
from orthobench.reporting.styles import Styles

PIXELS = 96
"""Pixels per inch, the unit of Plotly and Chromium; in SVG and PDF they are lengths, not dots."""
TEXT = 8 * PIXELS / 72
"""8 pt in pixels."""
WIDTHS = {3.25: 1, 6.75: 3}
"""Widths in inches, for one and two columns of a paper, with the largest number of panels side by side."""
PANEL_HEIGHT = 2.0
"""Inches, including axes and labels."""
LEGEND_LINE, LETTER, SAMPLE = 0.205, 0.0625, 0.65
"""Inches: the height of a line of the legend, and the widths of a letter and of the sample before a name."""
BELOW_LEGEND = 0.05
"""Inches below the legend, because Plotly cuts off the descenders of its last line."""
PNG_SCALE = 600 / PIXELS
"""PNG has 600 dots per inch."""


def write_images(conditions: list[Condition], views: list[PaperView], form: ImageFormat, folder: Path) -> list[Path]:
    """Write the papers' figures, one image per figure; without papers, learning curves and metrics over length.

    Each figure is written once per width, for example as `helfrich2018-figure-5-3.25in.pdf`; pgfplots code is in .tex.

    Raises:
        UsageError: Kaleido or Chromium is missing, the folder cannot be written, or no figure is measured.
    """
    refuse_file(folder)
    figures = paper_images(views, Styles(conditions))
    if not views:
        styles = Styles(conditions)
        figures = {f"{c.title}-{c.key}": [("", learning_curves(c, styles))] for c in conditions}
        figures |= {
            f"{c.title}-{c.key}-over-length": [("", drawn[1])] for c in conditions if (drawn := over_length(c, styles))
        }
    jobs: list[dict[str, Any]] = []
    codes: dict[Path, str] = {}
    for name, panels in figures.items():
        for inches in WIDTHS:
            stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
            if form == "pgfplots":
                path = folder / f"{stem}-{inches}in.tex"
                refuse_other_kinds(path, "LaTeX")
                codes[path] = pgfplots(panels, inches, WIDTHS[inches])
                continue
            path = folder / f"{stem}-{inches}in.{form}"
            refuse_other_kinds(path, form.upper())
            figure = compose(panels, inches)
            size = {"width": figure.layout.width, "height": figure.layout.height}
            options = {**size, "format": form, "scale": PNG_SCALE if form == "png" else 1}
            jobs.append({"fig": figure, "path": path, "opts": options})
    if views and not (jobs or codes):
        raise UsageError(
            f"no figure in this selection is measured; measure it with: {'; '.join(missing_commands(views))}"
        )
    if jobs:
        _draw(jobs, folder)
    try:
        for path, code in codes.items():
            folder.mkdir(parents=True, exist_ok=True)
            write_bytes(path, code.encode())
    except OSError as error:
        raise UsageError(f"figures in {folder} cannot be written: {error}") from error
    return [path.resolve() for path in (*(job["path"] for job in jobs), *codes)]


def paper_images(views: Sequence[PaperView], styles: Styles) -> dict[str, list[tuple[str, Figure]]]:
    """Return the panels of each measured figure of the papers, with their titles, by figure name."""
    figures: dict[str, list[tuple[str, Figure]]] = {}
    for view in views:
        for part in view.artifacts:
            drawn = [
                (panel_title(part, panel) if name == "paper" else name, figure)
                for panel in part.panels
                for name, (_, figure) in panel_figures(part, panel, styles).items()
            ]
            result = part.study_result if part.is_study else None
            if result and result.is_whole:
                named = figures_of(part.artifact, draw(result, styles)).items()
                drawn += [(name.lstrip("0123456789 "), figure) for name, (_, figure) in named]
            if drawn:
                figures[f"{view.paper.key}-{part.artifact.name}"] = drawn
    return figures


def missing_commands(views: Sequence[PaperView]) -> list[str]:
    """Return the commands that measure what is missing in the papers' figures."""
    commands = (
        command
        for view in views
        for part in view.artifacts
        if part.table is None
        if (command := f"orthobench study {part.study.name}" if part.study else part.command)
    )
    return list(dict.fromkeys(commands))


def compose(panels: Sequence[tuple[str, Figure]], inches: float) -> go.Figure:
    """Return one figure of this width with the panels side by side, in as many rows as necessary.

    Args:
        panels: titles and figures; empty titles are left out.
    """
    columns = min(WIDTHS[inches], len(panels))
    rows = -(-len(panels) // columns)
    cells: list[list[dict[str, Any] | None]] = [
        [{} if row * columns + column < len(panels) else None for column in range(columns)] for row in range(rows)
    ]
    whole = make_subplots(
        rows,
        columns,
        specs=cells,
        subplot_titles=[title for title, _ in panels],
        horizontal_spacing=0.27 / columns,
        vertical_spacing=0.36 / rows,
    )
    names: dict[str, None] = {}
    has_scale = False
    for number, (_, figure) in enumerate(panels):
        row, column = number // columns + 1, number % columns + 1
        arrows = 0
        for trace in _with_few_bands(figure).to_plotly().data:
            if trace.type == "heatmap":
                trace.showscale, has_scale = not has_scale, True
            elif trace.showlegend is not False and figure.layout.get("showlegend") is not False and trace.name:
                trace.legendgroup = trace.legendgroup or trace.name
                trace.showlegend = trace.name not in names
                names[trace.name] = None
            if trace.type == "scatter":
                _shrink(trace)
                if figure.layout["yaxis"].get("type") == "log":  # Plotly would draw a line to 0 down to the frame
                    y = np.asarray(trace.y, dtype=float)
                    trace.y = np.where(y > 0, y, np.nan)
                if trace.marker.symbol == "arrow-up":  # labels of curves beyond the frame, one below another
                    trace.y = [figure.layout["yaxis"]["range"][1] * (1 - 0.12 * arrows)]
                    arrows += 1
            whole.add_trace(trace, row, column)
        for axis, update in (("xaxis", whole.update_xaxes), ("yaxis", whole.update_yaxes)):
            own = {name: value for name, value in figure.layout[axis].items() if name != "scaleanchor"}
            if axis == "yaxis":
                own["title"] = {"text": _broken(own["title"]["text"])}
            update(own | {"automargin": True}, row=row, col=column)
            if own.get("type") == "log":  # because Plotly writes powers of ten a quarter larger
                update(tickfont_size=TEXT / 1.25, row=row, col=column)
    if any(is_published({"meta": trace.meta}) and trace.showlegend is False for trace in whole.data):
        marker = {"symbol": PUBLISHED_SYMBOL, "color": "#000000", "size": 6}
        whole.add_scatter(x=[None], y=[None], mode="markers", name="published", marker=marker)
        names["published"] = None
    lines = _lines([*names], inches)
    height = rows * PANEL_HEIGHT + lines * LEGEND_LINE + BELOW_LEGEND
    whole.update_layout(
        template="none",
        width=round(inches * PIXELS),
        height=round(height * PIXELS),
        font={"size": TEXT, "family": "Arial, Liberation Sans, sans-serif", "color": "#000000"},
        paper_bgcolor="#FFFFFF",
        plot_bgcolor="#FFFFFF",
        margin={"l": 40, "r": 12, "t": 24, "b": 34},
        showlegend=bool(names),
        legend={
            "orientation": "h",
            "yref": "container",
            "y": BELOW_LEGEND / height,
            "yanchor": "bottom",
            "xref": "container",
            "x": 0,
            "font": {"size": TEXT},
            "tracegroupgap": 0,
            "maxheight": round((lines + 1) * LEGEND_LINE * PIXELS),
        },
    )
    axes = {"title_font_size": TEXT, "title_standoff": 4, "gridcolor": "#E4E4E4"}
    lines_of_axes = {"linecolor": "#000000", "showline": True, "zeroline": False}
    whole.update_xaxes(**axes, **lines_of_axes)
    whole.update_yaxes(**axes, **lines_of_axes)
    whole.update_annotations(font_size=TEXT, yshift=4)
    whole.update_traces(textfont_size=TEXT, selector={"type": "scatter"})
    whole.update_traces(
        colorbar={"title": {"font": {"size": TEXT}}, "tickfont": {"size": TEXT}, "thickness": 8},
        selector={"type": "heatmap"},
    )
    return whole


def _with_few_bands(figure: Figure) -> Figure:
    result = Figure(figure.layout)
    result.data = with_few_bands(figure.data)
    return result


def _broken(title: str) -> str:
    """Return the title of a vertical axis, in two lines if it is longer than the axis."""
    if len(title) * LETTER <= 0.75 * PANEL_HEIGHT or " " not in title or "<" in title:
        return title
    spaces = [at for at, letter in enumerate(title) if letter == " "]
    middle = min(spaces, key=lambda at: abs(at - len(title) / 2))
    return f"{title[:middle]}<br>{title[middle + 1 :]}"


def _lines(names: Sequence[str], inches: float) -> int:
    """Return the number of lines of a legend with these names."""
    lines, filled = min(len(names), 1), 0.0
    for name in names:
        wide = LETTER * len(name) + SAMPLE
        if filled and filled + wide > inches:
            lines, filled = lines + 1, 0.0
        filled += wide
    return lines


def _shrink(trace: go.Scatter) -> None:
    """Shrink symbols and lines for print."""
    for part, name, factor in (
        (trace.marker, "size", 0.6),
        (trace.marker.line, "width", 0.5),
        (trace.line, "width", 0.65),
    ):
        value = part[name]
        if value:
            part[name] = factor * value if isinstance(value, int | float) else [factor * each for each in value]


def _draw(jobs: Sequence[dict[str, Any]], folder: Path) -> None:
    """Draw all images in one process of Chromium.

    Raises:
        UsageError: Kaleido or Chromium is missing, or a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        import kaleido

        kaleido.write_fig_from_object_sync([{**job, "path": str(job["path"])} for job in jobs])
    except OSError as error:
        raise UsageError(f"figures in {folder} cannot be written: {error}") from error
    except (ImportError, ValueError, RuntimeError) as error:
        first = (str(error).strip().splitlines() or ["?"])[0]
        raise UsageError(f"figures need Kaleido and Chromium: {installation('figures')} ({first})") from error
