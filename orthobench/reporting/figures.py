"""Draw the figures with Plotly. They have no ground colour: the page gives them its light or dark one."""

from __future__ import annotations

import html
from collections.abc import Iterator

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.reporting.decimate import thinned
from orthobench.reporting.styles import Style, Styles

GATES = frozenset(["W_i", "W_f", "W_g", "W_o", "W_r", "W_z", "W_y", "W_1", "W_2", "A"])
"""Matrices inside gates and derivatives (`Model.step_matrices`), which runs of earlier versions have as well."""
TOTAL_DERIVATIVE = (
    "It is the total derivative: that by an LSTM's c at step t counts its paths through h at step t and through all "
    "later steps."
)


def learning_curves(condition: Condition, styles: Styles) -> go.Figure:
    """Draw the test metric over epochs: the mean over seeds, in a band from the lowest seed to the highest."""
    figure = empty_figure("epoch", f"test {condition.metric.axis}")
    last = 0.0
    for variant, style in styled(condition, styles, figure):
        test = variant.series("test", condition.metric.name)
        band = over_seeds(test)
        if band.empty:
            continue
        epochs = band.index.to_numpy() / variant.run.iterations_per_epoch
        last = max(last, float(epochs[-1]))
        add_band(figure, epochs, band, variant.label, style)
    figure.update_xaxes(range=[0, last or 1])
    if condition.baseline is not None:
        if condition.metric.goal == "min":  # an untrained model is often far off and would flatten everything else
            figure.update_yaxes(range=[0, 2.5 * condition.baseline])
        figure.add_scatter(
            x=[0, last],
            y=[condition.baseline] * 2,
            mode="lines",
            name=f"baseline {condition.baseline:.4g}",
            line={"dash": "dash", "width": 1.5, "color": "#888888"},
        )
    return figure


def orthogonality(condition: Condition, styles: Styles) -> go.Figure | None:
    """Draw ||W^T W - I||_F over epochs on a log scale, for each matrix of a step; None without data."""
    figure = empty_figure("epoch", "‖WᵀW − I‖<sub>F</sub>", logarithmic=True)
    for variant, style in styled(condition, styles, figure):
        for matrix, rows in step_matrices(variant, "orthogonality"):
            band = over_seeds(rows)
            label = variant.label if matrix == "W" else f"{variant.label} {matrix}"
            add_band(figure, band.index.to_numpy() / variant.run.iterations_per_epoch, band, label, style)
    return figure if figure.data else None


def step_matrices(variant: VariantData, probe: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and the probe's values of each matrix by which a step of the model multiplies the state."""
    probed = variant.curves[variant.curves["name"].str.startswith(f"{probe}/")]
    for name, rows in probed.groupby("name"):
        matrix = str(name).partition("/")[2]
        if matrix not in GATES:
            yield matrix, rows


def gradient_norms(condition: Condition, styles: Styles) -> go.Figure | None:
    """Draw ||dL/dh_t||_F over the steps, mean over seeds: dotted before training, solid after; None without data."""
    figure = empty_figure("step t", "‖∂L/∂h<sub>t</sub>‖<sub>F</sub>", logarithmic=True)
    for variant, style in styled(condition, styles, figure):
        traced = variant.traces[variant.traces["name"].str.startswith("gradient_norm/")]
        for name, rows in traced.groupby("name"):
            state = str(name).partition("/")[2]
            for moment, dash in ((rows["iteration"].min(), "dot"), (rows["iteration"].max(), style.dash)):
                vectors = pd.DataFrame(rows[rows["iteration"] == moment]["values"].tolist()).astype(np.float32)
                epoch = moment / variant.run.iterations_per_epoch
                figure.add_scatter(
                    x=np.arange(1, vectors.shape[1] + 1),
                    y=vectors.mean().to_numpy(),
                    mode="lines",
                    name=html.escape(f"{variant.label} {state}, epoch {epoch:.3g}"),
                    line={"color": style.color, "dash": dash, "width": 1.6 if state == "h" else 1.0},
                )
    return figure if figure.data else None


def pareto(condition: Condition, styles: Styles, cost: str) -> go.Figure | None:
    """Draw the end of the test metric over "parameters" or "seconds per epoch"; None for fewer than two variants."""
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
            marker={
                "color": style.color,
                "symbol": f"{style.marker}-open" if style.marker else style.symbol,
                "size": 11,
            },
            name=html.escape(variant.label),
        )
    if len(figure.data) < 2:
        return None
    figure.update_xaxes(type="log")
    return figure.update_layout(hovermode="closest")


def styled(condition: Condition, styles: Styles, *figures: go.Figure) -> Iterator[tuple[VariantData, Style]]:
    """Yield the variants with their styles, and mark traces that the caller adds meanwhile as the variant's."""
    for variant in condition.variants:
        before = [len(figure.data) for figure in figures]
        yield variant, styles.of(condition, variant)
        owner = {"label": variant.label, "model": variant.run.model, "tags": variant.tags}
        for figure, count in zip(figures, before, strict=True):
            for trace in figure.data[count:]:
                trace.meta = owner


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean, minimum, maximum and count over seeds, by iteration, of the finite values."""
    finite = rows[np.isfinite(rows["value"].astype(float))]
    return finite.groupby("iteration")["value"].agg(["mean", "min", "max", "count"])


def add_band(figure: go.Figure, x: np.ndarray, band: pd.DataFrame, label: str, style: Style) -> None:
    """Add the mean over seeds and its band, thinned to the points that a screen can show."""
    name = html.escape(label)
    seeds = band["count"].max()
    points = thinned([band[column] for column in (("mean", "min", "max") if seeds > 1 else ("mean",))])
    x, band = x[points].astype(np.float32), band.iloc[points].astype(np.float32)
    if seeds > 1:
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "legendgroup": name}
        figure.add_scatter(x=x, y=band["max"].to_numpy(), **edge)
        figure.add_scatter(x=x, y=band["min"].to_numpy(), fill="tonexty", fillcolor=style.band, **edge)
    marker = {"symbol": style.marker, "size": 7, "maxdisplayed": 9} if style.marker else None
    figure.add_scatter(
        x=x,
        y=band["mean"].to_numpy(),
        mode="lines+markers" if marker else "lines",
        marker=marker,
        name=name,
        legendgroup=name,
        line={"color": style.color, "dash": style.dash, "width": 2},
    )


def empty_figure(x_title: str, y_title: str, logarithmic: bool = False) -> go.Figure:
    """Return a figure with these axes; `logarithmic` is of the y axis."""
    y_axis = {"title": {"text": y_title}, "exponentformat": "power", "automargin": True}
    if logarithmic:
        y_axis["type"] = "log"
    else:
        y_axis["rangemode"] = "tozero"
    return go.Figure(
        layout={
            "template": "none",
            "xaxis": {"title": {"text": x_title}, "automargin": True},
            "yaxis": y_axis,
            "hovermode": "x unified",
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
            "showlegend": True,
            "margin": {"l": 60, "r": 16, "t": 24, "b": 48},
        }
    )
