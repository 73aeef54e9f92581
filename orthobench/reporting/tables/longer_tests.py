"""Show how far models get at multiples of the trained length, from a task's tests after training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

import numpy as np

from orthobench.analysis.conditions import Condition, VariantData, score_of
from orthobench.analysis.curves import Curve
from orthobench.reporting.figures.drawing import add_curve, empty_figure
from orthobench.reporting.figures.figures import Drawn, styled
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page.captions import caption
from orthobench.reporting.tables.study_table import StudyTable

MOST = 8
"""The most curves in one figure."""
AT_MULTIPLE = re.compile(r"(.+)_(\d+)t")
"""The name of a metric at a multiple of the trained length T; see `Metric.at_multiple`."""


def scores_at(variant: VariantData) -> dict[int, list[float]]:
    """Return the scores of a variant's finished and diverged runs by the multiple of T, from 0, the baseline, to 1.

    A diverged run counts as 0. Multiples at which no run was tested are left out. At the trained length the scores are
    those of the matrix, the ends of the task's main metric, and at the multiples those of the test after training.
    """
    found = [match for name in variant.run.metrics or {} if (match := AT_MULTIPLE.fullmatch(name))]
    if not found:
        return {}
    names = {int(match[2]): match[0] for match in found}
    scores = {1: variant.solved_shares} | {multiple: _scores(variant, name) for multiple, name in sorted(names.items())}
    return {multiple: values for multiple, values in scores.items() if values}


def _scores(variant: VariantData, name: str) -> list[float]:
    metric, baseline = variant.run.declared(name), variant.run.baselines.get(name)
    assert metric is not None
    ends = [float(series.iloc[-1]) for series in variant.series_of_runs("test", name).values()]
    perfect = metric.perfect(ends, baseline)
    if baseline is None or perfect is None or not ends:
        return []
    return [*(score_of(end, baseline, perfect) for end in ends), *[0.0] * variant.diverged]


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
    metric, longer = condition.metric.name, _longer_metric(condition)
    by = f", by {metric} at T and by {longer} at its multiples" if longer not in ("", metric) else ""
    words = caption(f"{figure_name}: score at multiples of T, from 0, the baseline, to 100, perfect{by}", shown)
    if len(best) < len(scores):
        words += f" The {len(best)} variants of {len(scores)} with the best sums. The table has all."
    return {figure_name: (words, figure)}


def _about(conditions: Sequence[tuple[str, Condition]]) -> str:
    """Say what the scores are, and by which metrics."""
    named = dict.fromkeys(
        f"{condition.task} by {own} at T" + (f" and by {longer} at its multiples" if longer != own else "")
        for _, condition in conditions
        for own, longer in {(condition.metric.name, _longer_metric(condition))}
        if longer
    )
    words = f": {'; '.join(named)}" if named else ""
    return (
        "From 0, the baseline, to 100, perfect: the median over seeds. At T it is the score of the matrix, from the "
        f"end of the tests; at its multiples, from one test after training{words}."
    )


def _longer_metric(condition: Condition) -> str:
    """Return the metric of the tests at multiples of T; "" without one."""
    names = (name for variant in condition.variants for name in variant.run.metrics or {})
    return next((match[1] for name in names if (match := AT_MULTIPLE.fullmatch(name))), "")


def longer_table(conditions: Sequence[tuple[str, Condition]]) -> list[StudyTable]:
    """Return the table of all variants: the median score at each multiple, in percent, by figure."""
    cells: dict[str, dict[tuple[str, int], float]] = {}
    for figure, condition in conditions:
        for variant in condition.variants:
            for multiple, values in scores_at(variant).items():
                cells.setdefault(variant.label, {})[figure, multiple] = 100 * median(values)
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    if not columns:
        return []
    labels = sorted(cells, key=lambda label: (-sum(cells[label].values()), label))
    rows = [
        (label, *(f"{cells[label][column]:.0f}" if column in cells[label] else "–" for column in columns))
        for label in labels
    ]
    headings = ("model", *(f"{figure} {multiple}T" for figure, multiple in columns))
    return [StudyTable(_about(conditions), headings, rows)]
