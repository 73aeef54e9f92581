"""A cell of the matrix: how far a model gets on a task, how the number came about, and how it compares."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from orthobench.analysis.by_length import HELD, holds_beyond
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.horizons import fits
from orthobench.analysis.inference import MEANINGS, Standing
from orthobench.analysis.judged import Choice, Judged, choice_of, how_judged
from orthobench.analysis.rate_search import Edge
from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.analysis.variants import newer_version
from orthobench.spec.index import built_in
from orthobench.store import Run

WHITE_FROM = 0.79
"""From here on, a cell of the light page is so dark that white text has the higher contrast, at least 4.5:1."""
HOW: Mapping[Judged, str] = {
    "tuned": "tuned: the best trial",
    "published": "the settings of a paper's experiment",
    "own": "settings of its own, not tuned",
    "quick": "a quick preset",
}
EDGES = {
    "highest": "at the highest learning rate of the search, beyond which a better one may be",
    "lowest": "at the lowest learning rate of the search, beyond which a better one may be",
}
CANNOT = "linear in its inputs, so it cannot solve the task"


@dataclass(frozen=True)
class MatrixCell:
    """How far a model gets on a task: 0 is the best predictor without memory, and 1 is a perfect value (`score_of`).

    Attributes:
        condition: the task with its settings.
        variant: the model's variant that stands for it on this task (`precedence`).
        score: the median over seeds.
        low: the lowest seed.
        high: the highest seed.
        fits: whether the model holds the lengths of the training sequences; None if they are not tested.
        holds_beyond: whether the median seed holds the multiples of the trained length; None if they are not tested.
        judged: how the number came about.
        choice: how a search chose the variant; None unless it is tuned.
        linear: why the model cannot solve the task, whatever its weights, because its outputs are an affine function of
            its inputs; empty if it could.
        standing: how the cell stands next to the best one of its column with three seeds; None for the best.
        is_compared: whether it is compared with the others: not if its training and validation data are divided in
            another way than those of most.
    """

    condition: Condition
    variant: VariantData
    score: float
    low: float
    high: float
    fits: bool | None
    holds_beyond: bool | None
    judged: Judged = "own"
    choice: Choice | None = None
    linear: str = ""
    standing: Standing | None = None
    is_compared: bool = False

    @property
    def how(self) -> str:
        """How the number came about, as labels."""
        parts = [self.chosen_here or HOW[self.judged]]
        if self.choice:
            parts += [f"trials: {self.choice.trials}", f"fresh seeds: {self.seeds}"]
        if self.edge:
            parts.append(EDGES[self.edge])
        if self.linear:
            parts.append(f"{CANNOT}: {self.linear}")
        return "; ".join(parts)

    @property
    def chosen_here(self) -> str:
        """Why some settings of the cell's experiment were chosen here, in words; "" if all have a source."""
        experiment = self.variant.experiment
        if experiment is None or not experiment.own_settings or self.judged == "tuned":
            return ""
        return " ".join(["settings of a paper's experiment, some of which this project chose.", *experiment.notes])

    @property
    def edge(self) -> Edge:
        """Whether the model was tuned, its rate is the highest or the lowest of the search, and it could be better."""
        return self.choice.edge if self.choice and round(100 * self.score) < 100 else ""

    @property
    def version(self) -> str:
        """The version of the model whose runs these are, if it has a newer one; else ""."""
        return str(self.variant.run.spec["model_version"]) if newer_version(self.variant.run) else ""

    @property
    def raw(self) -> str:
        """The median of the metric itself, as published numbers have it."""
        value = self.variant.median
        return "" if value is None else f"{value.value:.3g}"

    @property
    def printed(self) -> str:
        """The published number for these settings, if there is one."""
        printed = self.variant.printed
        return "" if printed is None else printed.text

    @property
    def is_best(self) -> bool:
        """Whether the cell learns something, and is the best of its column or as good as its seeds show.

        With fewer than three seeds it is not.
        """
        is_good = self.standing in (None, Standing.OVERLAPS, Standing.SOLVE)
        return self.is_compared and not self.has_few_seeds and self.learns and is_good

    @property
    def learns(self) -> bool:
        return self.variant.learns

    @property
    def standing_words(self) -> str:
        """How the cell stands next to the best one, in words."""
        if not self.is_compared:
            return "its data are divided in another way than those of the others, so it is not compared"
        if not self.learns:  # a cell that holds the trained lengths has learnt them
            return "its score at these lengths is below 10" if self.fits else "its median seed learns nothing"
        if self.standing is None:
            return "too few seeds to call it the best" if self.has_few_seeds else "the best"
        return MEANINGS[self.standing].replace("the first", "the best")

    @property
    def is_far(self) -> bool:
        """Whether white text is easier to read on the cell's colour than black text."""
        return self.score > WHITE_FROM

    @property
    def seeds(self) -> int:
        return len(self.variant.scores)

    @property
    def has_few_seeds(self) -> bool:
        return self.seeds < FEWEST_SEEDS

    @property
    def loses(self) -> bool:
        """Whether the model holds the training lengths and does not hold longer ones (`HELD`).

        The score is of the longer ones if a task is tested on a range of lengths, and else of the trained length.
        """
        return (self.fits is True and self.score < HELD) or (self.holds_beyond is False and self.score >= HELD)

    @property
    def is_spread(self) -> bool:
        """Whether the seeds differ in whole percents."""
        return round(100 * self.low) != round(100 * self.high)


def cell_of(condition: Condition, variant: VariantData) -> MatrixCell:
    scores = variant.solved_shares
    return MatrixCell(
        condition,
        variant,
        statistics.median(scores),
        min(scores),
        max(scores),
        fits(variant),
        holds_beyond(variant),
        how_judged(condition, variant),
        choice_of(condition, variant),
        _why_linear_fails(variant.run),
    )


def gains(variant: VariantData) -> list[float]:
    """Return each seed's end with the sign that makes greater ones better; -infinity if it diverged."""
    sign = variant.run.main_metric.sign
    return [-sign * value for _, value in variant.scored]


def _why_linear_fails(run: Run) -> str:
    """Return why a built-in model with these settings cannot solve its task; "" if it may, or if it is not affine."""
    plugins = built_in()["plugins"]
    needed = plugins.get(f"model/{run.model}", {}).get("affine_if")
    settings = run.spec["model_settings"]
    if needed is None or any(settings.get(name) != value for name, value in needed.items()):
        return ""
    why: str = plugins.get(f"task/{run.task}", {}).get("affine_fails", "")
    return why
