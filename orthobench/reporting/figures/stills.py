"""Draw figures with matplotlib, for papers and documents: panels side by side, with one legend below them."""

from __future__ import annotations

import hashlib
import html
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure as Still
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox

from orthobench.options.arguments import ImageFormat
from orthobench.reporting.figures.drawing import PUBLISHED_SYMBOL, is_published
from orthobench.reporting.figures.figure_json import figure_json
from orthobench.reporting.figures.figure_record import Figure, FigureRecord
from orthobench.reporting.figures.pgf import pgf
from orthobench.reporting.figures.styles import GREY
from orthobench.system.strict_json import dump_json

Drawable = Literal["svg", "png", "pdf"]
"""The formats that other programs show."""
TEXT = 8
"""The size of all text in points."""
POINTS = 0.48
"""Points per pixel of Plotly's sizes, which are for a screen."""
BASELINE = "baseline "
"""The beginning of a baseline's name, which its value follows; several panels share an entry of the legend."""
COLUMN_SPACING = 1.2
"""The space between two columns of the legend, in sizes of its text."""
LETTERS_PER_INCH = 14
"""The number of letters in an inch of text, at most, where long names are broken into lines."""
ONE_LINE = 0.9
"""The part of a panel's size along which a title of an axis stands in one line."""
PARAMETERS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # because matplotlib brings it, a figure is the same on every machine
    "font.size": TEXT,
    **{f"{part}.labelsize": TEXT for part in ("axes", "xtick", "ytick")},
    "axes.titlesize": TEXT,
    "legend.fontsize": TEXT,
    "axes.linewidth": 0.6,
    "axes.formatter.use_mathtext": True,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "mathtext.default": "regular",
    "pdf.fonttype": 42,  # because publishers refuse Type 3 fonts
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "orthobench",  # else identifiers would be random
}
NO_DATE: dict[str, dict[str, None]] = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}, "png": {}}
"""The metadata that would make two files of the same figure differ."""
MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "triangle-right": ">",
    "cross": "P",
    "star": "*",
    "pentagon": "p",
    "x-thin": "x",
    "line-ns": "|",
    "circle-x": r"$\otimes$",
}
"""Markers by Plotly's symbols, which end in `-open` if they are hollow."""
LARGER = {"*": 1.6, "p": 1.2, r"$\otimes$": 1.5}
"""Factors for the markers that look smaller than a circle of their size."""
STROKES = ("x", "|")
DASHES = {
    "dash": (0, (4, 2)),
    "dot": (0, (1, 1.5)),
    "dashdot": (0, (4, 1.5, 1, 1.5)),
    "longdash": (0, (8, 2)),
    "longdashdot": (0, (8, 1.5, 1, 1.5)),
}


def draw_still(
    panels: Sequence[tuple[str, Figure]], form: ImageFormat, inches: float, columns: int, panel_height: float
) -> bytes:
    """Return a file with the panels side by side, in as many rows as necessary; a PNG has 600 dots per inch.

    PGF code leaves maps of colours out, because LaTeX would take minutes for them.

    Args:
        panels: titles and figures; empty titles are left out.
        inches: the width of the picture.
        columns: the most panels side by side.
        panel_height: the height of a panel in inches, including its axes and labels.
    """
    if form == "pgf":
        panels = [
            (title, figure) for title, figure in panels if all(trace["type"] == "scatter" for trace in figure.data)
        ]
        if not panels:
            return b"% A map of colours: use the format pdf.\n"
    with same_everywhere():
        still = compose(panels, inches, columns, panel_height)
        if form == "pgf":
            return pgf(still).encode()
        file = io.BytesIO()
        still.savefig(file, format=form, dpi=600, metadata=dict(NO_DATE[form]))
    return file.getvalue()


def svg(figure: Figure, inches: float, panel_height: float) -> str:
    """Return a figure as SVG; its identifier is `data_hash`, by which a stored picture is compared with its data."""
    with same_everywhere():
        file = io.StringIO()
        metadata = {**NO_DATE["svg"], "Identifier": data_hash(figure)}
        compose([("", figure)], inches, 1, panel_height).savefig(file, format="svg", metadata=metadata)
    return re.sub(r"[ \t]+$", "", file.getvalue(), flags=re.M)


def data_hash(figure: Figure) -> str:
    """Return a hash of a figure's data and layout; the bytes of its picture depend on matplotlib's version."""
    return hashlib.sha256(dump_json(figure_json(figure), sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def same_everywhere() -> Iterator[None]:
    """Draw with matplotlib's own defaults and `PARAMETERS`, whatever the user's settings."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(PARAMETERS)
        yield


def compose(panels: Sequence[tuple[str, Figure]], inches: float, columns: int, panel_height: float) -> Still:
    """Return the picture that `draw_still` writes, within `same_everywhere`."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    still = Still((inches, rows * panel_height), layout="constrained")
    canvas = FigureCanvasAgg(still)
    entries: dict[str, Line2D] = {}
    grid = still.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, figure) in zip(grid, panels, strict=False):
        axes.set_title(_words(title))
        _draw_panel(axes, figure, inches / columns, panel_height)
        for name, line in _entries(axes, figure).items():
            entries.setdefault(name, line)
    for axes in grid[len(panels) :]:
        axes.remove()
    if len(baselines := [name for name in entries if name.startswith(BASELINE)]) > 1:
        joined = BASELINE + ", ".join(name.removeprefix(BASELINE) for name in baselines)
        entries = {
            joined if name == baselines[0] else name: line
            for name, line in entries.items()
            if name not in baselines[1:]
        }
    if entries:
        still.set_figheight(still.get_figheight() + _add_legend(still, canvas, entries))
    return still


def _add_legend(still: Still, canvas: FigureCanvasAgg, entries: dict[str, Line2D]) -> float:
    """Add the legend in as many columns as fit, and return its height in inches."""
    names = [textwrap.fill(name, int(LETTERS_PER_INCH * still.get_figwidth())) for name in entries]

    def add(columns: int) -> tuple[Legend, Bbox]:
        legend = still.legend(
            list(entries.values()),
            names,
            loc="outside lower left",
            ncols=columns,
            frameon=False,
            borderpad=0.2,
            columnspacing=COLUMN_SPACING,
            handlelength=2.8,
            labelspacing=0.3,
        )
        return legend, legend.get_window_extent(canvas.get_renderer())

    single, box = add(1)
    spacing = COLUMN_SPACING * TEXT * still.dpi / 72
    columns = min(int((still.bbox.width + spacing) / (box.width + spacing)), len(names))
    if columns > 1:
        single.remove()
        _, box = add(columns)
    return float(box.height / still.dpi)


def _entries(axes: Axes, figure: Figure) -> dict[str, Line2D]:
    """Return the entries of a figure's legend, by their names: those of what its drawn axes show."""
    entries: dict[str, Line2D] = {}
    for trace in figure.data:
        if trace["type"] != "scatter":
            continue
        listed = trace.get("name") and trace.get("showlegend") is not False
        if listed and figure.layout.get("showlegend") is not False and _is_in_frame(axes, trace):
            entries.setdefault(_words(trace["name"]), Line2D([], [], **_look(trace)))
        elif is_published(trace):
            marker = {"symbol": PUBLISHED_SYMBOL, "color": "#000000", "size": 10}
            entries.setdefault("published", Line2D([], [], **_look({"mode": "markers", "marker": marker})))
    return entries


def _is_in_frame(axes: Axes, trace: FigureRecord) -> bool:
    """Return whether a part of a trace lies between the ends of the axes; one without points is only an entry."""
    x, y = (np.asarray(trace[name], dtype=float) for name in "xy")
    if not len(x):
        return True
    (left, right), (low, high) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    within = y[(x >= left) & (x <= right)]
    return bool(((within >= low) & (within <= high)).any() or ((within < low).any() and (within > high).any()))


def _draw_panel(axes: Axes, figure: Figure, width: float, height: float) -> None:
    """Draw the traces of a figure, then give the axes their ranges, ticks and titles."""
    before: FigureRecord | None = None
    has_curves = any("lines" in trace.get("mode", "") and len(trace["x"]) > 2 for trace in figure.data)
    axes.margins(x=0 if has_curves else 0.06, y=0.06)
    for name in "xy":
        if figure.layout[f"{name}axis"].get("type") == "log":
            getattr(axes, f"set_{name}scale")("log", nonpositive="mask")
    for trace in figure.data:
        if trace["type"] == "heatmap":
            _draw_map(axes, trace)
            continue
        if len(trace["x"]):
            _draw_trace(axes, trace, before)
        before = trace
    for name, inches in (("x", width), ("y", height)):
        _set_axis(axes, name, figure.layout[f"{name}axis"], inches)
    if figure.layout["yaxis"].get("scaleanchor"):
        axes.set_aspect("equal", adjustable="box" if figure.layout["yaxis"].get("constrain") else "datalim")


def _draw_trace(axes: Axes, trace: FigureRecord, before: FigureRecord | None) -> None:
    """Draw a trace's area, line, error bars and symbols."""
    x, y = (np.asarray(trace[name], dtype=float) for name in "xy")
    if trace.get("fill") == "tonexty" and before is not None:
        axes.fill_between(x, y, np.asarray(before["y"], dtype=float), color=_color(trace["fillcolor"]), linewidth=0)
    if "lines" in (trace.get("mode") or "lines"):
        if (trace.get("line") or {}).get("width", 2):
            shown = (trace.get("marker") or {}).get("maxdisplayed")
            axes.plot(x, y, markevery=-(-len(x) // shown) if shown else None, **_look(trace))
        return
    marker = trace["marker"]
    if (errors := (trace.get("error_y") or {}).get("array")) is not None:
        color = _look(trace)["color"]
        axes.errorbar(x, y, np.asarray(errors, dtype=float), fmt="none", ecolor=color, elinewidth=2 * POINTS)
    symbols, sizes, opacity = (_of_each(marker.get(name), len(x)) for name in ("symbol", "size", "opacity"))
    for symbol in dict.fromkeys(symbols):
        own = [at for at, each in enumerate(symbols) if each == symbol]
        look = _look({**trace, "marker": {**marker, "symbol": symbol, "size": 1}})
        colors = _if_they_differ([to_rgba(look["color"], opacity[at]) for at in own])
        is_stroke = look["marker"] in STROKES  # which matplotlib draws in the colour of its face
        drawn = axes.scatter(
            x[own],
            y[own],
            s=_if_they_differ([(look["markersize"] * (sizes[at] or 6)) ** 2 for at in own]),
            marker=look["marker"],
            facecolors=colors if is_stroke or look["markerfacecolor"] != "none" else "none",
            edgecolors=None if is_stroke else colors,
            linewidths=look["markeredgewidth"],
            clip_on=trace.get("cliponaxis") is not False,
            zorder=3,
        )
        drawn.set_in_layout(False)  # else a symbol on the frame would make the axes smaller


def _look(trace: FigureRecord) -> dict[str, Any]:
    """Return the colour, line and marker of a trace, for a line of matplotlib; of several markers, the first."""
    line, marker, mode = trace.get("line") or {}, trace.get("marker") or {}, trace.get("mode") or "lines"
    color = _color(line.get("color") or marker.get("color") or GREY)
    symbol, size = (_of_each(marker.get(name), 1)[0] for name in ("symbol", "size"))
    symbol = symbol or "circle"
    name = MARKERS[symbol.removesuffix("-open")]
    is_hollow = symbol.endswith("-open") and not name.startswith("$")
    return {
        "color": color,
        "linestyle": DASHES.get(line.get("dash") or "", "solid") if "lines" in mode else "none",
        "linewidth": POINTS * line.get("width", 2),
        "marker": name if "markers" in mode else "none",
        "markersize": POINTS * LARGER.get(name, 1) * (size or 6),
        "markeredgewidth": 0.7 if is_hollow or name in STROKES else 0.2,
        "markerfacecolor": "none" if is_hollow else color,
    }


def _of_each(value: Any, count: int) -> list[Any]:
    """Return a property of each point; one value applies to all of them."""
    return list(value) if isinstance(value, list | tuple | np.ndarray) else [value] * count


def _if_they_differ(values: list[Any]) -> list[Any]:
    """Return only the first of equal values, because a file of points that all look the same is far smaller."""
    return values if len(set(values)) > 1 else values[:1]


def _color(text: str) -> str | tuple[float, ...]:
    """Return a colour of Plotly, such as `rgba(255,0,0,0.2)`, as matplotlib reads it."""
    if not text.startswith("rgb"):
        return text
    red, green, blue, *opacity = (float(number) for number in re.findall(r"[\d.]+", text))
    return (red / 255, green / 255, blue / 255, *opacity)


def _draw_map(axes: Axes, trace: FigureRecord) -> None:
    """Draw a map with the scale of its colours."""
    x, y, values = (np.asarray(trace[name], dtype=float) for name in "xyz")
    drawn = axes.pcolormesh(
        x,
        y,
        values,
        cmap=str(trace["colorscale"]).lower(),
        vmin=trace.get("zmin"),
        vmax=trace.get("zmax"),
        rasterized=True,  # because a map may have a million cells
    )
    axes.grid(visible=False)
    title = ((trace.get("colorbar") or {}).get("title") or {}).get("text", "")
    axes.figure.colorbar(drawn, ax=axes, label=_words(title))


def _set_axis(axes: Axes, name: str, layout: FigureRecord, inches: float) -> None:
    """Set the range, the ticks and the title of an axis, whose lines have 60 % of the panel's size in inches."""
    axis = getattr(axes, f"{name}axis")
    width = int(0.6 * LETTERS_PER_INCH * inches)
    title = _words(layout["title"]["text"])
    if len(title) > ONE_LINE * LETTERS_PER_INCH * inches:
        title = textwrap.fill(title, width, break_on_hyphens=False, break_long_words=False)
    axis.set_label_text(title)
    limits = getattr(axes, f"set_{name}lim")
    is_log = layout.get("type") == "log"
    if given := layout.get("range"):
        limits(*(10.0 ** float(end) if is_log else float(end) for end in given))
    elif layout.get("rangemode") == "tozero" and not is_log:
        low, high = getattr(axes, f"get_{name}lim")()
        limits(min(low, 0.0) if axis.get_data_interval()[0] < 0 else 0.0, max(high, 0.0))
    if name == "x" and is_log:
        _space_ticks(axis)
    if layout.get("autorange") == "reversed":
        axis.set_inverted(True)
    if layout.get("tickvals") is not None:
        labels = [_words(text) for text in layout["ticktext"]]
        axis.set_ticks(layout["tickvals"], labels)
        if name == "x" and sum(map(len, labels)) > width:  # side by side they would overlap
            axis.set_tick_params(rotation=40)
            for label in axis.get_ticklabels():
                label.set(horizontalalignment="right", rotation_mode="anchor")
    if layout.get("showgrid") is False:
        axis.grid(visible=False)


def _space_ticks(axis: Axis) -> None:
    """Label 1, 2 and 5 times the powers of ten if there is about one of them, because labels of all would overlap."""
    low, high = np.log10(axis.get_view_interval())
    if high - low > 2:
        return
    axis.set_minor_formatter(NullFormatter())
    if high - low > 0.5:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        axis.set_major_locator(MaxNLocator(4))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _words(text: str) -> str:
    """Return a text of Plotly, which is markup with escaped names, as matplotlib reads it."""
    parts = re.split(r"<(sub|sup)>(.*?)</\1>", re.sub(r"</?[bi]>", "", text).replace("<br>", "\n"))
    words = [_printable(html.unescape(part)) for part in parts[::3]]
    scripts = [
        f"${'_' if kind == 'sub' else '^'}{{{_script(html.unescape(inside))}}}$"
        for kind, inside in zip(parts[1::3], parts[2::3], strict=True)
    ]
    escaped = [word.replace("$", r"\$") for word in words]
    return "".join(part for pair in zip(escaped, [*scripts, ""], strict=True) for part in pair)


def _script(text: str) -> str:
    """Return the inside of a subscript or superscript for matplotlib, without spaces, at which a line could end."""
    if text.replace("−", "").isalnum():
        return text
    escaped = re.sub(r"([\\{}$&#%_])", r"\\\1", _printable(text)).replace(" ", "\N{NO-BREAK SPACE}")
    return rf"\text{{{escaped}}}"


def _printable(text: str) -> str:
    """Return text without control characters, which SVG does not allow."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)
