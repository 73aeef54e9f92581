"""Draw the marker symbols of Plotly's figures as SVG paths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

Point = tuple[float, float]


def _star() -> list[Point]:
    """Return the corners of a five-pointed star."""
    angles = [math.pi * (corner / 5 - 0.5) for corner in range(10)]
    lengths = [1.3, 0.55] * 5
    return [(length * math.cos(angle), length * math.sin(angle)) for angle, length in zip(angles, lengths, strict=True)]


def _pentagon() -> list[Point]:
    """Return the corners of a pentagon."""
    angles = [math.pi * (0.4 * corner - 0.5) for corner in range(5)]
    return [(1.2 * math.cos(angle), 1.2 * math.sin(angle)) for angle in angles]


POLYGONS: Mapping[str, Sequence[Point]] = {
    "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
    "triangle-up": [(0, -1.2), (1.15, 0.8), (-1.15, 0.8)],
    "triangle-right": [(1.2, 0), (-0.8, 1.15), (-0.8, -1.15)],
    "arrow-up": [(0, -1.2), (0.9, 0.8), (0, 0.3), (-0.9, 0.8)],
    "cross": [
        (-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4),
        (0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4),
    ],
    "pentagon": _pentagon(),
    "star": _star(),
}  # fmt: skip
"""Corners of each symbol around its centre; the second coordinate points down; a square's half side is 1."""
STROKES: Mapping[str, Sequence[tuple[Point, Point]]] = {
    "x-thin": [((-1, -1), (1, 1)), ((-1, 1), (1, -1))],
    "line-ns": [((0, -1.4), (0, 1.4))],
}
"""The lines of symbols without an area."""
DIAGONAL = math.sqrt(0.5)
CROSS = [((-DIAGONAL, -DIAGONAL), (DIAGONAL, DIAGONAL)), ((-DIAGONAL, DIAGONAL), (DIAGONAL, -DIAGONAL))]
"""The lines in a circle of the symbol `circle-x`."""


@cache
def outline(symbol: str, size: float) -> str:
    """Return a symbol as path commands relative to its centre, which is the current point.

    Args:
        symbol: Plotly's name; an unknown name gives a circle.
        size: the symbol's width in units of the picture.
    """
    half = size / 2
    name = symbol.removesuffix("-open")
    if name in STROKES:
        return _strokes(half, STROKES[name], (0.0, 0.0))
    if name in POLYGONS:
        corners = POLYGONS[name]
        sides = pairwise(corners)
        return f"m{_steps(half, (0, 0), corners[0])}" + "".join(f"l{_steps(half, *side)}" for side in sides) + "z"
    circle = f"m{-half:g} 0a{half:g} {half:g} 0 1 0 {size:g} 0a{half:g} {half:g} 0 1 0 {-size:g} 0z"
    return circle + (_strokes(half, CROSS, (-1.0, 0.0)) if name == "circle-x" else "")


def _strokes(half: float, lines: Sequence[tuple[Point, Point]], at: Point) -> str:
    """Return lines as path commands; `at` is the current point, relative to the centre."""
    parts = []
    for start, end in lines:
        parts.append(f"m{_steps(half, at, start)}l{_steps(half, start, end)}")
        at = end
    return "".join(parts)


def _steps(scale: float, start: Point, end: Point) -> str:
    right, down = (round(scale * (to - origin)) for origin, to in zip(start, end, strict=True))
    return f"{right}{down if down < 0 else f' {down}'}"


def markers(marker: Mapping[str, Any], points: Sequence[tuple[int, float, float]], color: str, scale: float) -> str:
    """Return a trace's symbols as SVG: one path for each kind, size and opacity.

    Args:
        marker: Plotly's marker, whose symbol, size and opacity apply to all points or are lists with an entry for each.
        points: the index in the trace and the place in the picture of every drawn symbol.
        color: the SVG colour of the symbols.
        scale: units of the picture per pixel of Plotly's sizes.
    """
    paths: dict[tuple[str, float, float], list[str]] = {}
    for index, across, down in points:
        symbol, size, opacity = (
            value[index] if isinstance(value, list | tuple) else value
            for value in (marker.get("symbol") or "circle", marker.get("size") or 6, marker.get("opacity", 1))
        )
        name, width = str(symbol), scale * float(size)
        kind = name, width, round(float(opacity), 1)
        paths.setdefault(kind, []).append(f"M{across:.0f} {down:.0f}{outline(name, width)}")
    return "".join(
        f'<path {_pen(name, color, scale, opacity)} d="{"".join(shapes)}"/>'
        for (name, _, opacity), shapes in paths.items()
    )


def _pen(symbol: str, color: str, scale: float, opacity: float) -> str:
    faint = f' opacity="{opacity:g}"' if opacity < 1 else ""
    if symbol.endswith("-open") or symbol in STROKES:
        return f'fill="none" stroke="{color}" stroke-width="{1.5 * scale:g}"{faint}'
    return f'fill="{color}"{faint}'
