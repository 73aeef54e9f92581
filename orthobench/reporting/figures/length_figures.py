"""Draw a metric over the length of the test sequences, with the training lengths shaded or as the unit."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np

from orthobench.analysis.by_length import length_curve, length_metric, scores_at, trained_range
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.curves import Curve
from orthobench.metric import Metric
from orthobench.reporting.account.captions import Caption, brief, caption
from orthobench.reporting.figures.drawing import add_baseline, add_curve, empty_figure
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.figures import Drawn, styled
from orthobench.reporting.figures.styles import GREY, Styles

MOST = 8
"""The most curves in one figure."""
SHADE = "rgba(136,136,136,0.16)"
OVER_LENGTH = "The metric over the length of the test sequences"
MEANS = "Each point is the mean over a few lengths."
BASELINE = "Grey dashes: the baseline over all lengths together."
SHADED = "Shaded, with a grey bar on the axis: the lengths of training."
BEST_MEANS = "The variants with the best means over all lengths; the tables have all."
BEST_SUMS = "The variants with the best sums; the table has all."


def over_length(
    condition: Condition,
    styles: Styles,
    most: int | None = None,
    bin_size: int = 1,
) -> tuple[Caption, Figure] | None:
    """Draw the metric of each variant's last evaluation over length; return caption and figure, None without data.

    The baseline is a dashed line. The training lengths are shaded, with a thick grey line on the axis.

    Args:
        most: draw at most this many variants, with the best means over all lengths; the caption says so.
        bin_size: number of neighbouring lengths whose values are averaged, if at least `bin_size` points remain; the
            caption says so.
    """
    known = [variant for variant in condition.variants if length_metric(variant)]
    if not known:
        return None
    name = length_metric(known[0])
    metric, trained = condition.metric_named(name), trained_range(known[0])
    curves = {variant.run.variant: curve for variant in known if (curve := length_curve(variant)) is not None}
    chosen = best_over_length(condition, most)
    if max((len(curve.x) for curve in curves.values()), default=0) < bin_size**2:
        bin_size = 1
    figure = empty_figure("length of the test sequence", f"test {metric.axis}")
    ends, top = list(trained or ()), 1.0 if metric.is_fraction else 0.0
    for variant, style in styled(replace(condition, variants=chosen), styles, figure):
        curve = curves[variant.run.variant]
        if bin_size > 1:
            curve = length_curve(variant, bin_size) or curve
        ends += [float(curve.x[0]), float(curve.x[-1])]
        top = max(top, float(np.nanmax(curve.high, initial=0.0)))
        add_curve(figure, curve, curve.x, variant.label, style)
    shortest, longest = min(ends), max(ends)
    figure.update_xaxes(range=[shortest - 0.01 * (longest - shortest), longest or 1])
    figure.update_yaxes(range=[0, 1.02 * top or 1])
    baseline = known[0].run.baselines.get(name)
    if baseline is not None:
        add_baseline(figure, [shortest, longest], baseline)
    if trained is not None:
        _shade(figure, trained, top)
    notes = {
        MEANS: bin_size > 1,
        BASELINE: baseline is not None,
        SHADED: trained is not None,
        BEST_MEANS: len(chosen) < len(curves),
    }
    return brief(OVER_LENGTH, condition).also(notes=[note for note, holds in notes.items() if holds]), figure


def best_over_length(condition: Condition, most: int | None) -> list[VariantData]:
    """Return at most this many variants, those with the best means over all lengths, in the condition's order."""
    known = [variant for variant in condition.variants if length_metric(variant)]
    means = {
        variant.run.variant: _mean(curve, condition.metric_named(length_metric(variant)))
        for variant in known
        if (curve := length_curve(variant)) is not None
    }
    best = sorted(means, key=lambda key: means[key])[:most]
    return [variant for variant in condition.variants if variant.run.variant in best]


def _mean(curve: Curve, metric: Metric) -> float:
    """Return the mean of the finite medians over all lengths, or the worst value without one; lower is better."""
    finite = curve.median[np.isfinite(curve.median)]
    return metric.sign * (float(finite.mean()) if len(finite) else metric.worst)


def _shade(figure: Figure, trained: tuple[float, float], top: float) -> None:
    """Shade a range of x, behind the curves."""
    group = {"showlegend": False, "hoverinfo": "skip", "mode": "lines", "x": [*trained]}
    curves, figure.data = figure.data, []
    figure.add_scatter(y=[1.02 * top] * 2, line={"width": 0}, **group)
    figure.add_scatter(y=[0, 0], line={"width": 0}, fill="tonexty", fillcolor=SHADE, **group)
    figure.add_scatter(
        x=[*trained],
        y=[0, 0],
        mode="lines",
        name=f"trained on {trained[0]:g} to {trained[1]:g}",
        hoverinfo="skip",
        line={"color": GREY, "width": 7},
    )
    figure.data += curves


def longer_tests(figure_name: str, condition: Condition, styles: Styles) -> Drawn:
    """Draw the score over the multiple of T, for at most `MOST` of the variants with the best sums.

    The scores are in percent, as in the table and in the matrix.
    """
    scores = {variant.run.variant: found for variant in condition.variants if (found := scores_at(variant))}
    best = sorted(scores, key=lambda key: -sum(map(median, scores[key].values())))[:MOST]
    chosen = [variant for variant in condition.variants if variant.run.variant in best]
    if not chosen:
        return {}
    shown = Condition(**{**vars(condition), "variants": chosen})
    figure = empty_figure("test length / training length", "score")
    for variant, style in styled(shown, styles, figure):
        found = scores[variant.run.variant]
        rows = [found[multiple] for multiple in found]
        low, middle, high = (np.array([100 * float(each(row)) for row in rows]) for each in (min, median, max))
        positions = np.array(list(found), dtype=float)
        add_curve(figure, Curve(positions, middle, low, high, len(rows[0])), positions, variant.label, style)
    ticks = sorted({multiple for found in scores.values() for multiple in found})
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick}T" for tick in ticks])
    figure.update_yaxes(range=[0, 102])
    words = caption("Score at multiples of T, from 0, the baseline, to 100, perfect", figure_name, shown)
    return {figure_name: (words.also(notes=[BEST_SUMS] if len(best) < len(scores) else []), figure)}
