"""Draw the figures of a condition, each with its caption."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.curves import curve_over_seeds, vector_curve
from orthobench.reporting.captions import caption
from orthobench.reporting.drawing import add_absence, add_baseline, add_curve, cut_above, empty_figure, show_gaps
from orthobench.reporting.figure_record import Figure
from orthobench.reporting.styles import Style, Styles

Drawn = dict[str, tuple[str, Figure]]
"""Captions and figures, by name."""

GATES = frozenset(["W_i", "W_f", "W_g", "W_o", "W_r", "W_z", "W_y", "W_1", "W_2", "A"])
"""Matrices inside gates and derivatives (`Model.step_matrices`), which older runs recorded as well."""
TOTAL_DERIVATIVE = (
    "It is the total derivative: that by an LSTM's c at step t counts its paths through h at step t and through all "
    "later steps."
)
UNDERFLOW = "Gaps: zero in float32; a norm is zero there from about 1e-20 on, where its squares fall below 1.2e-38."
LEVELS = 2.5
"""Multiple of the baseline at which the axis of a minimised metric ends, if every curve gets below it."""
SPLITS = {"test": "test", "valid": "validation", "train": "training"}
NORMS = {
    "gradient_norm": "norm of the whole batch's gradient",
    "gradient_norm_per_sample": "norm of one sample's gradient, mean over the batch",
}
"""The norms that the vectors of the gradient-norm probe hold, in words."""


def condition_figures(condition: Condition, styles: Styles) -> Drawn:
    """Return the figures of a condition that have data, by name."""
    drawings = {
        "curves": (caption("Learning curves", condition, baseline=True), learning_curves(condition, styles)),
        "orthogonality": (
            caption("Distance from orthogonal of the matrix W by which a step multiplies the state", condition),
            orthogonality(condition, styles),
        ),
        "gradients": (
            caption(
                "Gradient of the loss by the state at every step on one batch, before training (thin) and after: "
                f"{NORMS['gradient_norm']}",
                condition,
            )
            + f" {UNDERFLOW} {TOTAL_DERIVATIVE}",
            gradient_norms(condition, styles),
        ),
        "parameters": (
            "Parameters against the end: mean and 95 % interval over the finished seeds.",
            pareto(condition, styles, "parameters"),
        ),
        "seconds": (
            "Training seconds per epoch, where the runs were trained, against the end: means over the finished seeds.",
            pareto(condition, styles, "seconds per epoch"),
        ),
    }
    return {name: (words, figure) for name, (words, figure) in drawings.items() if figure is not None}


def learning_curves(
    condition: Condition, styles: Styles, x: str = "epoch", name: str = "", split: str = "test"
) -> Figure:
    """Draw a metric over epochs or iterations: the median over seeds, in a band from the lowest to the highest seed.

    Args:
        x: "epoch" or "iteration".
        name: the metric; none: the main one.
        split: "test", "valid" or "train".
    """
    metric = condition.metric_named(name)
    figure = empty_figure(x, f"{SPLITS[split]} {metric.axis}")
    last = 0.0
    later = []
    for variant, style in styled(condition, styles, figure):
        rows = variant.series(split, metric.name)
        values = curve_over_seeds(rows, variant.runs)
        if not len(values):
            if len(rows):
                add_absence(figure, variant.label, style)
            continue
        later.append(values.median[len(values) // 2 :])
        positions = values.x / (variant.run.iterations_per_epoch if x == "epoch" else 1)
        last = max(last, float(positions[-1]))
        add_curve(figure, values, positions, variant.label, style)
    figure.update_xaxes(range=[0, last or 1])
    baseline = condition.baseline if metric.name == condition.metric.name else None
    if baseline is not None:
        if metric.goal == "min" and baseline > 0:
            _cut_untrained(figure, later, baseline)
        add_baseline(figure, [0, last], baseline)
    return figure


def _cut_untrained(figure: Figure, later: Sequence[NDArray[np.float64]], baseline: float) -> None:
    """Cut off the first tests, where an untrained model is far off and would flatten everything else.

    The axis covers the later part of every curve. If these parts are far above the baseline and two decades apart, the
    axis is logarithmic and nothing is cut off.

    Args:
        later: the second half of each curve.
    """
    values = np.concatenate([[baseline], *later])
    values = values[np.isfinite(values)]
    top = float(values.max())
    if top <= LEVELS * baseline:
        cut_above(figure, LEVELS * baseline)
    elif values.min() > 0 and top > 100 * values.min():
        figure.update_yaxes(type="log", rangemode="normal")
        show_gaps(figure)
    else:
        cut_above(figure, 1.05 * top)


def orthogonality(condition: Condition, styles: Styles, x: str = "epoch") -> Figure | None:
    """Draw ||W^T W - I||_F over epochs on a log scale, for each matrix of a step; None without data."""
    figure = empty_figure(x, "‖WᵀW − I‖<sub>F</sub>", logarithmic=True)
    for variant, _ in styled(condition, styles, figure):
        for part, (matrix, rows) in enumerate(step_matrices(variant, "orthogonality")):
            values = curve_over_seeds(rows, variant.runs)
            label = variant.label if matrix == "W" else f"{variant.label} {matrix}"
            positions = values.x / (variant.run.iterations_per_epoch if x == "epoch" else 1)
            add_curve(figure, values, positions, label, styles.of(condition, variant, part))
    if not figure.data:
        return None
    show_gaps(figure)
    return figure


def step_matrices(variant: VariantData, probe: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and the probe's values for each matrix by which a step of the model multiplies the state."""
    for split, name in sorted(variant.rows_of, key=lambda series: series[1]):
        kind, _, matrix = name.partition("/")
        if kind == probe and matrix and matrix not in GATES:
            yield matrix, variant.series(split, name)


def gradient_norms(
    condition: Condition,
    styles: Styles,
    moments: tuple[bool, ...] = (False, True),
    norm: str = "gradient_norm",
    states: tuple[str, ...] = (),
) -> Figure | None:
    """Draw the norms of dL/dh_t over the steps, with the median and a band over seeds; None without data.

    Args:
        moments: False for the state before training, True for the last one; of both, the former is drawn thin.
        norm: the vectors to draw (`NORMS`).
        states: the parts of the state to draw; none: all.
    """
    figure = empty_figure("step t", "‖∂L/∂h<sub>t</sub>‖", logarithmic=True)
    for variant, _ in styled(condition, styles, figure):
        traced = variant.traces[variant.traces["name"].str.startswith(f"{norm}/")]
        for part, (name, rows) in enumerate(traced.groupby("name")):
            state = str(name).partition("/")[2]
            if states and state not in states:
                continue
            for last in moments:
                measured = vector_curve(rows, variant.runs, last)
                if measured is None:
                    continue
                epoch = measured[0] / variant.run.iterations_per_epoch
                label = f"{variant.label} {state}, epoch {epoch:.3g}" if len(moments) > 1 else variant.label
                style = styles.of(condition, variant, 0 if states else part)
                add_curve(figure, measured[1], measured[1].x, label, style, plain=len(moments) > 1 and not last)
    if not figure.data:
        return None
    show_gaps(figure)
    return figure


def pareto(condition: Condition, styles: Styles, cost: str) -> Figure | None:
    """Draw the final test metric over "parameters" or "seconds per epoch"; None for fewer than two variants."""
    figure = empty_figure(cost, f"test {condition.metric.axis}")
    for variant, style in styled(condition, styles, figure):
        price = variant.run.parameter_count if cost == "parameters" else variant.seconds_per_epoch
        reached = variant.end
        if price is None or reached is None:
            continue
        figure.add_scatter(
            x=[price if isinstance(price, int) else price.mean],
            y=[reached.mean],
            error_y={"array": [reached.half_width or 0.0], "thickness": 1},
            mode="markers",
            marker={"color": style.color, "symbol": style.symbol, "size": 11},
            name=html.escape(variant.label),
        )
    if len(figure.data) < 2:
        return None
    figure.update_xaxes(type="log")
    figure.update_layout(hovermode="closest")
    return figure


def styled(condition: Condition, styles: Styles, *figures: Figure) -> Iterator[tuple[VariantData, Style]]:
    """Yield the variants with their styles, and label the traces that the caller adds meanwhile with the variant.

    The label also has the trace's legend entry, since each matrix and state of a variant has a separate one.
    """
    for variant in condition.variants:
        before = [len(figure.data) for figure in figures]
        yield variant, styles.of(condition, variant)
        owner = {"model": variant.run.model, "tags": variant.tags}
        for figure, count in zip(figures, before, strict=True):
            for trace in figure.data[count:]:
                trace["meta"] = {"label": html.unescape(trace.get("name") or variant.label), **owner}
