"""The page `docs/findings.md`: what the runs of `results.db` say about state tracking; `make readme` renews it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from statistics import median, median_low

from orthobench.analysis.claims.checking import check_runs
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.horizons import Horizon, horizons, log_correlation
from orthobench.errors import counted
from orthobench.papers import find_study
from orthobench.reporting.figures.stills import svg
from orthobench.reporting.figures.tracking_figures import Tracked, tracked_runs, tracking_figures
from orthobench.reporting.page.matrix import families_of_models
from orthobench.reporting.page.pages import headline, leaderboard, more_seeds
from orthobench.reporting.page.studies import StoredStudy
from orthobench.reporting.tables.longer_tests import longer_table
from orthobench.reporting.tables.study_lengths import UNFITTED, longest_held
from orthobench.spec.index import index
from website.figures import SIZE
from website.markdown import escape, fenced, page, table
from website.results import Everything

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "findings.md"
STUDY, LONGER = "state-tracking", "longer-sequences"
TASKS = {"group_word": "group", "formal_language": "language"}
"""The tasks with states, and the setting that names their machine."""
FIGURES = {
    "horizons": "Implied and measured horizon",
    "families": "Measured horizon by family",
    "eigenvalues": "Measured horizon and the smallest eigenvalue",
}


def findings(found: Everything) -> dict[Path, str]:
    """Return the page and its pictures, by their files."""
    compared = [
        replace(condition, variants=[variant for variant in condition.variants if not variant.tags])  # no trials
        for condition in found.conditions
        if condition.task in TASKS
    ]
    tracked = [
        (str(condition.settings[TASKS[condition.task]]), condition)
        for condition in compared
        if any(map(horizons, condition.variants))
    ]
    drawn = tracking_figures(tracked)
    pictures = {name: svg(figure, *SIZE) for name, (_, figure) in drawn.items() if name in FIGURES}
    studies = {result.study.name: result for result in found.studies}
    text = page(
        "# State tracking",
        "<!-- Written by `make readme` from results.db. -->",
        "Which cells learn to track a state, and which keep it on longer sequences? [Track states](state-tracking.md) "
        "describes the tasks and the probe. Every number below is computed from the runs of `results.db`.",
        *_earlier_versions(found.conditions),
        *_fits_and_keeps(studies.get(STUDY)),
        *_horizons(tracked_runs(tracked), pictures),
        *_claims([variant for _, condition in tracked for variant in condition.variants if horizons(variant)]),
        *_longer(studies.get(LONGER)),
    )
    return {PAGE: text, **{PAGE.with_name(f"findings-{name}.svg"): drawing for name, drawing in pictures.items()}}


def _earlier_versions(conditions: Sequence[Condition]) -> list[str]:
    """Name the models whose runs are of an earlier version than the code's."""
    plugins, earlier = index()["plugins"], set()
    for run in (run for condition in conditions for variant in condition.variants for run in variant.runs):
        now, then = plugins.get(f"model/{run.model}", {}).get("version"), run.spec["model_version"]
        if now is not None and str(now) != str(then):
            earlier.add(f"{escape(run.model)} (version {then}, now {now})")
    if not earlier:
        return []
    return [
        f"Some models have changed since their runs: {', '.join(sorted(earlier))}. Their pages say how, and "
        "`orthobench study` trains them again."
    ]


def _fits_and_keeps(result: StoredStudy | None) -> list[str]:
    """Say which models fit, keep and lose the state, in each part of the study."""
    if result is None:
        return []
    rows, keeping, losing = [], set(), set()
    for figure, condition in result.conditions:
        held = [(variant, cell[1]) for variant in condition.variants if (cell := longest_held(variant))]
        keeps = [variant for variant, text in held if text.endswith("+")]
        loses = [variant for variant, text in held if not text.endswith("+") and text not in (UNFITTED, "none")]
        keeping |= {variant.run.model for variant in keeps}
        losing |= {variant.run.model for variant in loses}
        diverged = [variant for variant in condition.variants if variant.diverged == len(variant.runs)]
        ends = (len(held) - len(keeps) - len(loses), len(loses), len(keeps), len(diverged))
        seeds = max((len(variant.finished) for variant in condition.variants), default=0)
        counts = (seeds, sum(ends), *ends)
        labels = sorted(variant.label for variant in keeps)
        rows.append([escape(figure), *map(str, counts), escape(", ".join(labels))])
    return [
        "## Failing to fit differs from losing the state",
        f"Of the study, {result.progress_words}. {_protocol(result)} A model keeps the state if its "
        "median seed is at least 90 % of the way from chance to 1 up to the longest test. It loses the state if this "
        "holds only at the lengths of training, and a bit beyond.",
        table(
            ["task", "seeds", "models", "do not fit", "fit and lose", "keep the state", "diverge", "which keep it"],
            rows,
        ),
        f"On at least one task, the state is kept up to the longest test by {_families(keeping)}. "
        f"On at least one task, it is lost beyond the lengths of training by {_families(losing)}.",
        fenced(f"orthobench study {STUDY} --seeds 3\northobench report --html --db results.db"),
        RANKS,
        *_ranking(result),
    ]


RANKS = (
    "Models are ranked by the ends of their tests. One is *tested apart* from the best by the permutation test of "
    "ranks, at 5 % over all models. It is *clearly worse* if it is worse in every seed, but there are too few for this "
    "test ([rankings](comparison.md#rankings))."
)


def _ranking(result: StoredStudy) -> list[str]:
    """Say for each part of a study how the models stand next to the best one, and which command decides."""
    lines: list[str] = []
    parts: dict[str, list[str]] = {}
    for figure, condition in result.conditions:
        rows = leaderboard(condition)
        if not rows:
            continue
        lines.append(f"- {escape(figure)}: {escape(headline(condition, rows))}.")
        more = more_seeds(condition, rows, [result])
        if more is not None and more.command:
            parts.setdefault(more.command, []).append(escape(figure))
    commands = (
        part
        for command, figures in parts.items()
        for part in (f"This trains the seeds for {', '.join(figures)}:", fenced(command))
    )
    return ["\n".join(lines), *commands] if lines else []


def _families(models: set[str]) -> str:
    """Count models, with the names of their families: "5 models (gated, plain)"."""
    known = families_of_models()
    names = sorted({known.get(model, "other") for model in models})
    return counted(len(models), "model") + (f" ({escape(', '.join(names))})" if names else "")


def _protocol(result: StoredStudy) -> str:
    """Describe how long the runs trained and how long their test sequences are, from the runs."""
    steps = sorted({run.total_iterations for run in result.runs})
    longest = sorted({run.spec["task_settings"]["test_longest"] for run in result.runs})
    return f"They train for at most {_listed(steps)} iterations, with tests at lengths up to {_listed(longest)}."


def _horizons(runs: Sequence[Tracked], pictures: dict[str, str]) -> list[str]:
    """Say how near the horizon implied by the distinguishability ratio is to the measured one."""
    if not runs:
        return []
    predicted = [run.horizon for run in runs if run.horizon.is_predicted]
    fitted = [horizon for horizon in predicted if horizon.fits]
    loses = [horizon for horizon in fitted if horizon.loses]
    both = sum(not horizon.is_predicted_inside and not horizon.loses for horizon in fitted)
    sentences = [
        f"{len(runs)} runs have the probe `error_control`. In {len(runs) - len(predicted)} of them, the decoder reads "
        "too few states of the training sequences. There the ratio implies no horizon, and they are left out.",
        f"In {len(fitted)} of the other {len(predicted)} runs, it reads them at all training lengths. "
        f"{len(loses)} of these lose the state before the longest test, and {both} keep it, as the ratio implies. "
        f"{counted(len(fitted) - len(loses) - both, 'run')} keep it although the ratio implies that they lose it.",
    ]
    if loses:
        ratios = [horizon.shown(horizon.predicted) / horizon.shown(horizon.measured) for horizon in loses]
        near = sum(0.5 <= ratio <= 2 for ratio in ratios)
        sentences.append(
            f"Where a run loses it, the implied horizon is within a factor of two of the measured one for {near} of "
            f"{len(loses)}, and the median of their ratios is {median(ratios):.2f}."
        )
    ends: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for run in runs:
        ends.setdefault((run.variant.label, run.figure), []).append((run.horizon.fits, run.horizon.loses))
    several = [own for own in ends.values() if len(own) > 1]
    if several:
        alike = sum(len(set(own)) == 1 for own in several)
        sentences.append(
            f"For {alike} of the {len(several)} pairs of a model and a task with several finished seeds, all seeds end "
            "alike: they do not fit, they fit and lose the state, or they keep it."
        )
    learned = [each for each in loses if each.is_predicted_inside]
    within = [each for each in predicted if each.is_predicted_inside and isfinite(each.measured)]
    if (correlation := log_correlation(learned)) is not None:
        sentences.append(
            f"Over the {len(learned)} of them with both horizons within the tests, the logarithms of the two have a "
            f"correlation of {correlation:.2f}."
        )
    if len(within) > len(learned) and (correlation := log_correlation(within)) is not None:
        sentences.append(
            f"With the runs that have no state to lose, which make agreement easy, it is {correlation:.2f} over "
            f"{len(within)}."
        )
    return [
        "## Implied and measured horizons",
        "A margin is the output for the true state minus the largest output for any other state. The "
        "distinguishability ratio is the spread of the margins within a state over their mean. The probe finds on the "
        "training sequences alone up to which ratio the decoder reads the states. The implied horizon is the "
        "greatest length up to which the ratio stays below this threshold. The measured horizon is the greatest "
        "length up to which the decoder reads 90 % of the states, on a scale from chance (0) to perfect (1). A "
        "linear update cannot correct errors between the states it stores ([arXiv "
        "2605.07755](https://arxiv.org/abs/2605.07755)), so errors grow with length. Tests of a language "
        "have few strings of each length, so neighbouring lengths are measured together, and a horizon is the longest "
        "of such a range. Both horizons come from the margins of the same test sequences: where they agree, the "
        "threshold of the training sequences carries over to longer ones. The ratio does not forecast the horizon "
        "from the training sequences alone.",
        " ".join(sentences),
        *(f"![{FIGURES[name]}](findings-{name}.svg)" for name in pictures),
        "Each cell has the implied and the measured horizon, each of the median seed. *beyond*: the horizon lies "
        "beyond the longest test; *none*: the ratio implies none. Parentheses: the model does not fit the lengths of "
        "training.",
        _horizon_table(runs),
        fenced("orthobench run group_word gru -s group=S3 -s probes=error_control"),
    ]


def _horizon_table(runs: Sequence[Tracked]) -> str:
    """Build the table of both horizons of the median seed: a row for each model, the one that keeps most at the top."""
    figures = list(dict.fromkeys(run.figure for run in runs))
    cells: dict[tuple[str, str], dict[str, list[Horizon]]] = {}
    for run in runs:
        cells.setdefault((run.variant.label, run.family), {}).setdefault(run.figure, []).append(run.horizon)

    def cell(own: Sequence[Horizon]) -> str:
        if not own:
            return "–"
        predicted = [one.predicted for one in own if one.is_predicted]
        first = _length(median_low(predicted)) if predicted else "none"
        middle = sorted(own, key=lambda one: one.measured)[(len(own) - 1) // 2]
        both = f"{first}, {_length(middle.measured)}"
        return both if middle.fits else f"({both})"

    def reach(own: dict[str, list[Horizon]]) -> float:
        return sum(min(median_low(one.measured for one in each), each[0].longest) for each in own.values())

    rows = [
        [escape(label), escape(family), *(cell(own.get(figure, [])) for figure in figures)]
        for (label, family), own in sorted(cells.items(), key=lambda item: (-reach(item[1]), item[0]))
    ]
    return table(["model", "family", *map(escape, figures)], rows)


def _claims(variants: Sequence[VariantData]) -> list[str]:
    """List the checked statements."""
    results = [result for result in check_runs(find_study(STUDY), variants) if result.is_decided]
    if not results:
        return []
    rows = [[escape(each.claim.text), escape(each.reason), escape(str(each.verdict))] for each in results]
    return [
        "## Statements and their checks",
        "A test tries each check on models that were never trained, or trained with the gradient's sign flipped.",
        table(["statement", "measured", "verdict"], rows),
        fenced(f"orthobench study {STUDY} --seeds 3"),
    ]


def _longer(result: StoredStudy | None) -> list[str]:
    """Show the scores on adding and copying at multiples of the trained length."""
    tables = longer_table(result.conditions) if result else []
    if not result or not tables:
        return []
    (scores,) = tables
    rows = [[escape(cell) for cell in row] for row in scores.rows]
    return [
        "## Adding and copying at longer lengths",
        f"{escape(scores.caption)} {result.progress_words}.",
        table(scores.headings, rows),
        fenced(f"orthobench study {LONGER} --seeds 3"),
        *_ranking(result),
    ]


def _length(horizon: float) -> str:
    return "beyond" if horizon == float("inf") else f"{horizon:.0f}"


def _listed(numbers: Sequence[int]) -> str:
    return " or ".join(f"{number:,}" for number in numbers)
