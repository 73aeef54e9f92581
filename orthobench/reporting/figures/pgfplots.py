r"""Write figures as pgfplots code with all points in tables, one or two columns of a paper wide."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from orthobench.reporting.figures.decimate import is_line
from orthobench.reporting.figures.drawing import is_edge, is_published
from orthobench.reporting.figures.figure_record import Figure, FigureRecord
from orthobench.reporting.tables.latex import escaped

PREAMBLE = r"""% \usepackage{pgfplots}
% \pgfplotsset{compat=1.18}
% \usepgfplotslibrary{fillbetween, groupplots}
"""
DASHES = {
    "dash": "dashed",
    "dot": "dotted",
    "dashdot": "dash dot",
    "longdash": "dash pattern=on 6pt off 2pt",
    "longdashdot": "dash pattern=on 6pt off 2pt on 1pt off 2pt",
}
MARKS = {
    "circle": "*",
    "circle-open": "o",
    "square": "square*",
    "square-open": "square",
    "diamond": "diamond*",
    "diamond-open": "diamond",
    "triangle-up": "triangle*",
    "triangle-up-open": "triangle",
    "triangle-right-open": r"text, text mark={$\triangleright$}",
    "cross": "+",
    "cross-open": "oplus",
    "star": "star",
    "star-open": "asterisk",
    "x-thin-open": "x",
    "line-ns-open": "|",
    "pentagon-open": "pentagon",
    "circle-x-open": "otimes",
}
"""Options of marks by Plotly's symbols; no two symbols look alike."""
PUBLISHED = "published"
GAP, HEIGHT = 0.68, 1.4
"""Inches next to each panel for its axis, and the height of a panel without axes."""
MARKED = 9
"""The number of symbols on a line."""


def pgfplots(panels: Sequence[tuple[str, Figure]], inches: float, columns: int) -> str:
    """Return panels of curves as pgfplots code; maps are left out, because pgfplots would take minutes for them.

    Args:
        panels: titles and figures.
        inches: the width of all panels together.
        columns: the most panels side by side.
    """
    drawn = [(title, figure) for title, figure in panels if all(trace["type"] == "scatter" for trace in figure.data)]
    if not drawn:
        return f"{PREAMBLE}% A map of colours: use the format pdf.\n"
    columns = min(columns, len(drawn))
    rows = -(-len(drawn) // columns)
    width = inches / columns - GAP
    entries: dict[str, str] = {}
    parts = [_panel(title, figure, entries) for title, figure in drawn]
    entry = 0.07 * (max((len(name) for name in entries), default=0) + 6)  # inches
    legend = "".join(
        f"\\addlegendimage{{{style}}}\n\\addlegendentry{{{escaped(name)}}}\n" for name, style in entries.items()
    )
    options = [
        f"group style={{group size={columns} by {rows}, horizontal sep={GAP:g}in, vertical sep=0.75in}}",
        f"scale only axis, width={width:.3f}in, height={HEIGHT}in",
        "font=\\footnotesize, line width=0.7pt, mark size=1.2pt, unbounded coords=jump, axis on top",
        "tick align=outside, tick pos=left, grid=major, grid style={black!10}",
        "legend style={at={(1,-0.38)}, anchor=north east, draw=none, cells={anchor=west}}",
        f"legend columns={max(1, int(inches / entry))}",
    ]
    return (
        f"{PREAMBLE}\\begin{{tikzpicture}}\n\\begin{{groupplot}}[\n  " + ",\n  ".join(options) + ",\n]\n"
        f"{''.join(parts)}{legend}\\end{{groupplot}}\n\\end{{tikzpicture}}\n"
    )


def _panel(title: str, figure: Figure, entries: dict[str, str]) -> str:
    """Return the code of a panel, and add its entries of the legend with their styles."""
    options = [f"title={{{escaped(title)}}}"] if title else []
    for name in "xy":
        axis = figure.layout[f"{name}axis"]
        logarithmic = axis.get("type") == "log"
        options.append(f"{name}label={{{_math(axis['title']['text'])}}}")
        if logarithmic:
            options.append(f"{name}mode=log")
        if axis.get("range"):
            low, high = (10.0 ** float(end) if logarithmic else float(end) for end in axis["range"])
            options.append(f"{name}min={low:.6g}, {name}max={high:.6g}")
        elif axis.get("rangemode") == "tozero" and not logarithmic:
            options.append(f"{name}min=0")
    logarithmic = figure.layout["yaxis"].get("type") == "log"
    plots, number = [], 0
    for at, trace in enumerate(figure.data):
        if is_edge(trace) and trace.get("fill"):
            number += 1
            plots.append(_band(figure.data[at - 1], trace, f"band{number}", logarithmic))
        elif not is_edge(trace) and len(trace["x"]):
            for part in _by_symbol(trace):
                style = _style(part)
                plots.append(
                    f"\\addplot[{style}, forget plot] {_table(['x', 'y'], part['x'], _log(part['y'], logarithmic))}"
                )
            if trace.get("name") and trace.get("showlegend") is not False:
                entries.setdefault(html.unescape(trace["name"]), _style(trace))
            elif is_published(trace):
                entries.setdefault(PUBLISHED, _style({**trace, "marker": {**trace["marker"], "color": "#000000"}}))
    return "".join([f"\\nextgroupplot[{', '.join(options)}]\n", *plots])


def _by_symbol(trace: FigureRecord) -> list[FigureRecord]:
    """Return a trace for each symbol of a trace whose points have symbols of their own."""
    symbols = (trace.get("marker") or {}).get("symbol")
    if not isinstance(symbols, list):
        return [trace]
    parts = []
    for symbol in dict.fromkeys(symbols):
        own = [at for at, each in enumerate(symbols) if each == symbol]
        places = {axis: [trace[axis][at] for at in own] for axis in "xy"}
        parts.append({**trace, **places, "marker": {**trace["marker"], "symbol": symbol}})
    return parts


def _band(high: FigureRecord, low: FigureRecord, name: str, logarithmic: bool) -> str:
    edges = "".join(
        f"\\addplot[name path={name}{end}, draw=none, forget plot] "
        f"{_table(['x', 'y'], edge['x'], _log(edge['y'], logarithmic))}"
        for end, edge in (("high", high), ("low", low))
    )
    red, green, blue, opacity = re.findall(r"[\d.]+", low["fillcolor"])
    color = f"{{rgb,255:red,{red};green,{green};blue,{blue}}}"
    return (
        f"{edges}\\addplot[fill={color}, opacity={opacity}, forget plot] fill between[of={name}high and {name}low];\n"
    )


def _style(trace: FigureRecord) -> str:
    line, marker = trace.get("line") or {}, trace.get("marker") or {}
    color = str(line.get("color") or marker.get("color") or "#888888").lstrip("#")
    red, green, blue = (int(color[at : at + 2], 16) for at in (0, 2, 4))
    parts = [f"color={{rgb,255:red,{red};green,{green};blue,{blue}}}"]
    name = MARKS.get(marker.get("symbol") or "circle", "*")
    if not is_line(trace):
        return ", ".join([*parts, "only marks", f"mark={name}"])
    parts += [DASHES[line["dash"]]] if line.get("dash") in DASHES else []
    if "markers" not in trace["mode"]:
        return ", ".join([*parts, "no marks"])
    every = max(1, len(trace["x"]) // MARKED)
    return ", ".join([*parts, f"mark={name}, mark repeat={every}, mark options={{solid}}"])


def _log(values: Any, logarithmic: bool) -> Any:
    """Return values without those that a logarithmic axis has not."""
    numbers = np.asarray(values, dtype=float)
    return np.where(numbers > 0, numbers, np.nan) if logarithmic else numbers


def _table(names: Sequence[str], *columns: Any) -> str:
    rows = zip(*(np.asarray(column, dtype=float).tolist() for column in columns), strict=True)
    lines = "\n".join(" ".join(f"{value:.8g}" for value in row) for row in rows)
    return f"table[x={names[0]}, y={names[1]}] {{\n{' '.join(names)}\n{lines}\n}};\n"


def _math(title: str) -> str:
    """Return an axis title, whose subscripts and symbols become mathematics."""
    parts = re.split(r"<sub>(.*?)</sub>", title)
    return "".join(
        f"$_{{\\mathrm{{{escaped(part)}}}}}$" if number % 2 else escaped(html.unescape(part))
        for number, part in enumerate(parts)
    )
