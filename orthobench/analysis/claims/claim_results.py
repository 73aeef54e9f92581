"""The results of claims, and their counts in headlines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from orthobench.analysis.claims.claim import Claim, Numbers, listed
from orthobench.analysis.conditions import VariantData
from orthobench.analysis.statistics import Conclusion, Share
from orthobench.errors import counted


class Lack(StrEnum):
    """Why a claim is not decided."""

    RUNS = "needs finished runs"
    DIVERGED = "needs runs that do not diverge"
    METRIC = "needs runs with this metric or probe"
    PAIRS = "no pair of runs can be compared"
    ONE_MACHINE = "needs times of one machine and clock"
    COMPUTED = "needs runs, but the figure is computed"
    PANEL = "needs a panel of the figure"
    STUDY = "needs a complete study at the paper's size"


COMPUTED = "computed, not trained"
FEW_SEEDS = "fewer than three seeds"
OWN_SETTINGS = "at settings chosen here"
TIMES_ELSEWHERE = "times of another machine"
"""Reasons why headlines do not count a decided claim, in the order in which they apply."""


@dataclass(frozen=True)
class ClaimResult:
    """A claim, and the share of the seeds, or of the pairs of seeds, for which it holds.

    Attributes:
        share: the share, or the lowest one if the claim is about several variants; None if the claim is not decided.
        numbers: what was measured, and the limits.
        metric: the label of the metric that the claim names; empty for the task's main one.
        lack: why the claim is not decided.
        lacking: the names of what it lacks: models, a metric, a panel or a study.
        evidence: identifies the check and the runs that decide it; empty if this does not matter.
        same_as: the figure or table of another paper for which the same runs decide the same check.
        own: the variants that the claim is about, if it is decided.
        rivals: the variants that they are compared with.
        at_own_settings: whether this project chose settings of the runs that decide it, because no source states them.
        is_of_times: whether it is about times, which may have another order on the paper's machine.
    """

    claim: Claim
    share: Share | None
    numbers: Sequence[Numbers] = ()
    metric: str = ""
    lack: Lack | None = None
    lacking: Sequence[str] = ()
    evidence: str = ""
    same_as: str = ""
    own: Sequence[VariantData] = ()
    rivals: Sequence[VariantData] = ()
    at_own_settings: bool = False
    is_of_times: bool = False

    @property
    def reason(self) -> str:
        """What the claim lacks, or what was measured."""
        if self.lack:
            return ": ".join(filter(None, (self.lack, ", ".join(self.lacking))))
        return ": ".join(filter(None, (self.metric, listed(self.numbers))))

    @property
    def conclusion(self) -> Conclusion | Literal["not decided"]:
        return "not decided" if self.share is None else self.share.conclusion

    @property
    def is_decided(self) -> bool:
        """Whether there are runs, or a computation, on which the claim can be checked."""
        return self.share is not None

    @property
    def seeds(self) -> int | None:
        """The smallest number of seeds of any model in the comparison; None for a computation and without runs."""
        return None if self.share is None or self.claim.is_computed else self.share.seeds

    @property
    def is_hollow(self) -> bool:
        """Whether the claim carries no weight because a model has fewer than three seeds."""
        return self.share is not None and not self.claim.is_computed and self.share.is_hollow

    @property
    def verdict(self) -> str:
        """The verdict on the claim, with the share of seeds or pairs, or the number of seeds if there are too few."""
        if self.share is None or self.claim.is_computed:
            return self.conclusion
        if self.is_hollow:
            return f"{self.conclusion} ({counted(self.share.seeds, 'seed')})"
        return f"{self.conclusion} ({self.share})"

    @property
    def uncounted(self) -> str:
        """The reason why headlines do not count the claim; empty if they do."""
        if self.claim.cannot_fail:
            return "even an untrained or deliberately broken model passes"
        if self.same_as:
            return f"decided by the same runs: {self.same_as}"
        if self.claim.is_computed:
            return COMPUTED
        if self.is_hollow:
            return FEW_SEEDS
        if self.at_own_settings:
            return OWN_SETTINGS
        return TIMES_ELSEWHERE if self.is_of_times else ""


@dataclass(frozen=True)
class ClaimCounts:
    """Claims as headlines count them.

    Attributes:
        confirmed: counted claims that held.
        seed_decides: counted claims that depend on the seed.
        decided: counted claims that are decided.
        undecided: counted claims that are not decided.
        hollow: claims with fewer than three seeds: how many held, and how many there are. No headline counts them.
        computed: claims about computations: how many held, and how many there are.
        at_own_settings: claims decided at settings that no source states: how many held, and how many there are.
        times: claims about times, which are those of another machine here: how many held, and how many there are.
        repeated: claims that are decided by another paper's runs.
        cannot_fail: claims that even broken models pass.
    """

    confirmed: int
    seed_decides: int
    decided: int
    undecided: int
    hollow: tuple[int, int]
    computed: tuple[int, int]
    at_own_settings: tuple[int, int]
    times: tuple[int, int]
    repeated: int
    cannot_fail: int

    @property
    def refuted(self) -> int:
        return self.decided - self.confirmed - self.seed_decides

    @property
    def words(self) -> str:
        """How many claims held, did not hold and depend on the seed, then `apart_words`; empty without any."""
        depend = "depends on the seed" if self.seed_decides == 1 else "depend on the seed"
        named = [(self.confirmed, "held"), (self.refuted, "did not hold"), (self.seed_decides, depend)]
        counts = ", ".join(f"{count} {words}" for count, words in named if count)
        return "; not counted: ".join(filter(None, (counts, self.apart_words)))

    @property
    def apart_words(self) -> str:
        """How many claims held at settings chosen here, and with times of another machine; empty without any."""
        named = {OWN_SETTINGS: self.at_own_settings, f"with {TIMES_ELSEWHERE}": self.times}
        return ", ".join(f"{held} of {total} held {words}" for words, (held, total) in named.items() if total)

    @property
    def apart(self) -> str:
        """The claims that are not counted, by the reason; empty without any."""
        counts = {
            f"with {FEW_SEEDS}": self.hollow[1],
            "computed": self.computed[1],
            OWN_SETTINGS: self.at_own_settings[1],
            f"with {TIMES_ELSEWHERE}": self.times[1],
            "decided by another paper's runs": self.repeated,
            "that even broken models pass": self.cannot_fail,
        }
        return "; ".join(f"{count} {words}" for words, count in counts.items() if count)


def count_claims(results: Sequence[ClaimResult]) -> ClaimCounts:
    """Count claims without repetitions and claims that cannot fail.

    Computed ones, those at settings chosen here, with times of another machine, and with few seeds count apart.
    Headlines, the page and the README's table show these numbers.
    """
    real = [result for result in results if not result.claim.cannot_fail]
    counted = Counter(result.conclusion for result in results if not result.uncounted)

    def apart(reason: str) -> tuple[int, int]:
        conclusions = [result.conclusion for result in results if result.is_decided and result.uncounted == reason]
        return conclusions.count("held"), len(conclusions)

    return ClaimCounts(
        confirmed=counted["held"],
        seed_decides=counted["depends on the seed"],
        decided=counted.total() - counted["not decided"],
        undecided=counted["not decided"],
        hollow=apart(FEW_SEEDS),
        computed=apart(COMPUTED),
        at_own_settings=apart(OWN_SETTINGS),
        times=apart(TIMES_ELSEWHERE),
        repeated=sum(bool(result.same_as) for result in real),
        cannot_fail=len(results) - len(real),
    )
