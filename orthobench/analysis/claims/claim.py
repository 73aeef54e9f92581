"""What all claims have in common: the fields of a claim, and how measured numbers are put into words.

A claim is a class: its fields, with their units, are keys in the paper's TOML file, and its `judge` checks it. Because
a paper's figure shows one curve per model, `judge` looks at each seed or, if the claim compares two models, at each
pair of seeds, one from each model. It returns the share of seeds or pairs for which the claim holds, with a description
of what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.statistics import SeedValue, Share, lowest, share_of_pairs

ClaimVerdict = tuple[Share, str]


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
    others: Sequence[VariantData],
    own: Sequence[SeedValue],
    rivals: Sequence[Sequence[SeedValue]],
    score: Callable[[SeedValue, SeedValue], float | None],
) -> tuple[Share, str]:
    """Return the lowest share of pairs of seeds over the other models, and each model's share in words.

    Args:
        own: a value for each seed of the claim's model.
        rivals: for each other model, a value for each of its seeds.
        score: the score of a pair, as in `share_of_pairs`.
    """
    shares = [share_of_pairs(own, rival, score) for rival in rivals]
    share, words = decide(others, shares)
    # A rival that was measured, and of which no seed can be compared, decides nothing.
    deciding = [each for each, rival in zip(shares, rivals, strict=True) if each.count or not rival]
    return lowest(deciding) if deciding else share, words


def decide(others: Sequence[VariantData], shares: Sequence[Share]) -> tuple[Share, str]:
    """Return the lowest share, and each model's share in words."""
    if len(shares) == 1:
        return shares[0], str(shares[0])
    words = ", ".join(f"{share} with {other.label}" for other, share in zip(others, shares, strict=True))
    return lowest(shares), words


def in_words(numbers: Sequence[float], form: str = ".3g", not_finite: str = "") -> str:
    """Return the lowest and the highest number, such as "2 to 3", or a single one if they look the same.

    Args:
        form: the format of a number.
        not_finite: the word for a number that is not finite; if empty, Python's own.
    """
    if not numbers:
        return "nothing"
    low, high = (
        not_finite if not_finite and not math.isfinite(value) else f"{value:{form}}"
        for value in (min(numbers), max(numbers))
    )
    return low if low == high else f"{low} to {high}"


def listed_values(
    variants: Sequence[VariantData],
    values: Sequence[Sequence[SeedValue]],
    words: Callable[[Sequence[SeedValue]], str],
    colon: str = ":",
) -> str:
    """Return the values of each variant in words, after its label."""
    return "; ".join(
        f"{variant.label}{colon} {words(numbers)}" for variant, numbers in zip(variants, values, strict=True)
    )
