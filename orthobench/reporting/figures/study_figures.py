"""Draw the figures of the papers' studies."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orthobench.analysis.by_length import BIN
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.curves import Curve, curve_over_seeds
from orthobench.analysis.logged import Vectors, named
from orthobench.metric import STEP
from orthobench.reporting.account.captions import Caption, caption, facts_of
from orthobench.reporting.figures import figures
from orthobench.reporting.figures.drawing import add_curve, empty_figure, show_gaps, span_a_decade
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.figures import Drawn, scored, styled
from orthobench.reporting.figures.length_figures import best_over_length, longer_tests, over_length
from orthobench.reporting.figures.styles import GREY, PALETTE, Style, Styles

MOST = 8
"""The most curves over length in one figure; more cannot be told apart."""
DISTANCES = (
    "Distance from orthogonal of the stored matrices, the product in double precision (thick) and in the run's (thin)"
)
HEAT_MAP = (
    "Norm of the state's gradient by every input after training; colours: six decades below the largest value, median "
    "over seeds"
)
FIXED = {"figure 6": "the long-term state fixed"}
"""What is fixed while the sizes of a figure grow; in the other figures all units are."""
BOUNDS = {
    "state": "Gradient of the last state by the state k steps back, and its bound (dotted), after training",
    "input": "Gradient of the last state by the input k steps back, and its bound (dotted), after training",
}
POWERS = "Norms of the powers of the recurrent matrices after training"
STABILITY = {
    "modulus_max": (
        "largest |1 + ελ|",
        "Largest |1 + ελ| of a step's Jacobian along a sequence, mean over seeds; the steps are stable up to 1",
    ),
    "real_max": (
        "largest Re λ",
        "Largest Re λ of a step's Jacobian along a sequence, mean over seeds; the equation in time is stable up to 0",
    ),
}
"""The axis and the caption of each vector of the probe `euler_stability`."""
MODULI = "Moduli of a step's Jacobian after training, mean over seeds and standard deviation"
SINGLE = "Eigenvalues of a step's Jacobian after training, at a few steps"
WHOLE = "Eigenvalues of the Jacobian of the last state by the first, over the whole sequence, after training"
RATIOS = Caption("Measured versus published minutes; on the dashed line all ratios between models are as published")
BEFORE = "Thin lines: before training."
UNIT_CIRCLE = np.exp(2j * np.pi * np.linspace(0, 1, 181))


def orthogonality(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the distances from orthogonal in double precision and, as thin lines, in the run's own precision."""
    figure = figures.orthogonality(condition, styles)
    if figure is None:
        return {}
    for variant, _ in styled(condition, styles, figure):
        for part, (matrix, rows) in enumerate(scored(variant, f"{STEP}_own_precision")):
            values = curve_over_seeds(rows, variant.runs)
            label = f"{variant.label} {matrix}, own precision"
            epochs = values.x / variant.run.iterations_per_epoch
            add_curve(figure, values, epochs, label, styles.of(condition, variant, part), plain=True)
    show_gaps(figure)
    figure.layout["yaxis"].pop("range", None)  # that of the thick lines alone
    span_a_decade(figure)
    return {figure_name: (caption(DISTANCES, figure_name, condition), figure)}


def gradient_norms(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the norm of the gradient with respect to the hidden state at every step, before and after training."""
    drawn: Drawn = {}
    for norm, words in figures.NORMS.items():
        for last, moment in ((False, "at the beginning of training"), (True, "at the end of training")):
            figure = figures.gradient_norms(condition, styles, (last,), norm)
            if figure is not None:
                below = caption(words, figure_name, condition).also([moment], figures.about_gradients(figure))
                drawn[f"{figure_name} {norm} {'end' if last else 'start'}"] = (below, figure)
    return drawn


def heat_maps(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw a map for every part of a model's state after training, all with the same range of colours.

    As in the paper, input steps run from left to right and steps of the state from top to bottom.
    """
    drawn: Drawn = {}
    for variant, _ in styled(condition, styles):
        maps = {
            name.partition("/")[2]: _median_at_the_end(rows)
            for name, rows in named(variant.traces, "heat_map/").items()
        }
        if not maps:
            continue
        highest = np.log10(max(float(values.max()) for values in maps.values()))
        for part, flat in maps.items():
            figure = empty_figure("input step τ", "state step t")
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
            words = caption(HEAT_MAP, figure_name, condition, has_bands=False).also([f"{variant.label}, {part}"])
            drawn[f"{variant.label} {part}"] = (words, figure)
    return drawn


def sizes(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the test metric over epochs for every size, and the final values over sizes."""
    ordered = sorted(condition.variants, key=_short_size)
    labelled = [replace(variant, label=_sizes_of(variant)) for variant in ordered]
    learning = figures.learning_curves(replace(condition, variants=labelled), styles)
    ends = empty_figure("short-term units", f"test {condition.metric.axis} at the end")
    by_size: dict[int, list[float]] = {}
    for variant in ordered:
        by_size.setdefault(_short_size(variant), []).extend(end.value for end in variant.ends.values())
    name = ordered[0].label.partition(", ")[0]
    _add_ends(ends, by_size, name, styles.of_model(ordered[0].run.model), len(ordered[0].runs))
    ends.update_yaxes(type="log", rangemode="normal")
    fixed = [FIXED.get(figure_name, "all units fixed")]
    return {
        f"{figure_name} curves": (caption("Learning curves", figure_name, condition).also(fixed), learning),
        f"{figure_name} ends": (caption("The end by size", figure_name, condition).also(fixed), ends),
    }


def over_setting(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the test metric over epochs and, if the variants differ in one number alone, its end over this number."""
    drawn: Drawn = {}
    learning = figures.learning_curves(condition, styles)
    if learning.data:
        drawn[f"{figure_name} curves"] = (caption("Learning curves", figure_name, condition), learning)
    for setting in _numbers_that_differ(condition.variants):
        by_value: dict[float, list[float]] = {}
        for variant in condition.variants:
            value = float(variant.run.spec["model_settings"][setting])
            by_value.setdefault(value, []).extend(end.value for end in variant.ends.values())
        ends = empty_figure(setting, f"test {condition.metric.axis} at the end")
        model, seeds = condition.variants[0].run.model, len(condition.variants[0].runs)
        _add_ends(ends, dict(sorted(by_value.items())), model, styles.of_model(model), seeds)
        if ends.data:
            drawn[f"{figure_name} ends"] = (caption("The end by a setting", figure_name, condition), ends)
    return drawn


def euler_stability(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the largest |1 + eps lambda| and the largest Re lambda of the steps, before and after training."""
    drawn: Drawn = {}
    for name, (axis, what) in STABILITY.items():
        figure = empty_figure("step t", axis)
        for variant, style in styled(condition, styles, figure):
            _add_by_step(figure, variant, style, "euler_stability/steps", f"euler_stability/{name}")
        if figure.data:
            drawn[name] = (_before_and_after(what, figure_name, condition), figure)
    return drawn


def gradient_bounds(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the gradients of the last state by earlier ones and by inputs, their bounds, and the norms of W's powers."""
    drawn: Drawn = {}
    for kind, what in BOUNDS.items():
        figure = empty_figure("steps back k", f"gradient by the {kind}, 2-norm", logarithmic=True)
        for variant, style in styled(condition, styles, figure):
            prefix = f"gradient_bound/{kind}/"
            for part in sorted(name.removeprefix(prefix) for name in named(variant.traces, prefix)):
                label, lags = f"{variant.label} {part}", "gradient_bound/lags"
                _add_by_step(figure, variant, style, lags, f"{prefix}{part}", label)
                bound = replace(style, dash="dot", color=GREY)
                _add_by_step(figure, variant, bound, lags, f"gradient_bound/{kind}_bound/{part}", f"{label}, bound")
        span_a_decade(figure)
        if figure.data:
            drawn[f"{kind}s"] = (_before_and_after(what, figure_name, condition), figure)
    powers = empty_figure("power k", "‖W<sup>k</sup>‖", logarithmic=True)
    for variant, style in styled(condition, styles, powers):
        prefix = "transient_growth/norms/"
        for name in sorted(named(variant.traces, prefix)):
            label = f"{variant.label} {name.removeprefix(prefix)}"
            _add_by_step(powers, variant, style, "transient_growth/powers", name, label)
    span_a_decade(powers)
    if powers.data:
        drawn["powers"] = (_before_and_after(POWERS, figure_name, condition), powers)
    return drawn


def jacobians(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the eigenvalues' moduli along the sequence, and in the plane: of single steps and of the whole sequence."""
    along = empty_figure("step t", "|λ| of ∂s<sub>t</sub>/∂s<sub>t−1</sub>")
    single, whole = _plane(), _plane()
    for variant, style in styled(condition, styles, along, single, whole):
        _add_moduli(along, variant, style)
        last = max((int(vectors.iteration.max()) for vectors in variant.traces.values()), default=0)
        _add_cloud(single, _vectors_at(last, named(variant.traces, "jacobian/eigenvalues/")), variant.label, style)
        end_to_end = {name: own for name, own in variant.traces.items() if name == "jacobian/end_to_end"}
        _add_cloud(whole, _vectors_at(last, end_to_end), variant.label, style)
    if not along.data:
        return {}
    return {
        "moduli": (_before_and_after(MODULI, figure_name, condition), along),
        "steps": (caption(SINGLE, figure_name, condition, has_bands=False), single),
        "whole": (caption(WHOLE, figure_name, condition, has_bands=False), whole),
    }


def lengths(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the metric over the length of the test sequences after training, for at most `MOST` of the best variants.

    Each point is a mean over `BIN` lengths, as in the tables next to the figure.
    """
    drawn = over_length(condition, styles, MOST, BIN)
    if drawn is None:
        return {}
    words, figure = drawn
    return {figure_name: (words.also(facts_of(figure_name, condition)), figure)}


def tracking(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the metric over the test length, and over the iterations, of the same variants."""
    drawn = lengths(figure_name, condition, styles)
    if drawn:
        best = replace(condition, variants=best_over_length(condition, MOST))
        drawn[f"{figure_name} iterations"] = (
            caption("Learning curves of the same variants", figure_name, best),
            figures.learning_curves(best, styles, "iteration"),
        )
    return drawn


DRAWINGS: dict[str, Callable[[str, Condition, Styles], Drawn]] = {
    "orthogonality": orthogonality,
    "gradient_norms": gradient_norms,
    "heat_maps": heat_maps,
    "sizes": sizes,
    "jacobians": jacobians,
    "over_setting": over_setting,
    "euler_stability": euler_stability,
    "gradient_bounds": gradient_bounds,
    "state_tracking": tracking,
    "longer_tests": longer_tests,
}


def trajectories(panels: list[dict[str, Any]]) -> Drawn:
    """Draw trajectories that start at stars and fade in, and the field tanh(W h) of the feedback systems."""
    drawn: Drawn = {}
    for panel in panels:
        figure = empty_figure("h<sub>1</sub>", "h<sub>2</sub>")
        trajectories = np.array(panel["trajectories"])
        reach = max(1.0, 1.05 * float(np.abs(trajectories).max()))
        if panel["feedback"]:
            x, y = _field(np.array(panel["matrix"]), reach)
            figure.add_scatter(x=x, y=y, mode="lines", line={"color": GREY, "width": 0.6}, hoverinfo="skip")
        for number, (path, colour) in enumerate(zip(trajectories, PALETTE, strict=False), 1):
            marker = {"color": colour, "size": 5, "opacity": np.linspace(0.15, 1, len(path)).tolist()}
            figure.add_scatter(x=path[:, 0], y=path[:, 1], mode="markers", marker=marker, name=f"trajectory {number}")
            star = {"color": colour, "size": 11, "symbol": "star"}
            figure.add_scatter(x=path[:1, 0], y=path[:1, 1], mode="markers", marker=star)
        figure.update_xaxes(range=[-reach, reach], constrain="domain")
        figure.update_yaxes(range=[-reach, reach], scaleanchor="x", constrain="domain", rangemode="normal")
        figure.update_layout(hovermode="closest", showlegend=False, margin={"l": 40, "r": 8, "t": 8, "b": 40})
        drawn[panel["panel"]] = (Caption(f"({panel['panel']}) {panel['what']}"), figure)
    return drawn


def minutes(results: dict[str, Any], styles: Styles, names: Mapping[str, str]) -> tuple[Caption, Figure]:
    """Draw measured over published minutes; if points are parallel to the diagonal, the ratios agree with the table.

    Args:
        names: the paper's names of the models, by our names.
    """
    rows = [row for entry in results["shapes"] for row in entry["rows"] if row["printed"] is not None]
    figure = empty_figure("published minutes per epoch", "measured minutes per epoch", logarithmic=True)
    figure.update_xaxes(type="log")
    base = next(row for row in rows if row["model"] == "rnn")
    ends = np.array([min(row["printed"] for row in rows), max(row["printed"] for row in rows)])
    for model in sorted({row["model"] for row in rows}):
        own = [row for row in rows if row["model"] == model]
        figure.add_scatter(
            x=[row["printed"] for row in own],
            y=[row["minutes"] for row in own],
            text=[f"n = {row['hidden_size']}" for row in own],
            mode="markers",
            name=html.escape(names.get(model, model)),
            marker={"color": styles.of_model(model).color, "symbol": styles.of_model(model).symbol, "size": 9},
        )
    figure.add_scatter(
        x=ends,
        y=ends * base["minutes"] / base["printed"],
        mode="lines",
        name="ratios as published",
        line={"color": GREY, "dash": "dash", "width": 1.5},
    )
    figure.update_layout(hovermode="closest")
    return RATIOS, figure


def _before_and_after(what: str, figure_name: str, condition: Condition) -> Caption:
    return caption(what, figure_name, condition, has_bands=False).also(notes=[BEFORE])


def _numbers_that_differ(variants: Sequence[VariantData]) -> list[str]:
    """Return the name of the model's setting that differs between variants, if it is a number and the only one."""
    settings = [variant.run.spec["model_settings"] for variant in variants]
    names = [name for name in settings[0] if len({str(each.get(name)) for each in settings}) > 1]
    is_number = len(names) == 1 and all(type(each.get(names[0])) in (int, float) for each in settings)
    return names if is_number and len({variant.run.model for variant in variants}) == 1 else []


def _add_ends(
    figure: Figure,
    by_value: Mapping[float, list[float]] | Mapping[int, list[float]],
    name: str,
    style: Style,
    seeds: int,
) -> None:
    """Draw the median of the ends over a setting, with a band from the lowest to the highest."""
    points = {value: ends for value, ends in by_value.items() if ends}
    if not points:
        return
    middle, low, high = (np.array([f(ends) for ends in points.values()]) for f in (np.median, np.min, np.max))
    settings = np.array(list(points), dtype=float)
    add_curve(figure, Curve(settings, middle, low, high, seeds), settings, name, style)
    show_gaps(figure)


def _short_size(variant: VariantData) -> int:
    size: int = variant.run.spec["model_settings"]["short_size"]
    return size


def _sizes_of(variant: VariantData) -> str:
    """Return a variant's sizes in words."""
    short = _short_size(variant)
    return f"{variant.run.spec['model_settings']['hidden_size'] - short} long-term + {short} short-term"


def _median_at_the_end(rows: Vectors) -> npt.NDArray[np.float64]:
    """Return the median over seeds of the last logged vector."""
    last = rows.at(rows.iteration == rows.iteration.max())
    middle: npt.NDArray[np.float64] = np.median(last.numbers(), axis=0)
    return middle


def _readings(variant: VariantData, name: str) -> Iterator[tuple[bool, npt.NDArray[np.float64]]]:
    """Yield whether an iteration is the last, and a vector's mean over seeds there."""
    if (rows := variant.traces.get(name)) is not None:
        for iteration in np.unique(rows.iteration):
            same = rows.at(rows.iteration == iteration)
            yield bool(iteration == rows.iteration.max()), np.mean(same.numbers(), axis=0)


def _add_moduli(figure: Figure, variant: VariantData, style: Style) -> None:
    vectors = [_readings(variant, f"jacobian/{name}") for name in ("steps", "modulus_mean", "modulus_std")]
    for (last, steps), (_, mean), (_, deviation) in zip(*vectors, strict=True):
        name = html.escape(variant.label)
        if last:
            edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
            figure.add_scatter(x=steps, y=mean + deviation, **edge)
            figure.add_scatter(x=steps, y=np.maximum(mean - deviation, 0), fill="tonexty", fillcolor=style.band, **edge)
        _add_line(figure, steps, mean, name, style, last)


def _add_by_step(figure: Figure, variant: VariantData, style: Style, steps: str, name: str, label: str = "") -> None:
    """Draw a vector over the steps that another names: the mean over seeds after training, and thin before it."""
    vectors = [_readings(variant, vector) for vector in (steps, name)]
    for (last, x), (_, y) in zip(*vectors, strict=True):
        _add_line(figure, x, y, html.escape(label or variant.label), style, last)


def _add_line(
    figure: Figure,
    x: npt.NDArray[np.float64],
    y: npt.NDArray[np.float64],
    name: str,
    style: Style,
    is_last: bool,
) -> None:
    """Draw a line after training, or a thin one before it."""
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        name=name if is_last else f"{name} before",
        line={"color": style.color, "dash": style.dash, "width": 2 if is_last else 1},
    )


def _plane() -> Figure:
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


def _vectors_at(iteration: int, vectors: Mapping[str, Vectors]) -> list[npt.NDArray[np.float64]]:
    """Return all vectors of an iteration, run by run."""
    at = [own.at(own.iteration == iteration) for own in vectors.values()]
    rows = [(int(run), values) for own in at for run, values in zip(own.run, own.numbers(), strict=True)]
    return [values for _, values in sorted(rows, key=lambda row: row[0])]


def _add_cloud(figure: Figure, clouds: list[npt.NDArray[np.float64]], label: str, style: Style) -> None:
    points = np.array(clouds).reshape(-1, 2)
    figure.add_scatter(
        x=points[:, 0],
        y=points[:, 1],
        mode="markers",
        name=html.escape(label),
        marker={"color": style.color, "symbol": style.symbol, "size": 5, "opacity": 0.7},
    )


def _field(matrix: npt.NDArray[np.float64], reach: float) -> tuple[list[Any], list[Any]]:
    """Return the field tanh(W h) on a grid, as arrows with a shaft and two barbs, separated by gaps."""
    side = np.linspace(-0.9, 0.9, 11) * reach
    h = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    arrow = np.tanh(h @ matrix.T) * 0.12 * reach
    tip = h + arrow
    across = np.stack((-arrow[:, 1], arrow[:, 0]), axis=-1)
    barbs = [tip - 0.3 * arrow + sign * 0.15 * across for sign in (1, -1)]
    gap = np.full_like(h, np.nan)
    drawn = np.stack((h, tip, barbs[0], tip, barbs[1], gap), axis=1).reshape(-1, 2)
    return drawn[:, 0].tolist(), drawn[:, 1].tolist()
