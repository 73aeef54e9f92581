"""Which conditions and variants the matrix shows: trials and earlier editions of a comparison are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.judged import how_judged
from orthobench.analysis.statistics import FEWEST_SEEDS

TRIED = "tried"
"""The tag of runs that were tried while searching for settings."""


@dataclass(frozen=True)
class Editions:
    """Which conditions are earlier editions of others.

    A condition is an earlier edition if all its variants have tags, and another one has its task, its texts in
    settings, variants without tags, and most of its models.

    Attributes:
        earlier: the keys of the earlier editions.
        later: the keys of those that replace a comparison of several models, and count as comparisons themselves.
        tags: the tags of replaced comparisons. Their runs are left out on every task, even one without a later edition.
    """

    earlier: frozenset[str]
    later: frozenset[str]
    tags: frozenset[str]

    def without_earlier(self, condition: Condition) -> Condition:
        """Return a condition without the variants of earlier editions."""
        variants = [] if condition.key in self.earlier else condition.variants
        return replace(condition, variants=[each for each in variants if not self.tags.intersection(each.tags)])


def find_editions(conditions: Sequence[Condition]) -> Editions:
    """Find the earlier editions among conditions that have members."""

    def names(condition: Condition) -> tuple[str, list[tuple[str, str]]]:
        texts = [(name, value) for name, value in condition.settings.items() if isinstance(value, str)]
        return condition.task, sorted(texts)

    def is_tagged(condition: Condition) -> bool:
        return all(variant.tags for variant in members(condition))

    def models(condition: Condition) -> set[str]:
        return {variant.run.model for variant in members(condition)}

    untagged = [condition for condition in conditions if not is_tagged(condition)]
    earlier, later, tags = set[str](), set[str](), set[str]()
    for condition in filter(is_tagged, conditions):
        own = models(condition)
        newer = [
            other.key
            for other in untagged
            if names(other) == names(condition) and 2 * len(own & models(other)) > len(own)
        ]
        if newer:
            earlier.add(condition.key)
            if is_comparison(condition):
                later.update(newer)
                tags.update(tag for variant in members(condition) for tag in variant.tags if tag != TRIED)
    replaced = {c.key for c in conditions if all(tags.intersection(variant.tags) for variant in members(c))}
    return Editions(frozenset(earlier | replaced), frozenset(later), frozenset(tags))


def members(condition: Condition) -> list[VariantData]:
    """Return the variants of a condition that have a value from 0 to 1."""
    if condition.baseline is None or condition.perfect is None:
        return []
    runs = [run for variant in condition.variants for run in variant.runs]
    scored = [each for each in condition.variants if each.median and (each.experiment or TRIED not in each.tags)]
    is_whole = any(run.solved_at is not None or run.epochs >= 1 for run in runs)
    # A comparison that tuned all models alike counts also if its iterations are fewer than an epoch's.
    if not is_whole and not any(how_judged(condition, variant) == "tuned" for variant in scored):
        return []
    plain = {variant.run.model for variant in scored if not variant.tags}
    return [each for each in scored if each.experiment or not each.tags or each.run.model not in plain]


def is_comparison(condition: Condition) -> bool:
    """Return whether a condition has an experiment of a paper, or several models with three seeds."""
    own = members(condition)
    of_paper = any(variant.experiment for variant in own)
    return of_paper or len({variant.run.model for variant in own if len(variant.scores) >= FEWEST_SEEDS}) > 1
