"""Draw the figures of the papers' studies."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.reporting import figures
from orthobench.reporting.figures import add_band, empty_figure, over_seeds, step_matrices, styled
from orthobench.reporting.styles import PALETTE, Style, Styles

Drawn = dict[str, tuple[str, go.Figure]]
"""Captions and figures, by name."""

UNIT_CIRCLE = np.exp(2j * np.pi * np.linspace(0, 1, 181))
GREY = "#888888"


def orthogonality(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the distances from orthogonal in double precision, and as thin dotted lines in the run's own."""
    figure = figures.orthogonality(condition, styles)
    if figure is None:
        return {}
    for variant, style in styled(condition, styles, figure):
        for matrix, rows in step_matrices(variant, "orthogonality_own_precision"):
            band = over_seeds(rows)
            figure.add_scatter(
                x=band.index.to_numpy() / variant.run.iterations_per_epoch,
                y=band["mean"].to_numpy(),
                mode="lines",
                name=html.escape(f"{variant.label} {matrix}, own precision"),
                line={"color": style.color, "dash": "dot", "width": 1},
            )
    what = (
        "distance from orthogonal of the stored matrices, the product in double precision (solid), the run's (dotted)"
    )
    return {figure_name: (_caption(figure_name, what, condition), figure)}


def gradient_norms(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the norms of the gradient by the state at every step."""
    figure = figures.gradient_norms(condition, styles)
    if figure is None:
        return {}
    what = "norm of the loss's gradient by the state at every step, on one batch, before training (dotted) and after"
    what += f". {figures.TOTAL_DERIVATIVE[:-1]}"
    return {figure_name: (_caption(figure_name, what, condition), figure)}


def heat_maps(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw a map for every part of a model's state after training, all over the same range of colours."""
    drawn: Drawn = {}
    for variant, _ in styled(condition, styles):
        maps = {
            str(name).partition("/")[2]: _mean_at_the_end(rows)
            for name, rows in variant.traces[variant.traces["name"].str.startswith("heat_map/")].groupby("name")
        }
        if not maps:
            continue
        highest = np.log10(max(float(values.max()) for values in maps.values()))
        for part, flat in maps.items():
            figure = empty_figure("input step t", "state step τ")
            length = int(np.sqrt(len(flat)))
            values = np.where(flat > 0, flat, np.nan).reshape(length, length)
            steps = list(range(1, length + 1))
            figure.add_heatmap(
                x=steps,
                y=steps,
                z=np.log10(values),
                zmin=highest - 6,
                zmax=highest,
                colorscale="Viridis",
                hovertemplate="input %{x}, state %{y}: 10^%{z:.2f}<extra></extra>",
                colorbar={"title": {"text": "log<sub>10</sub>"}},
            )
            figure.update_yaxes(autorange="reversed", rangemode="normal")
            figure.update_layout(hovermode="closest", showlegend=False)
            what = f"norm of the {part} state's gradient by every input, {variant.label} after training"
            drawn[f"{variant.label} {part}"] = (_caption(figure_name, what, condition), figure)
    return drawn


def sizes(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the test metric over epochs for every size, and the final values over sizes."""
    ordered = sorted(condition.variants, key=_short_size)
    most = max(max(_short_size(variant) for variant in ordered), 1)
    courses = figures.learning_curves(condition, styles)
    courses.data = [trace for trace in courses.data if trace.name and trace.name.startswith("baseline")]
    ends = empty_figure("short-term units", f"test {condition.metric.axis} at the end")
    ends_by_size = []
    for variant in ordered:
        short = _short_size(variant)
        colour = sample_colorscale("Viridis", 0.1 + 0.8 * short / most, colortype="rgb")[0]
        test = variant.series("test", condition.metric.name)
        band = over_seeds(test)
        long = variant.run.spec["model_settings"]["hidden_size"] - short
        courses.add_scatter(
            x=band.index.to_numpy() / variant.run.iterations_per_epoch,
            y=band["mean"].to_numpy(),
            mode="lines",
            name=f"{long} long-term + {short} short-term",
            line={"color": colour, "width": 2},
        )
        ends_by_size += [(short, end.value) for end in variant.ends.values()]
    style = styles.of(condition, ordered[0])
    by_size = pd.DataFrame(ends_by_size, columns=["short", "value"]).groupby("short")["value"]
    points = by_size.agg(["mean", "min", "max", "count"])
    if len(points):
        add_band(ends, points.index.to_numpy(), points, ordered[0].run.model, replace(style, dash="solid"))
        ends.update_traces(mode="lines+markers", selector={"name": ordered[0].run.model})
        ends.update_yaxes(type="log", rangemode="normal")
    constraint = "the long-term state fixed" if figure_name == "figure 6" else "all units fixed"
    what = f"test {condition.metric.label or condition.metric.name} by size, {constraint}"
    return {
        f"{figure_name} curves": (_caption(figure_name, what, condition), courses),
        f"{figure_name} ends": (_caption(figure_name, f"{what}, at the end; band over seeds", condition), ends),
    }


def jacobians(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the eigenvalues' moduli along the sequence, and in the plane: of single steps and of the whole sequence."""
    along = empty_figure("step t", "|λ| of ∂s<sub>t</sub>/∂s<sub>t−1</sub>")
    single, whole = _plane(), _plane()
    for variant, style in styled(condition, styles, along, single, whole):
        _add_moduli(along, variant, style)
        traced = variant.traces[variant.traces["iteration"] == variant.traces["iteration"].max()]
        steps = traced[traced["name"].str.startswith("jacobian/eigenvalues/")]
        _add_cloud(single, list(steps["values"]), variant.label, style)
        _add_cloud(whole, list(traced[traced["name"] == "jacobian/end_to_end"]["values"]), variant.label, style)
    if not along.data:
        return {}
    moduli = "moduli of a step's Jacobian, mean and standard deviation after training; dotted: mean before"
    return {
        "moduli": (_caption(figure_name, moduli, condition), along),
        "steps": (_caption(figure_name, "a step's Jacobian after training, at a few steps", condition), single),
        "whole": (
            _caption(figure_name, "last state by first, over the whole sequence, after training", condition),
            whole,
        ),
    }


DRAWINGS: dict[str, Callable[[str, Condition, Styles], Drawn]] = {
    "orthogonality": orthogonality,
    "gradient_norms": gradient_norms,
    "heat_maps": heat_maps,
    "sizes": sizes,
    "jacobians": jacobians,
}


def trajectories(panels: list[dict[str, Any]]) -> Drawn:
    """Draw trajectories that darken from their starts (stars), and the field tanh(W h) of the feedback systems."""
    drawn: Drawn = {}
    for panel in panels:
        figure = empty_figure("h<sub>1</sub>", "h<sub>2</sub>")
        courses = np.array(panel["trajectories"])
        reach = max(1.0, 1.05 * float(np.abs(courses).max()))
        if panel["feedback"]:
            x, y = _field(np.array(panel["matrix"]), reach)
            figure.add_scatter(x=x, y=y, mode="lines", line={"color": GREY, "width": 0.6}, hoverinfo="skip")
        for course, colour in zip(courses, PALETTE, strict=False):
            marker = {"color": colour, "size": 5, "opacity": np.linspace(0.15, 1, len(course)).tolist()}
            figure.add_scatter(x=course[:, 0], y=course[:, 1], mode="markers", marker=marker)
            star = {"color": colour, "size": 11, "symbol": "star"}
            figure.add_scatter(x=course[:1, 0], y=course[:1, 1], mode="markers", marker=star)
        figure.update_xaxes(range=[-reach, reach], constrain="domain")
        figure.update_yaxes(range=[-reach, reach], scaleanchor="x", constrain="domain", rangemode="normal")
        figure.update_layout(hovermode="closest", showlegend=False, margin={"l": 40, "r": 8, "t": 8, "b": 40})
        drawn[panel["panel"]] = (f"({panel['panel']}) {panel['what']}", figure)
    return drawn


def minutes(results: dict[str, Any], styles: Styles) -> tuple[str, go.Figure]:
    """Draw measured over printed minutes; points on a parallel to the diagonal have the table's shape."""
    rows = [row for entry in results["shapes"] for row in entry["rows"] if row["printed"] is not None]
    figure = empty_figure("printed minutes per epoch", "measured minutes per epoch", logarithmic=True)
    figure.update_xaxes(type="log")
    base = next(row for row in rows if row["model"] == "rnn")
    ends = np.array([min(row["printed"] for row in rows), max(row["printed"] for row in rows)])
    for number, model in enumerate(sorted({row["model"] for row in rows})):
        own = [row for row in rows if row["model"] == model]
        figure.add_scatter(
            x=[row["printed"] for row in own],
            y=[row["minutes"] for row in own],
            text=[f"n = {row['hidden_size']}" for row in own],
            mode="markers+text",
            textposition="top center",
            name=html.escape(model),
            marker={"color": PALETTE[number % len(PALETTE)], "size": 9},
        )
    figure.add_scatter(
        x=ends,
        y=ends * base["minutes"] / base["printed"],
        mode="lines",
        name=f"as printed, from the RNN's n = {base['hidden_size']} on",
        line={"color": GREY, "dash": "dash", "width": 1.5},
    )
    figure.update_layout(hovermode="closest")
    return "Table 3: measured over printed minutes; on the dashed line the table would have the printed shape.", figure


def _caption(figure_name: str, what: str, condition: Condition) -> str:
    length = condition.settings.get("sequence_length")
    where = f"{condition.task}, T = {length}" if length else condition.task
    return f"{figure_name.capitalize()}: {what}. On {where}."


def _short_size(variant: VariantData) -> int:
    size: int = variant.run.spec["model_settings"]["short_size"]
    return size


def _mean_at_the_end(rows: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return the last logged vector, its mean over seeds."""
    last = rows[rows["iteration"] == rows["iteration"].max()]["values"].tolist()
    mean: npt.NDArray[np.float64] = np.mean(last, axis=0)
    return mean


def _readings(variant: VariantData, name: str) -> Iterator[tuple[bool, npt.NDArray[np.float64]]]:
    """Yield a vector's mean over seeds at each iteration, with whether that is the last."""
    rows = variant.traces[variant.traces["name"] == name]
    for iteration, same in rows.groupby("iteration"):
        yield iteration == rows["iteration"].max(), np.mean(same["values"].tolist(), axis=0)


def _add_moduli(figure: go.Figure, variant: VariantData, style: Style) -> None:
    vectors = [_readings(variant, f"jacobian/{name}") for name in ("steps", "modulus_mean", "modulus_std")]
    for (last, steps), (_, mean), (_, deviation) in zip(*vectors, strict=True):
        name = html.escape(variant.label)
        if last:
            edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
            figure.add_scatter(x=steps, y=mean + deviation, **edge)
            figure.add_scatter(x=steps, y=np.maximum(mean - deviation, 0), fill="tonexty", fillcolor=style.band, **edge)
        figure.add_scatter(
            x=steps,
            y=mean,
            mode="lines",
            name=name if last else f"{name} before",
            line={"color": style.color, "dash": style.dash if last else "dot", "width": 2 if last else 1},
        )


def _plane() -> go.Figure:
    figure = empty_figure("Re λ", "Im λ")
    figure.update_yaxes(scaleanchor="x", rangemode="normal")
    figure.add_scatter(
        x=UNIT_CIRCLE.real,
        y=UNIT_CIRCLE.imag,
        mode="lines",
        name="unit circle",
        hoverinfo="skip",
        line={"color": GREY, "width": 1},
    )
    figure.update_layout(hovermode="closest")
    return figure


def _add_cloud(figure: go.Figure, clouds: list[list[float]], label: str, style: Style) -> None:
    points = np.array(clouds).reshape(-1, 2)
    figure.add_scatter(
        x=points[:, 0],
        y=points[:, 1],
        mode="markers",
        name=html.escape(label),
        marker={"color": style.color, "size": 4, "opacity": 0.6},
    )


def _field(matrix: npt.NDArray[np.float64], reach: float, count: int = 11) -> tuple[list[Any], list[Any]]:
    """Return the field tanh(W h) on a grid, as arrows of a shaft and two barbs each, with gaps between them."""
    side = np.linspace(-0.9, 0.9, count) * reach
    h = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    arrow = np.tanh(h @ matrix.T) * 0.12 * reach
    tip = h + arrow
    across = np.stack((-arrow[:, 1], arrow[:, 0]), axis=-1)
    barbs = [tip - 0.3 * arrow + sign * 0.15 * across for sign in (1, -1)]
    gap = np.full_like(h, np.nan)
    drawn = np.stack((h, tip, barbs[0], tip, barbs[1], gap), axis=1).reshape(-1, 2)
    return drawn[:, 0].tolist(), drawn[:, 1].tolist()
