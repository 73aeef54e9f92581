"""What all claims have in common: the fields of a claim, and the measured numbers that decide it.

A claim is a class: its fields, with their units, are keys in the paper's TOML file, and its `judge` checks it. Because
a paper's figure shows one curve per model, `judge` looks at each seed or, if the claim compares two models, at each
pair of seeds, one from each model. It returns the share of seeds or pairs for which the claim holds, with the measured
numbers and the limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.statistics import SeedValue, Share, lowest, share_of_pairs


@dataclass(frozen=True)
class Numbers:
    """What a claim has measured, a number for each seed, or a limit.

    Attributes:
        name: what the numbers are; always the same words for a kind of claim.
        values: without a number, or with one that is not finite, for a seed in which the event did not occur.
        form: the format of a number.
        of: the label of the variant, if several are measured.
        share: the share of its seeds, or of its pairs with the claim's variant, for which the claim holds.
    """

    name: str
    values: Sequence[float | None] | float
    form: str = ".3g"
    of: str = ""
    share: Share | None = None

    def __str__(self) -> str:
        if isinstance(self.values, (int, float)):
            return f"{self.values:{self.form}}"
        about = ", ".join(filter(None, (self.of, str(self.share or ""))))
        return in_words(self.values, self.form) + (f" ({about})" if about else "")


ClaimVerdict = tuple[Share, list[Numbers]]


class Claim(BaseModel):
    """A paper's statement about a table or figure."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    is_computed: ClassVar[bool] = False
    """Whether the claim is about a computation, which has no seeds."""

    text: str = Field(description="the statement in words")
    check: str = Field(description="the kind of claim; each class has its own")
    cannot_fail: bool = Field(
        False,
        description="whether deliberately broken models pass it as well, so that it says nothing about training",
    )


class ModelClaim(Claim):
    """A claim about the runs of a model."""

    model: str = Field(min_length=1, description="the model that it is about")
    where: dict[str, Any] = Field({}, description="settings of the experiments that it is about")

    @property
    def named(self) -> str:
        """The metric or vector that the claim names; empty for the task's main metric."""
        return ""

    def logged(self, variant: VariantData) -> tuple[str, str]:
        """Return the split and the name under which runs log the metric that the claim is about."""
        return "test", variant.run.metric


class Comparing(ModelClaim):
    """A claim that compares a model with others; if there are several, the lowest share decides."""

    others: list[str] = Field([], description="the models to compare with; none: all others")
    than: dict[str, Any] = Field({}, description="settings of the experiments to compare with, if not the claim's own")

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        """Check the claim on each pair of seeds."""
        raise NotImplementedError


def shares_of_seeds(
    own: Sequence[SeedValue],
    rivals: Sequence[Sequence[SeedValue]],
    score: Callable[[SeedValue, SeedValue], float | None],
) -> tuple[Share, list[Share]]:
    """Return the lowest share of pairs of seeds over the other models, and each model's share.

    Args:
        own: a value for each seed of the claim's model.
        rivals: for each other model, a value for each of its seeds.
        score: the score of a pair, as in `share_of_pairs`.
    """
    shares = [share_of_pairs(own, rival, score) for rival in rivals]
    # A rival that was measured, and of which no seed can be compared, decides nothing.
    deciding = [each for each, rival in zip(shares, rivals, strict=True) if each.count or not rival]
    return lowest(deciding or shares), shares


def compared(
    name: str,
    variants: Sequence[VariantData],
    values: Sequence[Sequence[float | None]],
    shares: Sequence[Share | None],
    form: str = ".3g",
) -> list[Numbers]:
    """Return the numbers of the claim's variant and of each rival, which has its share of pairs."""
    rows = zip(variants, values, [None, *shares], strict=True)
    return [Numbers(name, numbers, form, variant.label, share) for variant, numbers, share in rows]


def in_words(numbers: Sequence[float | None], form: str) -> str:
    """Return the lowest and the highest finite number, such as "2 to 3", and in how many seeds there is none."""
    found = [number for number in numbers if number is not None and math.isfinite(number)]
    if not found:
        return "none"
    low, high = f"{min(found):{form}}", f"{max(found):{form}}"
    missing = f", none in {len(numbers) - len(found)} of {len(numbers)} seeds" if len(found) < len(numbers) else ""
    return (low if low == high else f"{low} to {high}") + missing


def listed(evidence: Sequence[Numbers]) -> str:
    """Return all numbers with their names, each name once: "end: 0.1 (GRU), 0.2 (LSTM); limit: 0.3"."""
    by_name: dict[str, dict[str, None]] = {}
    for each in evidence:
        by_name.setdefault(each.name, {})[str(each)] = None
    return "; ".join(f"{name}: {', '.join(numbers)}" for name, numbers in by_name.items())
