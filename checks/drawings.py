"""Draw the two pictures of ARCHITECTURE.md: `make drawings` writes docs/run.svg and docs/rooms.svg.

The rooms and their arrows come from the table in ARCHITECTURE.md, which a test compares with the imports. The course of
a run is written here, and a test compares it with the files that a run calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from checks.rooms import ROOT, table

RUN, ROOMS = ROOT / "docs" / "run.svg", ROOT / "docs" / "rooms.svg"
COURSE = {
    "from words to a run": [
        ("cli/run.py", "parses the words, and at the end prints the summary"),
        ("api/runs.py", "checks the arguments, finds the plugins"),
        ("spec/resolve.py", "resolves the settings: RunConfig, and the key"),
        ("session/single_run.py", "checks device and folders, opens the database"),
        ("training/lifecycle.py", "looks the key up, takes the lock of the run"),
        ("training/resume.py", "restores the checkpoint, or builds a trainer"),
    ],
    "from a batch to a row": [
        ("training/loop.py", "alternates between iterations and evaluations"),
        ("training/trainer.py", "one iteration: batch, loss, gradient, step"),
        ("recurrence/operation.py", "computes all time steps, on the chosen back end"),
        ("training/events.py", "an evaluation with its values, to every sink"),
        ("training/recording.py", "the first sink: one transaction per event"),
        ("store/store.py", "writes the row: a file, or a server's database"),
    ],
    "from rows to the page": [
        ("store/columns.py", "reads the values of all runs into arrays"),
        ("analysis/logged.py", "orders them: each metric of a run is a slice"),
        ("analysis/conditions.py", "groups runs: seeds into variants, into conditions"),
        ("analysis/curves.py", "median and band over the seeds"),
        ("reporting/figures/figures.py", "the figures of a condition"),
        ("reporting/page/html.py", "the page: figures, tables, claims in one file"),
    ],
}
"""The course of a value from the command to the page: files of the package, each with what it does."""
STYLE = """<style>
text { font: 12px sans-serif; fill: #1f2328; text-anchor: middle }
.small { font-size: 11px; fill: #59636e }
.head { font-weight: bold }
.box { fill: #eef2f7; stroke: #8c96a3 }
.line { fill: none; stroke: #6b7683; stroke-width: 1.1 }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">
<path d="M0 0 8 4 0 8z" fill="#6b7683"/></marker></defs>"""


class Node(NamedTuple):
    """A room, or a bend of a long arrow, whose name is the arrow's and its floor."""

    name: str
    width: float


def course() -> str:
    """Draw the course of a value: one column for each part, from top to bottom and from left to right."""
    wide, high, gap = 300, 44, 22
    parts: list[str] = []
    for column, (title, steps) in enumerate(COURSE.items()):
        left, middle = 20 + column * (wide + 30), 20 + column * (wide + 30) + wide / 2
        parts.append(f'<text class="head" x="{middle:g}" y="26">{title}</text>')
        for row, (file, does) in enumerate(steps):
            top = 44 + row * (high + gap)
            parts += [
                f'<rect class="box" x="{left}" y="{top}" width="{wide}" height="{high}" rx="5"/>',
                f'<text x="{middle:g}" y="{top + 18}">{file}</text>',
                f'<text class="small" x="{middle:g}" y="{top + 35}">{escape(does)}</text>',
            ]
            if row + 1 < len(steps):
                parts.append(_arrow(f"M{middle:g} {top + high}V{top + high + gap}"))
            elif column + 1 < len(COURSE):
                side = left + wide + 15
                parts.append(_arrow(f"M{left + wide} {top + high / 2:g}H{side}V{44 + high / 2:g}H{left + wide + 30}"))
    rows = max(map(len, COURSE.values()))
    size = (20 + len(COURSE) * (wide + 30) - 10, 44 + rows * (high + gap))
    return _svg(*size, parts, "The course of a value from the command to the page")


def rooms(imports: Mapping[str, set[str]]) -> str:
    """Draw the rooms by floor. A room is one floor above the highest room that it imports."""
    arrows = reduced(imports)
    floors, chains = _floors(imports, arrows)
    places = _place(floors, chains)
    left = min(places[node.name] - node.width / 2 for floor in floors for node in floor) - 10
    right = max(places[node.name] + node.width / 2 for floor in floors for node in floor) + 10
    apart, high, parts = 52, 26, list[str]()

    def y(floor: int) -> float:
        return 14 + (len(floors) - 1 - floor) * apart

    for chain, start in chains:
        points = [(places[name] - left, y(start - at)) for at, name in enumerate(chain)]
        path = f"M{points[0][0]:.0f} {points[0][1] + high:g}"
        for (x0, y0), (x1, y1) in pairwise(points):
            bend = (y1 + y0 + high) / 2
            path += f"C{x0:.0f} {bend:g} {x1:.0f} {bend:g} {x1:.0f} {y1:g}"
            if (x1, y1) != points[-1]:
                path += f"V{y1 + high:g}"
        parts.append(_arrow(path))
    for number, floor in enumerate(floors):
        for node in floor:
            if node.name in imports:
                x, top = places[node.name] - left, y(number)
                parts += [
                    f'<rect class="box" x="{x - node.width / 2:.0f}" y="{top}" width="{node.width:g}" height="{high}" '
                    'rx="5"/>',
                    f'<text x="{x:.0f}" y="{top + 17}">{node.name}</text>',
                ]
    drawn, total = sum(map(len, arrows.values())), sum(map(len, imports.values()))
    foot = y(0) + high + 28
    parts.append(
        f'<text class="small" x="{(right - left) / 2:.0f}" y="{foot}">{len(imports)} rooms on {len(floors)} floors; '
        f"{drawn} of {total} arrows, because the others follow from these</text>"
    )
    return _svg(right - left, foot + 14, parts, "The rooms of the package and their imports")


def reduced(imports: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return the transitive reduction: of each room's imports those that none of its other imports reaches."""

    @cache
    def reached(room: str) -> frozenset[str]:
        return frozenset().union(*({name} | reached(name) for name in imports[room]))

    return {
        room: sorted(name for name in names if not any(name in reached(other) for other in names))
        for room, names in imports.items()
    }


def _floors(
    imports: Mapping[str, set[str]], arrows: Mapping[str, Iterable[str]]
) -> tuple[list[list[Node]], list[tuple[list[str], int]]]:
    """Return the nodes of each floor from the ground up, and the arrows as chains of names with their first floor."""

    @cache
    def floor(room: str) -> int:
        return 1 + max((floor(name) for name in imports[room]), default=-1)

    floors: dict[int, list[Node]] = defaultdict(list)
    for room in imports:
        floors[floor(room)].append(Node(room, 18 + 7.2 * len(room)))
    chains = []
    for room, names in arrows.items():
        for name in names:
            bends = [f"{room}-{name}-{at}" for at in range(floor(room) - 1, floor(name), -1)]
            for at, bend in zip(range(floor(room) - 1, floor(name), -1), bends, strict=True):
                floors[at].append(Node(bend, 6))
            chains.append(([room, *bends, name], floor(room)))
    return [floors[number] for number in sorted(floors)], chains


def _place(floors: list[list[Node]], chains: Iterable[tuple[list[str], int]]) -> dict[str, float]:
    """Order each floor by the mean place of its neighbours, sweep by sweep, and return the middle of each node.

    This is the barycentre heuristic of Sugiyama, Tagawa and Toda (1981), with the floors given.
    """
    near: dict[str, list[str]] = defaultdict(list)
    for chain, _ in chains:
        for one, other in pairwise(chain):
            near[one].append(other)
            near[other].append(one)
    places = {node.name: 40.0 * at for floor in floors for at, node in enumerate(floor)}
    for sweep in range(60):
        for floor in floors if sweep % 2 else reversed(floors):
            wished = {node.name: fmean([places[name] for name in near[node.name]] or [0]) for node in floor}
            if sweep < 40:  # the order has settled by then, and the places follow
                floor.sort(key=lambda node: wished[node.name])
            places |= _spread(floor, wished)
    return places


def _spread(floor: list[Node], wished: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield places as near as possible to the wished ones, without overlap: least squares by pooling neighbours."""
    offsets = [0.0]
    for one, other in pairwise(floor):
        offsets.append(offsets[-1] + (one.width + other.width) / 2 + 16)
    pools: list[tuple[float, int]] = []
    for node, offset in zip(floor, offsets, strict=True):
        mean, count = wished[node.name] - offset, 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean, count = (mean * count + before * many) / (count + many), count + many
        pools.append((mean, count))
    starts = [mean for mean, count in pools for _ in range(count)]
    yield from ((node.name, start + offset) for node, start, offset in zip(floor, starts, offsets, strict=True))


def _arrow(path: str) -> str:
    return f'<path class="line" marker-end="url(#tip)" d="{path}"/>'


def _svg(width: float, height: float, parts: Iterable[str], title: str) -> str:
    box = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">\n<title>{title}</title>\n{STYLE}\n'
        f'<rect width="100%" height="100%" rx="6" fill="#fff"/>\n{body}\n</svg>\n'
    )


def drawings() -> dict[Path, str]:
    """Return the content of both files."""
    return {RUN: course(), ROOMS: rooms(table())}


if __name__ == "__main__":
    for path, content in drawings().items():
        path.write_text(content, "utf-8")
