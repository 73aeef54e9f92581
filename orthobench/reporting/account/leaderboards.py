"""Leaderboards: who leads on a task, who is tested apart, and how many seeds would decide what is open."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.inference import Standing, open_seeds, standings_in_ranking, standings_summary
from orthobench.analysis.judged import how_judged, representatives
from orthobench.analysis.paper_tables import fill_command
from orthobench.analysis.scores import all_solve
from orthobench.analysis.statistics import FEWEST_SEEDS, Median
from orthobench.errors import shell_command
from orthobench.papers import find_paper
from orthobench.reporting.account.studies import StoredStudy

MOST_TIED, FIRST_TIED = 6, 3
"""The most names of a tie at the top that a headline says, and how many it says of a larger one."""
SAME_SIZE = 1.05
"""Up to this ratio, numbers of parameters count as equal: papers match sizes only roughly."""


@dataclass(frozen=True)
class LeaderboardRow:
    """A row of a leaderboard.

    Attributes:
        rank: equal for variants whose shown medians are equal; None for a variant that has none, because another
            one stands for its model.
        efficient: whether no other variant is both better and smaller, by more than `SAME_SIZE`.
        standing: how the variant stands next to the best with three seeds, at 5 % over all rows; None for that one.
    """

    rank: int | None
    variant: VariantData
    efficient: bool
    standing: Standing | None


def best_first(condition: Condition) -> Condition:
    """Return a condition with its variants ordered by the median over seeds of their ends, the best first."""

    def score(variant: VariantData) -> float:
        return condition.metric.sign * variant.median.value if variant.median else math.inf

    return replace(condition, variants=sorted(condition.variants, key=score))


def leaderboard(condition: Condition) -> list[LeaderboardRow]:
    """Rank the models of a condition by the median over seeds of their final values, the best first.

    One variant of a model stands for it (`precedence`), and its others follow at the end. The variants of a single
    model are ranked instead. A diverged run counts as the worst; variants without a finished or diverged run are left
    out.
    """
    sign = condition.metric.sign
    scored = [(sign * variant.median.value, variant) for variant in condition.variants if variant.median]
    scored.sort(key=lambda pair: pair[0])
    chosen = representatives(condition)
    ranked: list[tuple[float, VariantData]] = []
    others: list[tuple[float, VariantData]] = []
    for score, variant in scored:
        (ranked if len(chosen) == 1 or chosen[variant.run.model] is variant else others).append((score, variant))

    def row(score: float, variant: VariantData, rank: int | None, standing: Standing | None) -> LeaderboardRow:
        size = variant.run.parameter_count
        beaten = any(
            (other_score <= score and other.run.parameter_count <= SAME_SIZE * size)
            and (other_score < score or SAME_SIZE * other.run.parameter_count < size)
            for other_score, other in scored
            if other is not variant
        )
        return LeaderboardRow(rank, variant, math.isfinite(score) and not beaten, standing)

    shown = [f"{score:.4g}" for score, _ in ranked]
    ranks = [*(shown.index(text) + 1 for text in shown), *[None] * len(others)]
    # In one test, because the best variant of a model is chosen by the data, too.
    tested = [variant for _, variant in (*ranked, *others)]
    states = standings_in_ranking(
        [variant.scores for variant in tested], [all_solve(variant.scored) for variant in tested]
    )
    return [row(*pair, rank, state) for pair, rank, state in zip((*ranked, *others), ranks, states, strict=True)]


class Lead(StrEnum):
    """What a leaderboard says of its first row or rows."""

    NONE = "no run has finished here yet"
    DIVERGED = "every run diverged"
    BASELINE = "best, but not clearly better than the baseline"
    NOTHING = "best, but learns nothing"
    ALONE = "alone"
    LEADS = "ahead of all others"
    FIRST = "in first place"
    FIRST_OF_THREE = "in first place of those with three seeds"
    AHEAD = "ahead with fewer than three seeds"
    TIED = "tied"


def headline(condition: Condition, board: Sequence[LeaderboardRow]) -> str:
    """Return which models are first, with their value, the states of the others, and the seeds that would decide."""
    rows = [row for row in board if row.rank is not None]
    if not any(math.isfinite(score) for row in rows for score in row.variant.scores):
        return Lead.DIVERGED if rows else Lead.NONE
    best = rows[0].variant.median
    # The best one with three seeds, unless it learns nothing.
    top = next((row for row in rows if row.standing is None and row.variant.learns), rows[0])
    first = [row.variant.label for row in rows if row.rank == top.rank]
    states = [row.standing for row in rows if row.standing is not None and row.rank != top.rank]
    lead = Lead.TIED if len(first) > 1 else _place(top)
    if best and condition.baseline is not None and not _beats_baseline(condition, best):
        lead, first, states = Lead.BASELINE, [rows[0].variant.label], []
    elif not rows[0].variant.learns:
        lead, first, states = Lead.NOTHING, [rows[0].variant.label], []
    elif len(rows) == 1:
        lead = Lead.ALONE
    elif set(states) == {Standing.APART} and len(first) == 1:
        lead = Lead.LEADS
    shown = first if len(first) <= MOST_TIED else [*first[:FIRST_TIED], "others"]
    shown_value = best if lead in (Lead.BASELINE, Lead.NOTHING) else top.variant.median
    value = f"{condition.metric.label or condition.metric.name} {shown_value}"
    needed = _open_seeds(board) if states else None
    more = f"seeds of each for a test: {needed}" if needed else ""
    names = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    words = f"{names} {lead}"
    if Standing.SOLVE in states:  # no first place, because their runs stop once they solve the task
        # The best, whose row has no standing, solves it, too.
        solving = 1 + sum(row.standing == Standing.SOLVE for row in rows)
        end = "lowest" if condition.metric.goal == "min" else "highest"
        among = "" if top.rank == 1 else " of those with three seeds"
        words = f"{solving} solve it in every seed; {end}{among}: {names}"
        states = [state for state in states if state != Standing.SOLVE]
    return "; ".join(filter(None, (words, value, standings_summary(states), more)))


def _place(top: LeaderboardRow) -> Lead:
    """Return what is said of the best row, as far as its seeds and those of the rows above it allow."""
    if len(top.variant.scores) < FEWEST_SEEDS:
        return Lead.AHEAD
    return Lead.FIRST if top.rank == 1 else Lead.FIRST_OF_THREE


def _open_seeds(board: Sequence[LeaderboardRow]) -> int | None:
    """Return the number of seeds of each ranked row that would decide what too few seeds leave open, or None."""
    ranked = [row.standing for row in board if row.rank is not None and row.standing is not None]
    further = sum(row.rank is None and row.standing != Standing.FEW for row in board)
    return open_seeds(ranked, 1 + len(ranked) + further)


def _beats_baseline(condition: Condition, best: Median) -> bool:
    """Return whether a median is better than the condition's baseline with its whole interval; true without one."""
    return condition.baseline is None or is_past(best, condition.baseline, condition.metric.sign)


@dataclass(frozen=True)
class MoreSeeds:
    """The number of seeds of each model that would decide a ranking, and the command that trains them, if it is one."""

    seeds: int
    command: str


@dataclass(frozen=True)
class Leaderboard:
    """The ranking of a condition, what it says in words, and how to decide what it leaves open."""

    rows: list[LeaderboardRow]
    headline: str
    more_seeds: MoreSeeds | None


def more_seeds(
    condition: Condition, board: Sequence[LeaderboardRow], results: Sequence[StoredStudy]
) -> MoreSeeds | None:
    """Return how to decide what too few seeds leave open in a ranking; None if nothing is open.

    The command is that of the study or of the paper's table or figure to which all ranked runs belong.
    """
    rows = [row for row in board if row.rank is not None]
    needed = _open_seeds(board)
    best = rows[0].variant.median if rows else None
    if needed is None or best is None or not _beats_baseline(condition, best):
        return None
    keys = {run.key for row in rows for run in row.variant.runs}
    for result in results:
        figures = {
            figure for figure, part in result.conditions if keys & {run.key for v in part.variants for run in v.runs}
        }
        most = [group.most_seeds or needed for group in result.study.run if group.figure in figures]
        if keys <= {run.key for run in result.runs} and min(most, default=0) >= needed:
            return MoreSeeds(needed, shell_command("study", result.study.name, "--seeds", needed))
    return MoreSeeds(needed, _paper_command([row.variant for row in rows], needed))


def _paper_command(variants: Sequence[VariantData], seeds: int) -> str:
    """Return the command for the table or figure with exactly these variants' settings; empty if there is none."""
    own = [each.comparison.experiment for each in variants if each.comparison and not each.comparison.differences]
    places = {(experiment.paper, experiment.artifact) for experiment in own}
    if len(own) < len(variants) or len(places) > 1:
        return ""
    ((key, name),) = places
    (artifact,) = [artifact for artifact in find_paper(key).artifacts() if artifact.name == name]
    return fill_command(artifact, own, seeds=seeds)


def is_past(value: Median, baseline: float, sign: float) -> bool:
    """Return whether a median, including its interval if there is one, is better than a baseline.

    Args:
        sign: the factor that makes lower values better (`Metric.sign`).
    """
    bounds = (value.value, *(bound for bound in (value.low, value.high) if bound is not None))
    return all(sign * bound < sign * baseline for bound in bounds)


def fullest_first(conditions: Sequence[Condition], trials: Container[str] = ()) -> list[Condition]:
    """Order the conditions of each task: models tuned alike, then most models, then most of their seeds.

    Quick presets and then trials are last. Tasks stay in the order in which they come. Tables, tabs and the condition
    on which a page opens have this order.

    Args:
        trials: the keys of conditions that compare nothing.
    """
    order = list(dict.fromkeys(condition.task for condition in conditions))

    def place(condition: Condition) -> tuple[int, bool, bool, bool, int, int]:
        chosen = representatives(condition)
        is_quick = all(run.preset == "quick" for variant in condition.variants for run in variant.runs)
        tuned = sum(how_judged(condition, variant) == "tuned" for variant in chosen.values())
        seeds = sum(len(variant.scores) for variant in chosen.values())
        # One tuned model is a model without rivals, such as a cell that was placed among results that are not here.
        return order.index(condition.task), condition.key in trials, is_quick, tuned < 2, -len(chosen), -seeds

    return sorted(conditions, key=place)


def tasks(conditions: Sequence[Condition], trials: Container[str], quick: Container[str]) -> list[list[Condition]]:
    """Group the conditions by task (`fullest_first`), those tasks first that compare most models."""
    by_task: dict[str, list[Condition]] = {}
    for condition in fullest_first(conditions, trials):
        by_task.setdefault(condition.task, []).append(condition)

    def models(group: Sequence[Condition]) -> int:
        compared = [condition for condition in group if condition.key not in trials and condition.key not in quick]
        return max((len({variant.run.model for variant in each.variants}) for each in compared), default=0)

    return sorted(by_task.values(), key=lambda group: -models(group))
