"""Draw the figures of a condition, each with its caption."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.curves import curve_over_seeds, vector_curve
from orthobench.analysis.logged import Logged, named
from orthobench.analysis.variants import are_in_cpu_time, of_one_machine, untimed
from orthobench.metric import INSIDE, JACOBIAN, STEP, Metric, notation, why_undefined
from orthobench.papers import Experiment
from orthobench.reporting.account.captions import BASELINE_WORDS, Caption, brief
from orthobench.reporting.figures.drawing import (
    GAP,
    PUBLISHED_SYMBOL,
    PUBLISHED_WORDS,
    add_absence,
    add_baseline,
    add_curve,
    empty_figure,
    first_names,
    frame,
    has_baseline,
    published_notes,
    show_gaps,
    span_a_decade,
)
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.styles import Style, Styles
from orthobench.spec.index import built_in
from orthobench.spec.resolve import RunSpec
from orthobench.spec.state_sizes import state_sizes

Drawn = dict[str, tuple[Caption, Figure]]
"""Captions and figures, by name."""

GATES = frozenset(["W_i", "W_f", "W_g", "W_o", "W_r", "W_z", "W_y", "W_1", "W_2", "A"])
"""Matrices inside gates and derivatives (`Model.step_matrices`), which older runs recorded as those of a step."""
TOTAL_DERIVATIVE = "By an LSTM's c at step t, it is the total derivative, with all paths through h."
UNDERFLOW = "Gaps: zero in float32; a norm is zero there from about 1e-20 on, where its squares fall below 1.2e-38."
FOCUS = "The axis shows the best value to the first quartile of the course, or to the baseline if that is nearer."
"""What the y axis of learning curves shows, in words."""
LOGARITHMIC = 10.0
"""The least ratio of the ends of a y axis of learning curves that makes it logarithmic."""
FENCE, FEWEST_FENCED = 3.0, 8
"""How many interquartile ranges beyond the third quartile a value is an outlier, and the fewest values for this."""
MARKS = "Small dots: seeds; large symbols: their median."
LOST = "Crosses: diverged seeds, at the worst other value or the baseline."
MEDIAN_SIZE = 11
LETTERS = 34
"""The most letters of the names in the figure of seeds."""
SOLVED_NOTES = (
    "A seed counts from its first test with a score of at least 95, if its end has one, too; 0 is the baseline and 100 "
    "a perfect value.",
    "No seed of a variant without a line solves it.",
)
SEVERAL_PLACES = "The runs were measured on several machines or clocks: times compare on one alone."
GRADIENTS = (
    "Norm of the whole batch's gradient of the loss by the state at every step on one batch, before training (thin) "
    "and after"
)
CARRIED = (
    "Size of the state, the numbers that the model carries from step to step for one sequence, and the end of training"
)
STATE = "size of the state"
"""The axis of the figure for tasks that ask how much a state can hold (`Task.state_matters`)."""
LEAST_RATIO = 5.0
"""The least ratio of the ends of an axis of costs, so that two of its ticks, at 1, 2 and 5 times powers of ten, fit."""
SPLITS = {"test": "test", "valid": "validation", "train": "training"}
SCORES = {
    STEP: "Distance from orthogonal of the matrix W by which a step multiplies the state",
    JACOBIAN: "Distance from orthogonal of the step's Jacobian, J = ∂sₜ/∂sₜ₋₁, in the middle of sequences of one batch",
    INSIDE: "Distance from orthogonal of the matrices W inside gates and derivatives. An orthogonal one does not make "
    "the step orthogonal",
}
"""What the distances from orthogonal are of, in words."""
NORMS = {
    "gradient_norm": "Norm of the whole batch's gradient of the loss by the state at every step of one batch",
    "gradient_norm_per_sample": "Norm of a sample's gradient of the loss by the state at every step, mean over a batch",
}
"""The norms that the vectors of the gradient-norm probe hold, in words."""


def condition_figures(condition: Condition, styles: Styles) -> Drawn:
    """Return the figures of a condition that have data, by name."""
    ends = [MARKS, *([LOST] if any(variant.diverged for variant in condition.variants) else [])]
    curves, gradients = learning_curves(condition, styles), gradient_norms(condition, styles)
    seeds = seeds_and_medians(condition, styles)
    known = {PUBLISHED_WORDS: published(condition), BASELINE_WORDS: seeds is not None and has_baseline(seeds)}
    drawings = {
        "curves": (brief("Learning curves", condition).also(notes=published_notes(curves)), curves),
        **{
            score: (brief(words, condition), orthogonality(condition, styles, of=score))
            for score, words in SCORES.items()
        },
        "gradients": (brief(GRADIENTS, condition).also(notes=about_gradients(gradients)), gradients),
        "seeds": (
            Caption("The end of every seed", notes=[*ends, *(note for note, holds in known.items() if holds)]),
            seeds,
        ),
        "solved": (
            Caption("Share of the seeds that solve the task", notes=SOLVED_NOTES),
            solved_share(condition, styles),
        ),
        "parameters": (
            Caption("Parameters and the end of training", notes=ends),
            against_cost(condition, styles, "parameters"),
        ),
        "state": (
            Caption(CARRIED, notes=ends),
            against_cost(condition, styles, STATE) if _state_matters(condition) else None,
        ),
        "seconds": (
            Caption("Time and the end of training", notes=[*ends, *_about_times(condition)]),
            against_cost(condition, styles, "seconds of training"),
        ),
    }
    return {name: (words, figure) for name, (words, figure) in drawings.items() if figure is not None}


def learning_curves(
    condition: Condition,
    styles: Styles,
    x: str = "epoch",
    name: str = "",
    split: str = "test",
    printed: Mapping[str, float] | None = None,
    bests: Collection[str] = (),
) -> Figure:
    """Draw a metric over epochs or iterations: the median over seeds, in a band from the lowest to the highest seed.

    Args:
        x: "epoch" or "iteration".
        name: the metric; none: the main one.
        split: "test", "valid" or "train".
        printed: published values by the variants' labels, to mark at the right end; none: those of the main metric.
        bests: the labels whose published value is the best of all evaluations, a line, because it has no place.
    """
    metric = condition.metric_named(name)
    if printed is None:
        is_main = (split, metric.name) == ("test", condition.metric.name)
        printed = published(condition) if is_main else {}
        bests = [variant.label for variant in condition.variants if is_of_all_epochs(variant.experiment)]
    figure = empty_figure(x, f"{SPLITS[split]} {metric.axis}")
    last = 0.0
    courses: dict[str, NDArray[np.float64]] = {}
    for variant, style in styled(condition, styles, figure):
        rows = variant.series(split, metric.name)
        values = curve_over_seeds(rows, variant.runs)
        if not len(values):
            if len(rows):
                add_absence(figure, variant.label, style)
            continue
        courses[variant.label] = values.median
        positions = values.x / (variant.run.iterations_per_epoch if x == "epoch" else 1)
        last = max(last, float(positions[-1]))
        add_curve(figure, values, positions, variant.label, style)
    figure.update_xaxes(range=[0, last or 1])
    for variant, style in styled(condition, styles, figure):
        if last and variant.label in printed:
            add = _add_best if variant.label in bests else _add_published
            add(figure, last, printed[variant.label], variant.label, style)
    baseline = condition.baseline if metric.name == condition.metric.name else None
    _focus(figure, courses, metric, baseline, [value for label, value in printed.items() if label in courses])
    if baseline is not None:
        add_baseline(figure, [0, last], baseline)
    return figure


def _focus(
    figure: Figure,
    courses: Mapping[str, NDArray[np.float64]],
    metric: Metric,
    baseline: float | None,
    printed: Sequence[float],
) -> None:
    """Let the y axis begin at the best value and end at the worst first quartile of a course.

    The first quartile is worse than three quarters of a curve's tests. An untrained model, a spike or a diverged curve
    would flatten everything else. So the axis ends at the baseline if a curve gets better than that. No outlier among
    the curves' quartiles extends it. It is logarithmic where it would span more than a decade. `remarks` says which
    curves end beyond it.

    Args:
        courses: the median over seeds of each curve, by its label.
        printed: published values, which the axis includes.
    """
    sign = metric.sign
    costs = {label: sign * values[np.isfinite(values)] for label, values in courses.items()}
    costs = {label: values for label, values in costs.items() if len(values)}
    if not costs:
        return
    best = min([float(values.min()) for values in costs.values()] + [sign * value for value in printed])
    quartiles = np.array([float(np.quantile(values, 0.75)) for values in costs.values()])
    if baseline is not None and best < sign * baseline:
        worst = min(float(quartiles.max()), sign * baseline)
    else:
        worst = float(_without_outliers(quartiles).max())
    worst = max([worst] + [sign * value for value in printed])
    if not worst > best:
        return
    low, high = sorted((sign * best, sign * worst))
    if metric.goal == "min" and low > 0 and high > LOGARITHMIC * low:
        figure.update_yaxes(type="log", rangemode="normal")
        show_gaps(figure)
    frame(figure, "y", low, high, FOCUS)


def _without_outliers(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values without those far above the others, if there are enough to tell."""
    if len(values) < FEWEST_FENCED:
        return values
    first, third = np.quantile(values, [0.25, 0.75])
    usual: NDArray[np.float64] = values[values <= third + FENCE * (third - first)]
    return usual


def orthogonality(condition: Condition, styles: Styles, x: str = "epoch", of: str = STEP) -> Figure | None:
    """Draw a score of orthogonality over epochs on a log scale, ||W^T W - I||_F or ||J^T J - I||_F; None without data.

    Args:
        x: "epoch" or "iteration".
        of: which score, a key of `SCORES`.
    """
    matrix_of_axis = {STEP: "WᵀW", INSIDE: "WᵀW", JACOBIAN: "JᵀJ"}[of]
    inside = " inside gates and derivatives" if of == INSIDE else ""
    figure = empty_figure(x, f"‖{matrix_of_axis} − I‖<sub>F</sub>{inside}", logarithmic=True)
    for variant, _ in styled(condition, styles, figure):
        for part, (matrix, rows) in enumerate(scored(variant, of)):
            values = curve_over_seeds(rows, variant.runs)
            named = {"J": "", "J_estimated": ", estimated", **({} if of == INSIDE else {"W": ""})}
            label = variant.label + named.get(matrix, f" {notation(matrix)}")
            positions = values.x / (variant.run.iterations_per_epoch if x == "epoch" else 1)
            add_curve(figure, values, positions, label, styles.of(condition, variant, part))
    if not figure.data:
        return None
    show_gaps(figure)
    span_a_decade(figure)
    return figure


def scored(variant: VariantData, of: str) -> Iterator[tuple[str, Logged]]:
    """Yield the name and the values for each matrix with a score of orthogonality.

    Args:
        of: a key of `SCORES`, or `STEP` with "_own_precision".
    """
    for split, name in sorted(variant.metrics, key=lambda series: series[1]):
        kind, _, matrix = name.partition("/")
        if kind == STEP and matrix in GATES:
            kind = INSIDE
        is_old_double = kind == f"{STEP}_own_precision" and matrix in GATES
        if kind == of and matrix and not is_old_double and why_undefined(name) is None:
            yield matrix, variant.series(split, name)


def without_score(condition: Condition) -> list[str]:
    """Return which variants have no score of the step's Jacobian, and why: the names of each reason, and the reason."""
    by_reason: dict[str, list[str]] = {}
    for variant in condition.variants:
        names = [name for _, name in variant.metrics if name.startswith(f"{JACOBIAN}/")]
        reasons = [reason for name in names if (reason := why_undefined(name)) is not None]
        for reason in reasons or ([] if names else ["of a version that does not measure it"]):
            by_reason.setdefault(reason, []).append(variant.label)
    return [f"{first_names(labels)} ({reason})" for reason, labels in by_reason.items()]


def gradient_norms(
    condition: Condition,
    styles: Styles,
    moments: tuple[bool, ...] = (False, True),
    norm: str = "gradient_norm",
    states: tuple[str, ...] = (),
) -> Figure | None:
    """Draw the norms of dL/dh_t over the steps, with the median and a band over seeds; None without data.

    The name of a line includes the part of the state, unless only one part is drawn.

    Args:
        moments: False for the state before training, True for the last one; of both, the former is drawn thin.
        norm: the vectors to draw (`NORMS`).
        states: the parts of the state to draw; none: all.
    """
    figure = empty_figure("step t", "", logarithmic=True)
    drawn: set[str] = set()
    for variant, _ in styled(condition, styles, figure):
        for part, (name, rows) in enumerate(named(variant.traces, f"{norm}/").items()):
            state = name.partition("/")[2]
            if states and state not in states:
                continue
            for last in moments:
                measured = vector_curve(rows, variant.runs, last)
                if measured is None:
                    continue
                epoch = measured[0] / variant.run.iterations_per_epoch
                label = variant.label if len(states) == 1 else f"{variant.label} {notation(state)}"
                label += f", epoch {epoch:.3g}" if len(moments) > 1 else ""
                drawn.add(state)
                style = styles.of(condition, variant, 0 if states else part)
                add_curve(figure, measured[1], measured[1].x, label, style, plain=len(moments) > 1 and not last)
    if not figure.data:
        return None
    show_gaps(figure)
    figure.update_yaxes(title={"text": _gradient_axis(sorted(drawn))})
    return figure


def about_gradients(figure: Figure | None) -> list[str]:
    """Return what a caption says of the gaps and of the LSTM's cell in a figure of gradients that has them."""
    traces = figure.data if figure else []
    has_gaps = any(trace.get("name") == GAP for trace in traces)
    has_cell = any(re.search(r"^LSTM\b.* c(,|$)", trace.get("name", "")) for trace in traces)
    return [words for words, holds in ((UNDERFLOW, has_gaps), (TOTAL_DERIVATIVE, has_cell)) if holds]


def _gradient_axis(states: Sequence[str]) -> str:
    """Return the title of an axis of gradients by these parts of the state."""
    if len(states) == 1:
        return f"‖∂L/∂{html.escape(states[0])}<sub>t</sub>‖"
    return f"‖∂L/∂s<sub>t</sub>‖, s: {html.escape(' or '.join(states))}"


def published(condition: Condition) -> dict[str, float]:
    """Return the published values of the main metric, by the labels of the variants with the paper's own settings."""
    found = {variant.label: variant.printed for variant in condition.variants}
    return {label: printed.value for label, printed in found.items() if printed and printed.value is not None}


def is_of_all_epochs(experiment: Experiment | None) -> bool:
    """Return whether the published values of an experiment are the best of all its evaluations."""
    return experiment is not None and experiment.selection in ("best_test", "best_valid")


def _add_best(figure: Figure, x: float, y: float, label: str, style: Style) -> None:
    figure.add_scatter(
        x=[0, x],
        y=[y, y],
        mode="lines",
        name=f"{html.escape(label)}, published best",
        meta={"published": True, "label": f"{label}, published best"},
        line={"dash": "dot", "width": 1, "color": style.color},
    )


def _add_published(figure: Figure, x: float, y: float, label: str, style: Style) -> None:
    figure.add_scatter(
        x=[x],
        y=[y],
        mode="markers",
        marker={"symbol": PUBLISHED_SYMBOL, "size": 10, "color": style.color, "line": {"width": 2}},
        meta={"published": True},
        hovertemplate=f"{html.escape(label)}, published: %{{x:.4g}}, %{{y:.4g}}<extra></extra>",
        cliponaxis=False,
        showlegend=False,
    )


def solved_share(condition: Condition, styles: Styles) -> Figure | None:
    """Draw the share of each variant's seeds that solve the task, by epoch; None if no seed solves it."""
    figure = empty_figure("epoch", "share of seeds that solve it")
    last = 0.0
    for variant, style in styled(condition, styles, figure):
        if not (times := variant.solved_from):
            continue
        epoch = variant.run.iterations_per_epoch
        end = max(run.total_iterations for run in variant.runs) / epoch
        last = max(last, end)
        x, y = [0.0], [0.0]
        for number, time in enumerate(times):
            x += [time / epoch] * 2
            y += [number / len(variant.scores), (number + 1) / len(variant.scores)]
        figure.add_scatter(
            x=np.array([*x, max(end, x[-1])]),
            y=np.array([*y, y[-1]]),
            mode="lines",
            name=html.escape(variant.label),
            line={"color": style.color, "dash": style.dash, "width": 2},
        )
    if not figure.data:
        return None
    figure.update_xaxes(range=[0, last])
    figure.update_yaxes(range=[0, 1.02])
    return figure


def seeds_and_medians(condition: Condition, styles: Styles) -> Figure | None:
    """Draw the end of every seed, the median and the published value of each variant; None without a finite end."""
    chosen = [variant for variant in condition.variants if variant.scores]
    values, worst = _ends(chosen, condition)
    if not values:
        return None
    known = published(condition)
    figure = empty_figure(f"test {condition.metric.axis}", "")
    for row, (variant, style) in enumerate(styled(replace(condition, variants=chosen), styles, figure)):
        _add_seeds(figure, variant, style, worst, y=-row)
        if variant.label in known:
            _add_published(figure, known[variant.label], -row, variant.label, style)
    names = [variant.label if len(variant.label) <= LETTERS else f"{variant.label[:LETTERS]}…" for variant in chosen]
    figure.update_yaxes(
        tickvals=[-row for row in range(len(chosen))],
        ticktext=[html.escape(name) for name in names],
        range=[0.5 - len(chosen), 0.5],
        showgrid=False,
    )
    if spans_decades([*values, *known.values(), *([] if condition.baseline is None else [condition.baseline])]):
        figure.update_xaxes(type="log", exponentformat="power")
    _frame_ends(figure, "x", [*values, *known.values()], condition)
    if condition.baseline is not None:
        add_baseline(figure, [0.5, -len(chosen) + 0.5], condition.baseline, "x")
    figure.update_layout(hovermode="closest", showlegend=False)
    return figure


def _about_times(condition: Condition) -> list[str]:
    """Say that the runs were timed on several machines or clocks, and why some have no time."""
    timed = [run for variant in condition.variants for run in of_one_machine(variant.finished)]
    several = len({run.timed_on for run in timed}) > 1
    return [*([SEVERAL_PLACES] if several else []), *untimed(condition.variants)]


def against_cost(condition: Condition, styles: Styles, cost: str) -> Figure | None:
    """Draw the ends over "parameters", "size of the state" or "seconds of training"; None for fewer than two variants.

    The size of the state is known for built-in models alone.
    """
    is_cpu_time = cost == "seconds of training" and are_in_cpu_time(condition.variants)
    figure = empty_figure(f"CPU {cost}" if is_cpu_time else cost, f"test {condition.metric.axis}")
    values, worst = _ends(condition.variants, condition)
    prices = []
    sizes = {}
    if cost == STATE:
        sizes = state_sizes({variant.run.variant: RunSpec(**variant.run.spec) for variant in condition.variants})
    for variant, style in styled(condition, styles, figure):
        if cost == "parameters":
            price = float(variant.run.parameter_count)
        elif cost == STATE:
            price = float(sizes.get(variant.run.variant, 0))
        else:
            spent = [seconds for run in of_one_machine(variant.finished) if (seconds := run.training_seconds)]
            price = sum(spent) / len(spent) if spent else 0.0
        if price > 0 and variant.scores:
            prices.append(price)
            _add_seeds(figure, variant, style, worst, x=price)
    if len(prices) < 2 or not values:
        return None
    low, high = np.log10(min(prices)), np.log10(max(prices))
    reach = max(0.55 * (high - low), np.log10(LEAST_RATIO) / 2)  # else equal sizes would fill the whole axis
    ticks = "~r" if cost == "seconds of training" else "~s"  # else Plotly writes 2 for 200 and for 20k
    figure.update_xaxes(
        type="log", range=[(low + high) / 2 - reach, (low + high) / 2 + reach], dtick="D2", tickformat=ticks
    )
    if spans_decades(values):
        figure.update_yaxes(type="log", rangemode="normal")
    _frame_ends(figure, "y", values, condition)
    figure.update_layout(hovermode="closest")
    return figure


def _state_matters(condition: Condition) -> bool:
    return bool(built_in()["plugins"].get(f"task/{condition.task}", {}).get("state_matters"))


def _ends(variants: Sequence[VariantData], condition: Condition) -> tuple[list[float], float]:
    """Return the finite ends of these variants, and the place of a diverged seed: the worst of those in the frame."""
    values = [score for variant in variants for score in variant.scores if np.isfinite(score)]
    sign = condition.metric.sign
    known = [sign * value for value in _in_frame(values, condition)]
    return values, sign * max(known, default=0.0)


def _in_frame(values: Sequence[float], condition: Condition) -> list[float]:
    """Return the values without outliers, and the baseline if it is no further from them than they are wide."""
    sign = condition.metric.sign
    kept = (sign * _without_outliers(sign * np.array(values, dtype=float))).tolist() if values else []
    if (baseline := condition.baseline) is None:
        return kept
    width = max(kept, default=0.0) - min(kept, default=0.0)
    is_near = not kept or width == 0 or min(kept) - width <= baseline <= max(kept) + width
    is_near |= bool(kept) and spans_decades([*values, baseline])
    return [*kept, baseline] if is_near else kept


def _frame_ends(figure: Figure, axis: str, values: Sequence[float], condition: Condition) -> None:
    """Let an axis of ends show the values, and the baseline only where it would not squeeze them."""
    shown = _in_frame(values, condition)
    if max(shown) > min(shown):
        frame(figure, axis, min(shown), max(shown))


def _add_seeds(
    figure: Figure, variant: VariantData, style: Style, worst: float, x: float | None = None, y: float | None = None
) -> None:
    """Add the ends of a variant's seeds and their median along the axis that is not given."""
    finite = [score for score in variant.scores if np.isfinite(score)]
    lost, middle = len(variant.scores) - len(finite), variant.median.value if variant.median else worst

    def add(values: list[float], symbol: str, size: int, **more: Any) -> None:
        ends, cost = [*values], [x if y is None else y] * len(values)
        figure.add_scatter(
            x=ends if x is None else cost,
            y=cost if x is None else ends,
            mode="markers",
            marker={"color": style.color, "symbol": symbol, "size": size} | more,
            name=html.escape(variant.label),
            legendgroup=html.escape(variant.label),
            showlegend=symbol == style.symbol and size == MEDIAN_SIZE,
        )

    if finite:
        add(finite, "circle", 5, opacity=0.6)
    if lost:
        add([worst] * lost, "x-thin-open", 9, line={"width": 2})
    add([middle if np.isfinite(middle) else worst], style.symbol, MEDIAN_SIZE)


def spans_decades(values: Sequence[float]) -> bool:
    """Return whether positive values span more than two decades, so that their axis should be logarithmic."""
    return min(values) > 0 and max(values) > 100 * min(values)


def styled(condition: Condition, styles: Styles, *figures: Figure) -> Iterator[tuple[VariantData, Style]]:
    """Yield the variants with their styles, and label the traces that the caller adds meanwhile with the variant.

    The label also has the trace's legend entry, since each matrix and state of a variant has a separate one.
    """
    for variant in condition.variants:
        before = [len(figure.data) for figure in figures]
        yield variant, styles.of(condition, variant)
        owner = {"model": variant.run.model, "variant": variant.label, "tags": variant.tags}
        for figure, count in zip(figures, before, strict=True):
            for trace in figure.data[count:]:
                label = html.unescape(trace.get("name") or variant.label)
                trace["meta"] = {"label": label, **owner, **trace.get("meta", {})}
