"""Draw small SVG pictures: the curves behind a claim, a measured versus a published number, and a gated number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from orthobench.analysis.by_length import HELD
from orthobench.analysis.claims import ClaimResult
from orthobench.analysis.claims.claim import ModelClaim
from orthobench.analysis.claims.gradients import VectorClaim
from orthobench.analysis.conditions import VariantData
from orthobench.reporting.account.abilities import AbilityCell, Member
from orthobench.reporting.account.regressions import GatedNumber
from orthobench.reporting.account.verdict_sheet import Dot
from orthobench.reporting.figures.decimate import thinned
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.styles import GREY, PALETTE

WIDTH, HEIGHT = 480, 112
GATE_HEIGHT, MARGIN = 130, 14
LINE_POINTS = 120
"""The most points of a line in a picture, one for every fourth unit of its width."""
LINES, RIVAL_LINES = 5, 2
"""Numbers of seeds to draw for each model of a claim, and for each model with which it is compared."""
REACH = 4.0
"""Tolerances that a dot plot shows on each side of the published value; numbers beyond become arrows at the edge, and
intervals that go beyond end in arrowheads."""
STRIP_WIDTH, STRIP_HEIGHT, AXIS, NEAR = 112, 22, 17, 3.0
"""Of a strip of scores: its size, the height of its axis, and the distance within which dots are stacked."""
SKETCH_WIDTH, SKETCH_HEIGHT, DECADES, LETTER = 300, 118, 5, 5.4
"""Of a sketch: its size, the number of decades between two lines, and the width of a letter."""
Line = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def spark(result: ClaimResult) -> Markup:
    """Draw the metric of a claim for a few seeds of each model, the others in grey; empty for a computation."""
    claim = result.claim
    if not isinstance(claim, ModelClaim):
        return Markup()
    lines = [
        *((line, "rival") for variant in result.rivals for line in _lines(claim, variant)[:RIVAL_LINES]),
        *((line, "own") for variant in result.own for line in _lines(claim, variant)[:LINES]),
    ]
    if not lines:
        return Markup()
    run, is_vector = result.own[0].run, isinstance(claim, VectorClaim)
    level = None if claim.named else run.baselines.get(run.metric)
    names = ", ".join(dict.fromkeys(variant.label for variant in result.own))
    others = ", ".join(dict.fromkeys(variant.label for variant in result.rivals))
    what = claim.named or " ".join(claim.logged(result.own[0]))
    caption = f"{what} of {names}{f'; grey: {others}' if others else ''}{'; dashed: the baseline' if level else ''}"
    clip = run.main_metric.goal == "min" and not is_vector
    return _spark(lines, caption, logarithmic=is_vector, level=level, clip=clip)


def _lines(claim: ModelClaim, variant: VariantData) -> list[Line]:
    """Return the claim's curve of every finished run, or the last logged vector of each."""
    if isinstance(claim, VectorClaim):
        return [(np.arange(1.0, 1 + len(vector)), vector) for vector in claim.vectors(variant)]
    return _metric_lines(variant, *claim.logged(variant))


def _metric_lines(variant: VariantData, split: str, name: str) -> list[Line]:
    curves = variant.curves_of_runs(split, name).values()
    return [(iterations.astype(float), values) for iterations, values in curves if len(values) > 1]


def _spark(
    lines: Sequence[tuple[Line, str]], caption: str, logarithmic: bool, level: float | None, clip: bool
) -> Markup:
    """Draw lines in a frame that fits their range.

    Args:
        lines: x and y of each line, and the class of its colour.
        level: the baseline, dashed.
        clip: whether to end the range half above the baseline, because an untrained model may be far off.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = [((x, np.log10(y) if logarithmic else y), kind) for (x, y), kind in lines]
    everything = np.concatenate([y[np.isfinite(y)] for (_, y), _ in drawn])
    across = np.concatenate([x for (x, _), _ in drawn])
    if not len(everything):
        return Markup()
    low, high = float(everything.min()), float(everything.max())
    if level is not None:
        low, high = min(low, level, 0.0 if clip else low), max(high, level)
        high = min(high, 1.5 * level) if clip and level > 0 else high
    left, right = float(across.min()), float(across.max())

    def locate(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> Line:
        part = np.clip((y - low) / ((high - low) or 1), 0, 1)
        return 4 + (x - left) / ((right - left) or 1) * (WIDTH - 8), HEIGHT - 6 - part * (HEIGHT - 12)

    paths = []
    if level is not None:
        height = float(locate(np.zeros(1), np.array([level]))[1][0])
        paths.append(f'<path class="level" d="M4 {height:.0f}H{WIDTH - 4}"/>')
    for (x, y), kind in drawn:
        across, up = locate(x, y)
        chosen = thinned(up, LINE_POINTS)
        paths.append(f'<path class="{kind}" d="{path(across[chosen], up[chosen])}"/>')
    return Markup(
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(caption)}">'
        f"<title>{escape(caption)}</title>{''.join(paths)}</svg>"
    )


def path(x: Sequence[float] | npt.NDArray[np.float64], y: Sequence[float] | npt.NDArray[np.float64]) -> str:
    """Return the data of an SVG path through these points, in whole units, with a gap where a value is not finite."""
    parts, before = [], (0, 0)
    is_down = False
    for along, up in zip(np.asarray(x, float).tolist(), np.asarray(y, float).tolist(), strict=True):
        if not (math.isfinite(along) and math.isfinite(up)):
            is_down = False
            continue
        at = round(along), round(up)
        if not is_down:
            parts.append(f"M{at[0]} {at[1]}")
        elif at != before:
            right, down = at[0] - before[0], at[1] - before[1]
            parts.append(f"l{right}{down if down < 0 else f' {down}'}")
        before, is_down = at, True
    return "".join(parts)


def dot_plot(dot: Dot) -> Markup:
    """Draw the difference from the published value in tolerances, with its 90 % interval; hollow for one seed."""
    middle, scale = WIDTH / 2, (WIDTH / 2 - 16) / REACH

    def at(offset: float) -> float:
        return middle + max(-REACH, min(REACH, offset)) * scale

    parts = [
        f'<rect class="band" x="{at(-1):.1f}" width="{2 * scale:.1f}" y="2" height="36"/>',
        f'<path class="level" d="M{middle:.1f} 0V40"/>',
    ]
    if dot.low is not None and dot.high is not None:
        parts.append(f'<path class="whisker" d="M{at(dot.low):.1f} 20H{at(dot.high):.1f}"/>')
        if dot.low < -REACH <= dot.offset:
            parts.append('<path class="whisker" d="M16 11L4 20L16 29M4 20H16"/>')
        if dot.high > REACH >= dot.offset:
            parts.append(
                f'<path class="whisker" d="M{WIDTH - 16} 11L{WIDTH - 4} 20L{WIDTH - 16} 29M{WIDTH - 4} 20h-12"/>'
            )
    if abs(dot.offset) > REACH:
        tip, back = (WIDTH - 2, WIDTH - 20) if dot.offset > 0 else (2, 20)
        parts.append(f'<path class="dot" d="M{back} 10L{tip} 20L{back} 30Z"/>')
    else:
        hollow = " hollow" if dot.is_single else ""
        parts.append(f'<circle class="dot{hollow}" cx="{at(dot.offset):.1f}" cy="20" r="9"/>')
    interval = "" if dot.low is None else f" [{dot.low:+.2g}, {dot.high:+.2g}]"
    caption = f"tolerances from the published value: {dot.offset:+.2g}{interval}"
    return Markup(
        f'<svg class="dots" viewBox="0 0 {WIDTH} 40" role="img" aria-label="{escape(caption)}">'
        f"<title>{escape(caption)}</title>{''.join(parts)}</svg>"
    )


def draw_gate(number: GatedNumber) -> Markup:
    """Draw the means over the checks, with the range over seeds, the baseline, and the band of what passes."""
    checks = number.checks
    values = [value for check in checks for value in (*check.finding["now"], check.baseline, check.limit)]
    finite = [value for value in values if value is not None]
    if not finite:
        return Markup()
    low, high = min(finite), max(finite)
    step = (WIDTH - 2 * MARGIN) / max(1, len(checks))

    def across(place: float) -> str:
        return f"{MARGIN + (place + 0.5) * step:.1f}"

    def up(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return GATE_HEIGHT - MARGIN - share * (GATE_HEIGHT - 2 * MARGIN)

    parts = []
    for place, check in enumerate(checks):  # the bands first, so that no mark is under one
        if check.baseline is None:
            continue
        if check.limit is not None:
            best = GATE_HEIGHT - MARGIN if check.finding["direction"] == "min" else MARGIN
            top, bottom = sorted((best, up(check.limit)))
            left = MARGIN + place * step
            parts.append(
                f'<rect class="band" x="{left:.1f}" y="{top:.1f}" width="{step:.1f}" height="{bottom - top:.1f}"/>'
            )
        height = f"{up(check.baseline):.1f}"
        parts.append(f'<path class="level" d="M{across(place - 0.5)} {height}H{across(place + 0.5)}"/>')
    for place, check in enumerate(checks):
        if check.now is None:
            continue
        seeds = check.finding["now"]
        parts.append(f'<path class="whisker" d="M{across(place)} {up(min(seeds)):.1f}V{up(max(seeds)):.1f}"/>')
        kind, radius = ("worse", 7) if check.is_worse else ("dot", 4)
        mark = f'<circle class="{kind}" cx="{across(place)}" cy="{up(check.now):.1f}" r="{radius}"/>'
        parts.append(f"<g><title>{escape(check.words)}</title>{mark}</g>")
    name = escape(f"{number.run}, {number.metric}: {number.newest.words}")
    return Markup(
        f'<svg class="gate" viewBox="0 0 {WIDTH} {GATE_HEIGHT}" role="img" aria-label="{name}">{"".join(parts)}</svg>'
    )


def strip(cell: AbilityCell) -> Markup:
    """Draw the scores of a family on a task from 0 to 100, with a dashed line at 90, as dots that are stacked if near.

    The best member has a large dot with a bar from its lowest to its highest seed. Dots of fewer than three seeds are
    hollow. Scores below 0 are at 0.
    """
    best, others = cell.best, cell.members[1:]

    def across(score: float) -> float:
        return 5 + max(0.0, min(1.0, score)) * (STRIP_WIDTH - 10)

    heights: dict[int, list[int]] = {}
    for number, member in enumerate(others):
        heights.setdefault(round(across(member.cell.score) / NEAR), []).append(number)
    dots = []
    for place, stack in heights.items():
        bottom = AXIS - (5.5 if abs(place * NEAR - across(best.cell.score)) < 2 * NEAR else 0)
        step = min(3.2, (bottom - 2) / len(stack))
        dots += [
            f'<circle class="rest{_hollow(others[number])}" cx="{place * NEAR:.1f}" '
            f'cy="{bottom - level * step:.1f}" r="1.5"/>'
            for level, number in enumerate(stack)
        ]
    ends = f"M{across(best.cell.low):.1f} {AXIS}H{across(best.cell.high):.1f}"
    names = ", ".join(f"{each.label} {round(100 * each.cell.score)}" for each in cell.members)
    return Markup(
        f'<svg class="members" viewBox="0 0 {STRIP_WIDTH} {STRIP_HEIGHT}" width="{STRIP_WIDTH}" '
        f'height="{STRIP_HEIGHT}" aria-hidden="true"><title>{escape(names)}</title>'
        f'<path class="axis" d="M5 {AXIS}H{STRIP_WIDTH - 5}"/><path class="limit" d="M{across(HELD):.1f} 3V21"/>'
        f'{"".join(dots)}<path class="range" d="{ends}"/>'
        f'<circle class="best{_hollow(best)}" cx="{across(best.cell.score):.1f}" cy="{AXIS}" r="4"/></svg>'
    )


def _hollow(member: Member) -> str:
    return " hollow" if member.cell.has_few_seeds else ""


def sketch(figure: Figure) -> Markup:
    """Draw the lines of a figure with models and logarithmic values, each named where its values begin."""
    lines = [
        (trace["name"], np.asarray(trace["x"], float), np.asarray(trace["y"], float), trace["line"]["color"])
        for trace in figure.data
        if trace.get("mode", "").startswith("lines+") and trace.get("meta", {}).get("model")
    ]
    positive = [(name, x[y > 0], np.log10(y[y > 0]), color) for name, x, y, color in lines if (y > 0).any()]
    if not positive:
        return Markup()
    left, right = min(x.min() for _, x, _, _ in positive), max(x.max() for _, x, _, _ in positive)
    low = DECADES * math.floor(min(y.min() for *_, y, _ in positive) / DECADES)
    high = DECADES * math.ceil(max(y.max() for *_, y, _ in positive) / DECADES)

    def across(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(34 + (x - left) / (right - left) * (SKETCH_WIDTH - 44), float)

    def up(y: npt.NDArray[np.float64] | float) -> npt.NDArray[np.float64]:
        return np.asarray(8 + (high - np.asarray(y)) / (high - low) * (SKETCH_HEIGHT - 26), float)

    parts = []
    for power in range(low, high + 1, DECADES):
        parts.append(f'<path class="grid" d="M34 {up(power):.1f}H{SKETCH_WIDTH - 10}"/>')
        exponent = f'<tspan dy="-4" font-size="7">{power}</tspan>' if power else ""
        text = f"10{exponent}" if power else "1"
        parts.append(f'<text class="tick" x="30" y="{up(power) + 3:.1f}" text-anchor="end">{text}</text>')
    for name, x, y, color in positive:
        at, heights = across(x), up(y)
        chosen = thinned(heights, LINE_POINTS)
        style = f"var(--model-{[*PALETTE, GREY].index(color)})"
        parts.append(f'<path class="line" style="stroke: {style}" d="{path(at[chosen], heights[chosen])}"/>')
        words = f"{escape(name)}, {10 ** y[0]:.0e} at step {x[0]:.0f}".replace("e-0", "e-")
        right_of, below = (12, 4) if at[0] > SKETCH_WIDTH / 4 else (2, 13)
        start = float(at[0]) + right_of
        if start + LETTER * len(words) > SKETCH_WIDTH:  # it ends at the edge then, below its line
            start, below = max(0.0, SKETCH_WIDTH - LETTER * len(words)), 13
        parts.append(f'<text x="{start:.0f}" y="{heights[0] + below:.0f}" style="fill: {style}">{words}</text>')
    foot = f'y="{SKETCH_HEIGHT - 2}"'
    parts.append(f'<text class="tick" x="34" {foot}>step {left:.0f}, the first input</text>')
    parts.append(
        f'<text class="tick" x="{SKETCH_WIDTH - 8}" {foot} text-anchor="end">step {right:.0f}, the answer</text>'
    )
    names = ", ".join(name for name, *_ in positive)
    return Markup(
        f'<svg class="sketch" viewBox="0 0 {SKETCH_WIDTH} {SKETCH_HEIGHT}" role="img" '
        f'aria-label="The size of the gradient at each step: {escape(names)}">{"".join(parts)}</svg>'
    )
