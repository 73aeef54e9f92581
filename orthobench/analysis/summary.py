"""The results of runs by condition, as a sweep ends with them: a row for each variant, and one for the baseline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from orthobench.analysis.compare import ends_of_tests
from orthobench.analysis.inference import Standing, standings_in_ranking
from orthobench.analysis.scores import all_solve
from orthobench.analysis.statistics import FEWEST_SEEDS, Median, median, summarize
from orthobench.analysis.variants import Variant, briefs, group, variants
from orthobench.metric import Metric
from orthobench.store import Run, Status, Store

END = "end: median [95 %]"
"""The heading of the values by which the rows are ranked."""
COMPARISON, NO_BETTER, NO_RESULT = "compared", "no better", "no result"
"""The heading of the comparison with the first row, and what stands there if this one does not beat the baseline, and
in rows whose runs have not ended."""


def summary(store: Store, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the results of each variant over its seeds, with the baseline of each task, as rows by heading.

    The best is first, by the median of the runs' ends, as in all rankings. The first with three seeds is "best" if it
    beats the baseline, and "no better" if its median does not, or the interval of the mean contains the baseline. The
    others are in the states of `inference.Standing`; those whose runs failed or have not ended have "no result".
    """
    ends = {run: end.value for run, end in ends_of_tests(store, runs).items()}
    described = [(variant, brief) for own in [variants(runs)] for variant, brief in zip(own, briefs(own), strict=True)]
    conditions = group(described, lambda each: each[0].run.condition)
    return [record for same in conditions for record in _ranked(same, ends)]


def _ranked(rows: Sequence[tuple[Variant, dict[str, Any]]], ends: Mapping[int, float]) -> list[dict[str, Any]]:
    """Return the table rows of the variants of one condition, and of its baseline, the best first.

    Args:
        rows: the variants, each with its row of a list (`variants.briefs`).
        ends: of the runs with tests, by id.
    """
    run = rows[0][0].run
    metric = run.main_metric
    known = [
        each.baselines[each.metric] for variant, _ in rows for each in variant.runs if each.metric in each.baselines
    ]
    baseline = statistics.median(known) if known else None  # as on the page, because each run has its own

    def scored(variant: Variant) -> list[tuple[Run, float]]:
        own = [(run, ends[run.id]) for run in variant.finished if run.id in ends]
        diverged = [(run, math.nan) for run in variant.runs if run.status == Status.DIVERGED]
        return [(run, metric.worst if math.isnan(value) else value) for run, value in (*own, *diverged)]

    def loss(middle: Median | None) -> float:
        return math.inf if middle is None else metric.sign * middle.value

    own = [(brief, scored(variant)) for variant, brief in rows]
    rated = [(brief, pairs, median([value for _, value in pairs])) for brief, pairs in own]
    rated.sort(key=lambda each: (each[2] is None, loss(each[2])))
    ended = [[value for _, value in pairs] for _, pairs, _ in rated if pairs]  # the others, without a score, are last
    solved = [all_solve(pairs) for _, pairs, _ in rated if pairs]

    def of_best(values: Sequence[float]) -> str:
        is_finite = math.isfinite(statistics.median(values))
        if not is_finite or (baseline is not None and not _beats(metric, values, baseline)):
            return NO_BETTER
        return "" if len(ended) == 1 else "best" if len(values) >= FEWEST_SEEDS else Standing.FEW

    standings = standings_in_ranking(ended, solved)
    notes = [of_best(ended[k]) if each is None else str(each) for k, each in enumerate(standings)]
    notes += [NO_RESULT] * (len(rated) - len(ended))
    records = []
    for (brief, _, middle), note in zip(rated, notes, strict=True):
        others = {name: value for name, value in brief.items() if name != "final: median [95 %]"}
        shown = "diverged" if middle is not None and math.isinf(middle.value) else middle and str(middle)
        records.append({"model": brief["model"], END: shown, "metric": metric.name, COMPARISON: note} | others)
    if baseline is not None:
        place = sum(loss(middle) < metric.sign * baseline for _, _, middle in rated)
        blank = dict.fromkeys(records[0], "")
        records.insert(place, blank | {"model": "baseline", END: baseline, "metric": metric.name})
    return records


def _beats(metric: Metric, values: Sequence[float], baseline: float) -> bool:
    """Return whether values are better than a baseline: their median, and the interval of the mean of finite ones."""
    losses = [metric.sign * value for value in values]
    mean = summarize(losses)
    upper = -math.inf if mean is None or mean.half_width is None else mean.mean + mean.half_width
    return max(statistics.median(losses), upper) < metric.sign * baseline
