"""The page `docs/findings.md`: what the runs of `results.db` say about state tracking; `make readme` renews it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median_low

from orthobench.analysis.claims.checking import check_runs
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.horizons import (
    FEWEST,
    LEVELS,
    STILL_LEARNING,
    Horizon,
    Outcome,
    agreement,
    fits,
    horizons,
    median_outcome,
    outcomes,
)
from orthobench.analysis.test_lengths import HELD
from orthobench.errors import counted
from orthobench.papers import find_study
from orthobench.reporting.figures.stills import svg
from orthobench.reporting.figures.tracking_figures import Tracked, tracked_runs, tracking_figures
from orthobench.reporting.page.matrix import families_of_models
from orthobench.reporting.page.pages import headline, leaderboard, more_seeds
from orthobench.reporting.page.studies import StoredStudy
from orthobench.reporting.tables.longer_tests import longer_table
from orthobench.spec.index import index
from orthobench.store import Run
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
    runs = tracked_runs(tracked)
    text = page(
        "# State tracking",
        "<!-- Written by `make readme` from results.db. -->",
        "## Question",
        "Which cells learn to track a state, and how far beyond the lengths of training do they keep it? Does the "
        "spread of the outputs within a state forecast where a cell loses it? [Track states](state-tracking.md) "
        "describes the tasks and the probe. Every number below is computed from the runs of `results.db`.",
        *_earlier_versions(found.conditions),
        *_protocol(studies.get(STUDY)),
        *_results(studies.get(STUDY)),
        *_horizons(runs, pictures),
        *_forecasts(runs),
        *_claims([variant for _, condition in tracked for variant in condition.variants if horizons(variant)]),
        *_longer(studies.get(LONGER)),
        *_limits(studies.get(STUDY)),
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


def _protocol(result: StoredStudy | None) -> list[str]:
    """Say how the runs of the study were trained and judged, and which models have another learning rate."""
    if result is None:
        return []
    runs = result.runs
    steps = _listed(sorted({run.total_iterations for run in runs}))
    longest = _listed(sorted({run.spec["task_settings"]["test_longest"] for run in runs}))
    rates = sorted({float(run.spec["model_settings"]["learning_rate"]) for run in runs})
    slow = [run for run in runs if _recurrent_rate(run) not in (None, run.spec["model_settings"]["learning_rate"])]
    smallest = min((rate for run in slow if (rate := _recurrent_rate(run)) is not None), default=0.0)
    stopped = sum(run.solved_at is not None for run in runs)
    parts = [
        "## Protocol",
        f"Every model trains once per seed with the same settings, for at most {steps} iterations of 32 sequences. "
        f"Tests have lengths up to {longest}. Of the study, {result.progress_words}.",
        f"The learning rate is {_listed_rates(rates)}, without a search.",
    ]
    if slow:
        parts[-1] += (
            f" The recurrent matrices of {counted(len({run.model for run in slow}), 'model')}, in {len(slow)} of "
            f"{counted(len(runs), 'run')}, keep the rates of their papers, which are as small as {smallest:g}."
        )
    parts[-1] += (
        f" {counted(stopped, 'run')} stopped because the test reached 99 %, so the keepers among them are selected on "
        "the test. [A comparison under one protocol](protocol.md) tunes all models alike and stops on validation data."
    )
    return [
        *parts,
        f"The probe `error_control` measures the share of states that the decoder reads at each length, rescaled so "
        f"that chance is 0 and perfect is 1. This score is taken not to grow with the length. A run *fits* if its "
        f"score is at least {HELD:g} at all lengths of training. It *keeps* the state if that holds up to the longest "
        "test, and else *loses* it. A run that does not fit is *still learning* if its training loss fell by more than "
        f"{100 * (1 - STILL_LEARNING):.0f} % in the second half of training, and *flat* otherwise. A diverged run "
        "counts as the worst outcome. A model's outcome is that of its median seed.",
    ]


def _recurrent_rate(run: Run) -> float | None:
    rate = run.spec["model_settings"].get("recurrent_learning_rate")
    return None if rate is None else float(rate)


def _listed_rates(rates: Sequence[float]) -> str:
    return " or ".join(f"{rate:g}" for rate in rates)


def _results(result: StoredStudy | None) -> list[str]:
    """Say which models fit, keep and lose the state, in each part of the study."""
    if result is None:
        return []
    rows, keeping, losing = [], set(), set()
    for figure, condition in result.conditions:
        ended = [(variant, outcome) for variant in condition.variants if (outcome := median_outcome(variant))]
        counts = Counter(outcome for _, outcome in ended)
        keeps = [variant for variant, outcome in ended if outcome == Outcome.KEEPS]
        keeping |= {variant.run.model for variant in keeps}
        losing |= {variant.run.model for variant, outcome in ended if outcome == Outcome.LOSES}
        seeds = max((len(outcomes(variant)) for variant, _ in ended), default=0)
        named = [
            f"{variant.label} ({outcomes(variant).count(Outcome.KEEPS)} of {len(outcomes(variant))})"
            for variant in sorted(keeps, key=lambda variant: variant.label.lower())
        ]
        numbers = (seeds, len(ended), *(counts[outcome] for outcome in Outcome))
        rows.append([escape(figure), *map(str, numbers), escape(", ".join(named))])
    return [
        "## What the cells end with",
        table(
            [
                "task", "seeds", "models", "diverge", "do not fit: flat", "do not fit: still learning", "fit and lose",
                "keep", "which keep it (seeds)",
            ],
            rows,
        ),
        f"On at least one task, the state is kept up to the longest test by {_families(keeping)}. "
        f"On at least one task, it is lost beyond the lengths of training by {_families(losing)}.",
        fenced(f"orthobench study {STUDY} --seeds 3\northobench report --html --db results.db"),
        RANKS,
        *_ranking(result),
    ]  # fmt: skip


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


def _horizons(runs: Sequence[Tracked], pictures: dict[str, str]) -> list[str]:
    """Say how near the horizon implied by the distinguishability ratio is to the measured one."""
    if not runs:
        return []
    fitted = [run for run in runs if run.horizon.fits]
    loses = [run for run in fitted if run.horizon.loses]
    ends: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for run in runs:
        ends.setdefault((run.variant.label, run.figure), []).append((run.horizon.fits, run.horizon.loses))
    several = [own for own in ends.values() if len(own) > 1]
    alike = sum(len(set(own)) == 1 for own in several)
    stable = (
        f" For {alike} of the {len(several)} pairs of a model and a task with several finished seeds, all seeds end "
        "alike: they do not fit, they fit and lose the state, or they keep it."
        if several
        else ""
    )
    return [
        "## How far the state is kept",
        "The horizon of a run is the greatest length before its score falls below a level. "
        f"{len(runs)} finished runs have the probe, {len(fitted)} of them fit, and {len(loses)} of these lose the "
        f"state before the longest test.{stable}",
        "Each cell has the horizons of the median seed at the levels "
        f"{', '.join(f'{100 * level:g} %' for level in LEVELS)}, with the exact binomial 90 % interval of "
        "the middle one. *Beyond*: beyond the longest test. Tests of a language have few strings of each length, "
        "so neighbouring lengths are measured together. Only models whose median seed fits are shown.",
        _levels_table(runs),
        *(f"![{FIGURES[name]}](findings-{name}.svg)" for name in pictures if name != "horizons"),
    ]


def _levels_table(runs: Sequence[Tracked]) -> str:
    """Build the table of horizons at three levels, with the interval of the middle one, the farthest model first."""
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
        first, second, third = (_length(reading.horizon(level)) for level in LEVELS)
        return f"{first}, {second} [{low}, {high}], {third}"

    def reach(variants: dict[str, VariantData]) -> float:
        return sum(min(each.measured, each.longest) for each in map(middle, variants.values()))

    rows = [
        [escape(label), escape(family), *(cell(variants.get(figure)) for figure in figures)]
        for (label, family), variants in sorted(own.items(), key=lambda item: (-reach(item[1]), item[0]))
    ]
    return table(["model", "family", *map(escape, figures)], rows)


def _forecasts(runs: Sequence[Tracked]) -> list[str]:
    """Say how near the lengths that follow from the distinguishability ratio are to the measured horizons."""
    loses = [run for run in runs if run.horizon.loses]
    if not loses:
        return []

    def constant(run: Tracked) -> float | None:
        """The median of other seeds on the task; None for a task with one seed, which has no other."""
        known = [
            other.horizon.measured
            for other in loses
            if other.figure == run.figure and other.horizon.seed != run.horizon.seed
        ]
        return median_low(known) if known else None

    ways: list[tuple[str, Callable[[Tracked], float | None]]] = [
        (
            "implied by the ratio of the same test sequences",
            lambda run: run.horizon.predicted if run.horizon.is_predicted else None,
        ),
        ("forecast from the training lengths alone", lambda run: run.horizon.forecast),
        ("null: the longest training length, for every run", lambda run: run.horizon.trained),
        ("null: the median horizon of other seeds on the task", constant),
    ]
    rows, agreed = [], {}
    for words, length in ways:
        found = agreement([(run.horizon, length(run)) for run in loses])
        if found:
            agreed[words] = found
            rows.append([words, str(found.runs), f"{found.near} ({100 * found.share:.0f} %)", f"{found.error:.2f}"])
    both = [run for run in loses if run.horizon.forecast is not None and constant(run) is not None]
    null = agreement([(run.horizon, constant(run)) for run in both])
    own = agreement([(run.horizon, run.horizon.forecast) for run in both])
    verdict = (
        f"Over the {own.runs} runs with a forecast and other seeds, it is within a factor of two for {own.near}, and "
        f"the constant of other seeds for {null.near} of {null.runs}. "
        + ("So the ratio forecasts the horizon." if own.near > null.near else "So the ratio is no forecast.")
        if own and null
        else ""
    )
    outlast = {
        kind: [
            run.horizon.shown(run.horizon.measured) / run.horizon.shown(run.horizon.predicted)
            for run in runs
            if run.horizon.fits and run.horizon.is_predicted_inside and (run.family == "linear") == (kind == "linear")
        ]
        for kind in ("linear", "nonlinear")
    }
    longer = " and ".join(
        f"{sum(ratio > 2 for ratio in ratios)} of {len(ratios)} runs of {kind} cells"
        for kind, ratios in outlast.items()
        if ratios
    )
    return [
        "## Does the ratio forecast the horizon?",
        "A margin is the output for the true state minus the largest output for any other state. The "
        "distinguishability ratio is the spread of the margins within a state over their mean. The probe finds on the "
        "training sequences up to which ratio the decoder reads the states. The *implied* horizon is the greatest "
        "length up to which the ratio stays below this threshold. It comes from the margins of the same test "
        "sequences as the measured horizon, so agreement is no forecast. The *forecast* extends the ratio's growth as "
        "a power of the length, fitted over the lengths of training alone.",
        "Runs that fit and lose the state, with both lengths cut at the longest test. Error: the root mean square of "
        "the ratio's logarithm, as a factor.",
        table(["length", "runs", "within a factor of two", "error"], rows),
        verdict,
        "A linear update cannot correct errors between the states it stores ([arXiv "
        "2605.07755](https://arxiv.org/abs/2605.07755)), so its errors grow with the length. A nonlinear one can, and "
        f"may outlast the implied horizon. Twice as long and more last {longer}.",
        f"![{FIGURES['horizons']}](findings-horizons.svg)",
        "Each cell has the implied and the measured horizon, each of the median seed. *None*: the ratio implies none. "
        "Parentheses: the median seed does not fit.",
        _horizon_table(runs),
        fenced("orthobench run group_word gru -s group=S3 -s probes=error_control"),
    ]


def _horizon_table(runs: Sequence[Tracked]) -> str:
    """Build the table of both horizons of the median seed: a row for each model, the one that keeps most at the top."""
    figures = list(dict.fromkeys(run.figure for run in runs))
    cells: dict[tuple[str, str], dict[str, list[Horizon]]] = {}
    fitting = {(run.variant.label, run.figure): fits(run.variant) is True for run in runs}
    for run in runs:
        cells.setdefault((run.variant.label, run.family), {}).setdefault(run.figure, []).append(run.horizon)

    def cell(own: Sequence[Horizon], is_fit: bool) -> str:
        if not own:
            return "–"
        predicted = [one.predicted for one in own if one.is_predicted]
        first = _length(median_low(predicted)) if predicted else "none"
        middle = sorted(own, key=lambda one: one.measured)[(len(own) - 1) // 2]
        both = f"{first}, {_length(middle.measured)}"
        return both if is_fit else f"({both})"

    def reach(own: dict[str, list[Horizon]]) -> float:
        return sum(min(median_low(one.measured for one in each), each[0].longest) for each in own.values())

    rows = [
        [
            escape(label),
            escape(family),
            *(cell(own.get(figure, []), fitting.get((label, figure), False)) for figure in figures),
        ]
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
        "## Statements of this project and their checks",
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


def _limits(result: StoredStudy | None) -> list[str]:
    """Say what the runs cannot show, and which result would change the conclusions."""
    if result is None:
        return []
    ended = [
        outcome for _, condition in result.conditions for variant in condition.variants for outcome in outcomes(variant)
    ]
    learning, unfitted = ended.count(Outcome.LEARNING), sum(not outcome.fits for outcome in ended)
    few = [
        escape(figure) for figure, condition in result.conditions if max(len(v.runs) for v in condition.variants) < 3
    ]
    return [
        "## What would change our mind",
        "\n".join(
            [
                "- *These cells cannot fit*: a run with searched rates, or a longer one, that fits. Of the "
                f"{unfitted} runs that do not fit, {learning} were still learning when they ended.",
                "- *The keepers keep the state*: a seed that loses it, or a loss at longer tests.",
                "- *The ratio is no forecast*: a growth law, fitted on the lengths of training alone, that is nearer "
                "than both nulls on seeds and tasks that did not choose it.",
            ]
        ),
        "## Limits",
        "\n".join(
            [
                "- One width, one schedule and no search of learning rates: a model that does not fit here may fit "
                "elsewhere.",
                *([f"- {', '.join(few)} have fewer than three seeds."] if few else []),
                "- The lengths of one test share their sequences, so the binomial intervals of neighbouring lengths "
                f"are not independent. Runs that did not store the number of states per length count as {FEWEST}.",
                "- Languages have too few ranges of lengths within training for a forecast, so it is tried on "
                "words alone.",
                "- There is no positive control with S5, which no run of the study trains.",
            ]
        ),
    ]


def _length(horizon: float) -> str:
    return "beyond" if horizon == float("inf") else f"{horizon:.0f}"


def _listed(numbers: Sequence[int]) -> str:
    return " or ".join(f"{number:,}" for number in numbers)
