"""The tables and pictures of `docs/findings.md`, from the runs of `results.db`; `make readme` renews them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median_low

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.horizons import Horizon, fits, horizons
from orthobench.analysis.variants import newer_version
from orthobench.reporting.account.matrix import families_of_models
from orthobench.reporting.account.studies import StoredStudy
from orthobench.reporting.figures.stills import svg
from orthobench.reporting.figures.tracking_figures import Tracked, tracked_runs, tracking_figures
from orthobench.store import Run, Status
from workshop.website.figures import SIZE
from workshop.website.horizon_outcomes import HorizonOutcome, agreement, median_outcome, outcomes
from workshop.website.markdown import escape, table
from workshop.website.results import Everything

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "findings.md"
STUDY, LONGER = "state-tracking", "longer-sequences"
TASKS = {"group_word": "group", "formal_language": "language"}
"""The tasks with states, and the setting that names their machine."""
FIGURES = ("horizons", "families", "eigenvalues")
GROUPS = {"S3", "A5"}
"""The tasks of words that were trained with three seeds."""


def tables(found: Everything) -> dict[str, str]:
    """Return the tables of the page by their names."""
    studies = {result.study.name: result for result in found.studies}
    tracking, longer = studies[STUDY], studies[LONGER]
    runs = tracked_runs(_compared(found))
    return {
        "runs": runs_table([tracking, longer]),
        "outcomes": outcomes_table(tracking),
        "totals": totals_table(tracking, runs),
        "horizons": _horizons_table(runs),
        "forecasts": _forecasts_table(runs),
        "outlasting": _outlasting_table(runs),
    }


def pictures(found: Everything) -> dict[Path, str]:
    """Draw the pictures of the page, by their files."""
    drawn = tracking_figures(_compared(found))
    return {PAGE.with_name(f"findings-{name}.svg"): svg(drawn[name][1], *SIZE) for name in FIGURES if name in drawn}


def _compared(found: Everything) -> list[tuple[str, Condition]]:
    """Return the conditions whose runs have horizons, by their machines, without the runs of trials."""
    compared = [
        replace(condition, variants=[variant for variant in condition.variants if not variant.tags])
        for condition in found.conditions
        if condition.task in TASKS
    ]
    return [
        (str(condition.settings[TASKS[condition.task]]), condition)
        for condition in compared
        if any(map(horizons, condition.variants))
    ]


def runs_table(results: Sequence[StoredStudy]) -> str:
    """Build the table of how the runs of studies were trained and ended: a column for each study."""

    def column(runs: Sequence[Run]) -> dict[str, str]:
        statuses = Counter(run.status for run in runs)
        rates = {float(run.spec["model_settings"]["learning_rate"]) for run in runs}
        steps = {run.total_iterations for run in runs}
        longest = {run.spec["task_settings"].get("test_longest") for run in runs} - {None}
        slow = [
            (run.model, float(rate))
            for run in runs
            if (rate := run.spec["model_settings"].get("recurrent_learning_rate")) is not None
            and rate != run.spec["model_settings"]["learning_rate"]
        ]
        return {
            "runs": f"{len(runs):,}",
            "finished": f"{statuses[Status.FINISHED]:,}",
            "diverged": f"{statuses[Status.DIVERGED]:,}",
            "iterations, at most": " or ".join(f"{each:,}" for each in sorted(steps)),
            "longest test": " or ".join(f"{length:,}" for length in sorted(longest)) or "–",
            "learning rate": " or ".join(f"{rate:g}" for rate in sorted(rates)),
            "models with a recurrent rate": f"{len({model for model, _ in slow}):,}",
            "runs with a recurrent rate": f"{len(slow):,}",
            "smallest recurrent rate": f"{min(rate for _, rate in slow):g}" if slow else "–",
            "stopped when solved": f"{sum(run.solved_at is not None for run in runs):,}",
            "changed since": escape(", ".join(_changed(runs))) or "–",
        }

    columns = [column(result.runs) for result in results]
    return table(
        ["", *(result.study.name for result in results)],
        [[name, *(each[name] for each in columns)] for name in columns[0]],
    )


def _changed(runs: Sequence[Run]) -> list[str]:
    """Name the models whose runs are of an earlier version than the code's."""
    earlier = {
        f"{run.model} (version {run.spec['model_version']}, now {now})" for run in runs if (now := newer_version(run))
    }
    return sorted(earlier)


def outcomes_table(result: StoredStudy) -> str:
    """Build the table of which models fit, keep and lose the state, for each part of the study."""
    rows = []
    for figure, condition in result.conditions:
        ended = [(variant, outcome) for variant in condition.variants if (outcome := median_outcome(variant))]
        counts = Counter(outcome for _, outcome in ended)
        keeps = [variant for variant, outcome in ended if outcome == HorizonOutcome.KEEPS]
        seeds = max((len(outcomes(variant)) for variant, _ in ended), default=0)
        named = [
            f"{variant.label} ({outcomes(variant).count(HorizonOutcome.KEEPS)} of {len(outcomes(variant))})"
            for variant in sorted(keeps, key=lambda variant: variant.label.lower())
        ]
        numbers = (seeds, len(ended), *(counts[outcome] for outcome in HorizonOutcome))
        rows.append([escape(figure), *map(str, numbers), escape(", ".join(named))])
    return table(
        [
            "task", "seeds", "models", "diverge", "do not fit: flat", "do not fit: still learning", "fit and lose",
            "keep", "which keep it (seeds)",
        ],
        rows,
    )  # fmt: skip


def totals_table(result: StoredStudy, runs: Sequence[Tracked]) -> str:
    """Count runs and models over all parts of the study."""
    variants = [variant for _, condition in result.conditions for variant in condition.variants]
    ended = [outcome for variant in variants for outcome in outcomes(variant)]
    ends: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for run in runs:
        ends.setdefault((run.variant.label, run.figure), []).append((run.horizon.fits, run.horizon.loses))
    several = [own for own in ends.values() if len(own) > 1]

    def models(outcome: HorizonOutcome) -> list[str]:
        known = families_of_models()
        own = {variant.run.model for variant in variants if median_outcome(variant) == outcome}
        return [str(len(own)), ", ".join(sorted({known.get(model, "other") for model in own}))]

    rows = [
        ["models that keep", *models(HorizonOutcome.KEEPS)],
        ["models that lose", *models(HorizonOutcome.LOSES)],
        ["runs with the probe", str(len(runs)), ""],
        ["runs that fit", str(sum(run.horizon.fits for run in runs)), ""],
        ["runs that lose", str(sum(run.horizon.loses for run in runs)), ""],
        ["runs that do not fit", str(sum(not outcome.fits for outcome in ended)), ""],
        ["runs still learning", str(ended.count(HorizonOutcome.LEARNING)), ""],
        ["pairs", str(len(several)), ""],
        ["pairs that end alike", str(sum(len(set(own)) == 1 for own in several)), ""],
    ]
    return table(["", "number", "families"], [[*map(escape, row)] for row in rows])


def _horizons_table(runs: Sequence[Tracked]) -> str:
    """Build the table of measured and implied horizons of the median seeds that fit, the farthest model first.

    Only models that fit one of `GROUPS` have a row, because the page of the report has the figures of all.
    """
    figures = list(dict.fromkeys(run.figure for run in runs))
    own: dict[tuple[str, str], dict[str, VariantData]] = {}
    for run in runs:
        if fits(run.variant):
            own.setdefault((run.variant.label, run.family), {})[run.figure] = run.variant

    def middle(variant: VariantData) -> Horizon:
        ranked = sorted(horizons(variant), key=lambda each: each.measured)
        return ranked[(len(ranked) - 1) // 2]

    def cell(variant: VariantData | None) -> str:
        if variant is None or (reading := middle(variant).reading) is None:
            return "–"
        low, high = (_length(end) for end in reading.interval())
        predicted = [each.predicted for each in horizons(variant) if each.is_predicted]
        implied = _length(median_low(predicted)) if predicted else "none"
        measured = _length(middle(variant).measured)
        return f"{measured}{'' if low == high else f' [{low}, {high}]'}, {implied}"

    def reach(variants: dict[str, VariantData]) -> float:
        return sum(min(each.measured, each.longest) for each in map(middle, variants.values()))

    rows = [
        [escape(label), escape(family), *(cell(variants.get(figure)) for figure in figures)]
        for (label, family), variants in sorted(own.items(), key=lambda item: (-reach(item[1]), item[0]))
        if GROUPS & {*variants}
    ]
    return table(["model", "family", *map(escape, figures)], rows)


def _forecasts_table(runs: Sequence[Tracked]) -> str:
    """Compare the lengths that follow from the distinguishability ratio, and two nulls, with the measured horizons."""
    loses = [run for run in runs if run.horizon.loses]

    def constant(run: Tracked) -> float | None:
        """The median of other seeds on the task; None for a task with one seed, which has no other."""
        known = [
            other.horizon.measured
            for other in loses
            if other.figure == run.figure and other.horizon.seed != run.horizon.seed
        ]
        return median_low(known) if known else None

    def implied(run: Tracked) -> float | None:
        return run.horizon.predicted if run.horizon.is_predicted else None

    def forecast(run: Tracked) -> float | None:
        return run.horizon.forecast

    def trained(run: Tracked) -> float:
        return run.horizon.trained

    both = [run for run in loses if forecast(run) is not None and constant(run) is not None]
    ways: list[tuple[str, Sequence[Tracked], Callable[[Tracked], float | None]]] = [
        ("implied by the ratio of the same test sequences", loses, implied),
        ("forecast from the training lengths alone", loses, forecast),
        ("null: the longest training length, for every run", loses, trained),
        ("null: the median horizon of all models' other seeds on the task", loses, constant),
        ("forecast, where both exist", both, forecast),
        ("null: other seeds, where both exist", both, constant),
    ]
    rows = [
        [words, str(found.runs), f"{found.near} ({100 * found.share:.0f} %)", f"{found.error:.2f}"]
        for words, own, length in ways
        if (found := agreement([(run.horizon, length(run)) for run in own]))
    ]
    return table(["length", "runs", "within a factor of two", "error"], rows)


def _outlasting_table(runs: Sequence[Tracked]) -> str:
    """Count the runs that keep the state more than twice as long as the ratio implies."""
    rows = []
    for kind in ("linear", "nonlinear"):
        ratios = [
            run.horizon.shown(run.horizon.measured) / run.horizon.shown(run.horizon.predicted)
            for run in runs
            if run.horizon.fits and run.horizon.is_predicted_inside and (run.family == "linear") == (kind == "linear")
        ]
        rows.append([kind, str(len(ratios)), str(sum(ratio > 2 for ratio in ratios))])
    return table(["cells", "runs", "last more than twice as long"], rows)


def _length(horizon: float) -> str:
    return "beyond" if horizon == float("inf") else f"{horizon:.0f}"
