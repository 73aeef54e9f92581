"""Draw a Plotly figure as plain SVG, for printing and for browsers without JavaScript."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from orthobench.reporting.colormap import viridis
from orthobench.reporting.decimate import visible
from orthobench.reporting.drawing import with_few_bands
from orthobench.reporting.packed import numbers
from orthobench.reporting.sparks import path
from orthobench.reporting.symbols import markers

WIDTH, HEIGHT = 1000, 560
LEFT, RIGHT, TOP, BOTTOM = 144, 24, 20, 92
SCALE = 2
"""Units of the picture per pixel of Plotly's sizes."""
FAR = 1e6
"""Distance from the picture, in units, within which points keep their places."""
DIGIT, LETTER = 17, 13
"""The width of a digit in the fonts that browsers use for the page, at most, and that of a letter in a word."""
SYMBOLS, FEW_SYMBOLS, MANY_TRACES = 6, 3, 60
"""The most symbols per line, for a few traces and for more traces than `MANY_TRACES`."""
BAR, BAR_ROOM = 26, 170
"""The width of the colour scale of a map, and of all that stands right of a map."""
DASHES = {"dash": "14 8", "dot": "4 6", "dashdot": "14 6 4 6", "longdash": "22 8", "longdashdot": "22 6 4 6"}
SAFE_COLOR = re.compile(r"#[0-9a-fA-F]{3,8}|rgba?\([\d., ]+\)|[a-z]+")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """An axis: its range in data, or in decades if it is logarithmic, its place in the picture, and its own ticks."""

    low: float
    high: float
    logarithmic: bool
    start: float
    end: float
    named: Sequence[tuple[float, str]] = ()

    def scaled(self, values: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log10(np.where(values > 0, values, np.nan)) if self.logarithmic else values

    def locate(self, values: Floats) -> Floats:
        return self.start + (self.scaled(values) - self.low) / ((self.high - self.low) or 1) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the position and the text of each tick."""
        low, high = sorted((self.low, self.high))
        if self.named:
            values, texts = np.array([value for value, _ in self.named]), [name for _, name in self.named]
        elif not self.logarithmic:
            values = _round_numbers(low, high)
            texts = [f"{value:.6g}" for value in values]
        elif high - low > 2:
            values = _round_numbers(low, high, least_step=1)
            texts = [f"1e{value:.0f}" for value in values]
        else:
            decades = 10.0 ** np.arange(math.floor(low), math.ceil(high) + 1)
            numbers_between = [
                value for value in np.outer(decades, (1, 2, 5)).ravel() if low <= np.log10(value) <= high
            ]
            values = np.array(numbers_between if len(numbers_between) > 1 else _round_numbers(10.0**low, 10.0**high))
            texts = [f"{value:.6g}" for value in values]
            values = np.log10(values)
        positions = self.start + (values - self.low) / ((self.high - self.low) or 1) * (self.end - self.start)
        return list(zip(positions.tolist(), texts, strict=True))


def _round_numbers(low: float, high: float, least_step: float = 0) -> Floats:
    """Return about five multiples of 1, 2 or 5 times a power of ten in a range."""
    step = max(least_step, _nice((high - low) / 5))
    counts: Floats = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1, dtype=float)
    return counts * step


def _nice(step: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least the step."""
    if not step > 0 or not math.isfinite(step):
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= step * (1 - 1e-9))


def still(figure: Mapping[str, Any]) -> Markup:
    """Return a figure as SVG with a legend below.

    Args:
        figure: a Plotly figure as JSON: `data` and `layout`.
    """
    layout = figure["layout"]
    few = with_few_bands(figure["data"])
    traces = [{**trace, "x": numbers(trace.get("x")), "y": numbers(trace.get("y"))} for trace in few]
    named = layout.get("yaxis", {}).get("ticktext") or [""]
    left = max(LEFT, LETTER * (max(map(len, named)) + 1))
    margin = 0.06 if all(trace.get("mode") == "markers" for trace in traces) else 0.0
    across, up = [trace["x"] for trace in traces], [part for trace in traces for part in _with_errors(trace)]
    right = WIDTH - RIGHT - (BAR_ROOM if any(trace.get("type") == "heatmap" for trace in traces) else 0)
    x = _axis(layout.get("xaxis", {}), across, left, right, margin)
    y = _axis(layout.get("yaxis", {}), up, HEIGHT - BOTTOM, TOP, margin)
    if layout.get("yaxis", {}).get("scaleanchor"):
        x, y = _equal(x, y)
    lines, marks = [], []
    before: dict[str, Any] | None = None
    symbols = SYMBOLS if len(traces) <= MANY_TRACES else FEW_SYMBOLS
    for trace in traces:
        if trace.get("type") == "heatmap":
            lines.append(_heat_map(trace, x, y))
            marks.append(_color_scale(trace, x.end))
        elif min(len(trace["x"]), len(trace["y"])):
            lines.append(_lines(trace, before, x, y))
            marks.append(_marks(trace, x, y, symbols))
        before = trace
    clip = f'<clipPath id="f"><rect x="{left}" y="{TOP}" width="{x.end - left}" height="{y.start - TOP}"/></clipPath>'
    drawn = f'<g clip-path="url(#f)" fill="none">{"".join(lines)}</g>{"".join(marks)}'
    names = "".join(
        f"<li>{_sample(trace)}<bdi>{Markup(_plain(trace['name']))}</bdi></li>"
        for trace in traces
        if trace.get("name") and trace.get("showlegend") is not False and layout.get("showlegend") is not False
    )
    return Markup(
        f'<div class="still"><svg viewBox="0 0 {WIDTH} {HEIGHT}">{clip}{_grid(layout, x, y)}{drawn}</svg>'
        f"{f'<ul>{names}</ul>' if names else ''}</div>"
    )


def _with_errors(trace: Mapping[str, Any]) -> list[Floats]:
    """Return a trace's values, and the ends of its error bars if it has any."""
    errors = numbers((trace.get("error_y") or {}).get("array"))
    return [trace["y"], trace["y"] - errors, trace["y"] + errors] if len(errors) else [trace["y"]]


def _axis(layout: Mapping[str, Any], values: Sequence[Floats], start: float, end: float, margin: float) -> Axis:
    """Return an axis over these values.

    Args:
        margin: a share of the range that is left free at either end, so that no symbol is cut off.
    """
    logarithmic = layout.get("type") == "log"
    drawn = np.concatenate([array.ravel() for array in values]) if values else np.zeros(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.log10(drawn) if logarithmic else drawn
    drawn = drawn[np.isfinite(drawn)]
    low, high = (float(drawn.min()), float(drawn.max())) if len(drawn) else (0.0, 1.0)
    low, high = low - margin * (high - low), high + margin * (high - low)
    if layout.get("rangemode") == "tozero" and not logarithmic:
        low, high = min(low, 0.0), max(high, 0.0)
    if given_range := layout.get("range"):
        low, high = (float(bound) for bound in given_range)
    elif low == high:
        low, high = low - 0.5, high + 0.5
    if layout.get("autorange") == "reversed":
        low, high = high, low
    ticks = zip(layout.get("tickvals", ()), map(_plain, layout.get("ticktext", ())), strict=True)
    return Axis(low, high, logarithmic, start, end, [*ticks])


def _equal(x: Axis, y: Axis) -> tuple[Axis, Axis]:
    """Return the axes with the same scale: a narrower x axis or, if it is too wide for that, a longer y axis."""
    across, up = ((axis.end - axis.start) / ((axis.high - axis.low) or 1) for axis in (x, y))
    if across >= -up:
        return replace(x, end=x.start - up * (x.high - x.low)), y
    middle, reach = (y.low + y.high) / 2, (y.start - y.end) / across / 2
    return x, replace(y, low=middle - reach, high=middle + reach)


def _grid(layout: Mapping[str, Any], x: Axis, y: Axis) -> str:
    bottom, left, right = HEIGHT - BOTTOM, x.start, x.end
    parts = [f'<path class="frame" d="M{left:g} {TOP}V{bottom}H{right}"/>']
    for spot, text in x.ticks():
        parts.append(f'<path class="grid" d="M{spot:.1f} {TOP}V{bottom}"/>')
        beside = min(spot, WIDTH - DIGIT * len(text) / 2)  # the last number would leave the picture
        parts.append(f'<text x="{beside:.1f}" y="{bottom + 32}" text-anchor="middle">{text}</text>')
    rows = y.ticks()
    size = min(26, round(0.9 * (bottom - TOP) / len(rows))) if rows else 26  # else the names of rows would overlap
    for spot, text in rows:
        parts.append(f'<path class="grid" d="M{left:g} {spot:.1f}H{right}"/>')
        parts.append(
            f'<text x="{left - 12:g}" y="{spot + size / 3:.1f}" text-anchor="end" style="font-size:{size}px">'
            f"{text}</text>"
        )
    titles = [str(layout.get(axis, {}).get("title", {}).get("text", "")) for axis in ("xaxis", "yaxis")]
    parts.append(f'<text x="{(left + right) / 2}" y="{HEIGHT - 16}" text-anchor="middle">{_plain(titles[0])}</text>')
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text transform="rotate(-90 28 {middle})" x="28" y="{middle}" text-anchor="middle">{_plain(titles[1])}</text>'
    )
    return "".join(parts)


def _plain(text: Any) -> str:
    """Return a Plotly text, which is markup with escaped names, without tags."""
    return str(escape(Markup(re.sub(r"</?(?:sub|sup|b|i|br)>", "", str(text))).unescape()))


def _color(part: Mapping[str, Any] | None, fallback: str = "#888888") -> str:
    value = (part or {}).get("color")
    return value if isinstance(value, str) and SAFE_COLOR.fullmatch(value) else fallback


def _lines(trace: Mapping[str, Any], before: Mapping[str, Any] | None, x: Axis, y: Axis) -> str:
    """Return a trace's line, and the area between it and the trace before it."""
    line = trace.get("line") or {}
    turns = _turns(*_spots(trace, x, y))
    parts = []
    if trace.get("fill") == "tonexty" and before is not None and len(before["x"]):
        other = _turns(*_spots(before, x, y))
        shape = path(*(np.concatenate((below, above[::-1])) for below, above in zip(turns, other, strict=True)))
        parts.append(f'<path fill="{_color({"color": trace.get("fillcolor")}, "none")}" d="{shape}Z"/>')
    width = line.get("width", 2)
    if "lines" in (trace.get("mode") or "lines") and width:
        dash = DASHES.get(str(line.get("dash")), "")
        pen = f'stroke="{_color(line, _color(trace.get("marker")))}" stroke-width="{SCALE * float(width):g}"'
        pen += f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path {pen} d="{path(*turns)}"/>')
    return "".join(parts)


def _marks(trace: Mapping[str, Any], x: Axis, y: Axis, symbols: int) -> str:
    """Return a trace's symbols and error bars, which are drawn over all lines.

    Args:
        symbols: the most symbols per line; points without a line have one each.
    """
    marker, mode = trace.get("marker") or {}, trace.get("mode") or "lines"
    color, spots = _color(trace.get("line"), _color(marker)), _spots(trace, x, y)
    parts = []
    if "markers" in mode:
        _, *ends = _with_errors(trace)
        if ends:
            bars = zip(spots[0], *(y.locate(end) for end in ends), strict=True)
            drawn = "".join(
                f"M{a:.0f} {low:.0f}V{high:.0f}" for a, low, high in bars if np.isfinite((a, low, high)).all()
            )
            parts.append(f'<path stroke="{_color(marker, color)}" stroke-width="{SCALE}" d="{drawn}"/>')
        most = min(symbols, int(marker["maxdisplayed"])) if marker.get("maxdisplayed") else len(spots[0])
        every = -(-len(spots[0]) // most)
        points = zip(range(0, len(spots[0]), every), *(axis[::every].tolist() for axis in spots), strict=True)
        shown = [point for point in points if all(map(math.isfinite, point))]
        parts.append(markers(marker, shown, _color(marker, color), SCALE))
    return "".join(parts)


def _spots(trace: Mapping[str, Any], x: Axis, y: Axis) -> tuple[Floats, Floats]:
    """Return the places of a trace's points in the picture; heights far outside are clipped."""
    length = min(len(trace["x"]), len(trace["y"]))
    return x.locate(trace["x"][:length]), np.clip(y.locate(trace["y"][:length]), -FAR, FAR)


def _turns(across: Floats, up: Floats) -> tuple[Floats, Floats]:
    """Return the points at which a line has to turn."""
    chosen = visible(across, up)
    return across[chosen], up[chosen]


def _sample(trace: Mapping[str, Any]) -> str:
    """Return a sample of a line for the legend, 56 by 20 units; the style sheet sets its line width and halves it."""
    line, marker = trace.get("line") or {}, trace.get("marker") or {}
    dash = DASHES.get(str(line.get("dash")), "")
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    stroke, mode = _color(line, _color(marker)), trace.get("mode") or "lines"
    drawn = f'<path stroke="{stroke}"{dashes} d="M0 10H56"/>' if "lines" in mode else ""
    if "markers" in mode and not isinstance(marker.get("symbol"), list | tuple):
        drawn += markers({**marker, "size": 8}, [(0, 28, 10)], _color(marker, stroke), SCALE)
    return f"<svg>{drawn}</svg>"


def _map_values(trace: Mapping[str, Any]) -> tuple[Floats, float, float]:
    """Return the values of a map, and those of the two ends of its colours."""
    values = (
        np.atleast_2d(numbers(trace["z"]))
        if isinstance(trace["z"], Mapping)
        else np.array([[np.nan if value is None else value for value in row] for row in trace["z"]], dtype=float)
    )
    low, high = (float(trace.get(name, bound(values))) for name, bound in (("zmin", np.nanmin), ("zmax", np.nanmax)))
    return values, low, high


def _color_scale(trace: Mapping[str, Any], right: float) -> str:
    """Return the colours of a map next to its right end, with their values and the name of the scale."""
    _, low, high = _map_values(trace)
    data = base64.b64encode(_png(viridis(np.arange(256) / 255)[::-1, np.newaxis])).decode()
    left, middle = right + 24, (TOP + HEIGHT - BOTTOM) / 2
    parts = [
        f'<image class="scale" x="{left:g}" y="{TOP}" width="{BAR}" height="{HEIGHT - TOP - BOTTOM}" '
        f'preserveAspectRatio="none" href="data:image/png;base64,{data}"/>'
    ]
    for spot, text in Axis(low, high, False, HEIGHT - BOTTOM, TOP).ticks():
        parts.append(f'<text x="{left + BAR + 8:g}" y="{spot + 9:.1f}">{text}</text>')
    if title := ((trace.get("colorbar") or {}).get("title") or {}).get("text"):
        across = WIDTH - 8
        parts.append(
            f'<text transform="rotate(-90 {across} {middle})" x="{across}" y="{middle}" text-anchor="middle">'
            f"{_plain(title)}</text>"
        )
    return "".join(parts)


def _heat_map(trace: Mapping[str, Any], x: Axis, y: Axis) -> str:
    values, low, high = _map_values(trace)
    share = np.clip((values - low) / ((high - low) or 1), 0, 1)
    table = np.vstack([viridis(np.arange(256) / 255), np.full((1, 3), 255, dtype=np.uint8)])
    pixels = table[np.where(np.isfinite(share), np.nan_to_num(share) * 255, 256).astype(int)]
    pixels = pixels if y.low > y.high else pixels[::-1]
    data = base64.b64encode(_png(pixels)).decode()
    return (
        f'<image x="{x.start:g}" y="{TOP}" width="{x.end - x.start:g}" height="{HEIGHT - TOP - BOTTOM}" '
        f'preserveAspectRatio="none" href="data:image/png;base64,{data}"/>'
    )


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return pixels `[rows, columns, 3]` as a PNG file."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows, columns, _ = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
