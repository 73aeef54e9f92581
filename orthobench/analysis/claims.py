"""Check the claims of papers about their figures on the stored runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from orthobench.analysis.conditions import VariantData, collect
from orthobench.analysis.curve_claims import CURVE_CHECKS, JOINT_CHECKS, Verdict
from orthobench.analysis.dynamics import COMPUTATIONS
from orthobench.analysis.gradient_claims import GRADIENT_CHECKS
from orthobench.analysis.length_claims import LENGTH_CHECKS
from orthobench.analysis.paper_tables import TIMES
from orthobench.analysis.statistics import FEWEST_SEEDS, Share, Standing, lowest, share_of_seeds
from orthobench.analysis.trajectory_claims import PANEL_CHECKS
from orthobench.papers import Artifact, Claim, Paper, find_study
from orthobench.settings import merged_settings
from orthobench.store import Store

COMPARING = frozenset(
    [
        "first", "departs_first", "later", "slower", "rougher", "best", "worst", "similar", "ratio", "fails_only_here",
        "reaches_farther",
    ]
)  # fmt: skip
"""Checks that compare the claim's model with others."""


@dataclass(frozen=True)
class ClaimResult:
    """A claim, and for which share of the seeds, or of the pairs of seeds, it looks as stated.

    Attributes:
        share: of several variants that the claim is about, the lowest; None where it is not decided.
        evidence: identifies the check and the runs that decide it; empty where this does not matter.
        same_as: the figure or table of another paper in which the same runs decide the same check.
        own: the variants that the claim is about, if it is decided.
        rivals: the variants that they are compared with.
    """

    claim: Claim
    share: Share | None
    reason: str
    evidence: str = ""
    same_as: str = ""
    own: Sequence[VariantData] = ()
    rivals: Sequence[VariantData] = ()

    @property
    def standing(self) -> Standing | Literal["not decided"]:
        return "not decided" if self.share is None else self.share.standing

    @property
    def is_decided(self) -> bool:
        """Return whether there are runs, or a computation, that the claim can be checked on."""
        return self.share is not None

    @property
    def seeds(self) -> int | None:
        """Return the smallest number of seeds on a side; None for a computation and without runs."""
        return None if self.share is None or self.claim.panel else self.share.seeds

    @property
    def is_hollow(self) -> bool:
        """Return whether fewer than three seeds on a side leave the claim without weight."""
        return self.share is not None and not self.claim.panel and self.share.is_hollow

    @property
    def verdict(self) -> str:
        """Return where the claim stands, with the share of seeds or pairs, or with the number of too few seeds."""
        if self.share is None or self.claim.panel:
            return self.standing
        if self.is_hollow:
            return f"{self.standing} ({self.share.seeds} seed{'s' * (self.share.seeds != 1)})"
        return f"{self.standing} ({self.share})"

    @property
    def uncounted(self) -> str:
        """Return the reason why headlines do not count the claim; empty if they do."""
        if self.claim.cannot_fail:
            return "cannot fail: deliberately broken models pass it too"
        if self.same_as:
            return f"the same runs decide it in {self.same_as}"
        if self.claim.panel:
            return "computed, not trained"
        return f"fewer than {FEWEST_SEEDS} seeds" if self.is_hollow else ""


@dataclass(frozen=True)
class ClaimCounts:
    """Claims as headlines count them.

    Attributes:
        confirmed: claims that held, of those that count.
        seed_decides: claims that depend on the seed, of those that count.
        decided: claims that count and are decided.
        undecided: claims that count and are not decided.
        hollow: claims of fewer than three seeds that held, and all of them; no headline counts them.
        computed: claims about computations that held, and all of them.
        repeated: claims of another paper's runs.
        cannot_fail: claims that broken models pass.
    """

    confirmed: int
    seed_decides: int
    decided: int
    undecided: int
    hollow: tuple[int, int]
    computed: tuple[int, int]
    repeated: int
    cannot_fail: int

    @property
    def refuted(self) -> int:
        return self.decided - self.confirmed - self.seed_decides

    @property
    def apart(self) -> str:
        """Return the claims that are not counted, in words; empty without any."""
        parts = []
        if self.hollow[1]:
            parts.append(f"{self.hollow[1]} have fewer than {FEWEST_SEEDS} seeds")
        if self.computed[1]:
            parts.append(f"{self.computed[0]} of {self.computed[1]} computed ones held")
        if self.repeated:
            parts.append(f"{self.repeated} repeat another paper's on the same runs")
        if self.cannot_fail:
            parts.append(f"{self.cannot_fail} cannot fail")
        return "; ".join(parts)


def count_claims(results: Sequence[ClaimResult]) -> ClaimCounts:
    """Count claims: those that cannot fail and repetitions nowhere, computed ones and those of few seeds apart."""
    real = [result for result in results if not result.claim.cannot_fail]
    counted = Counter(result.standing for result in results if not result.uncounted)
    computed = Counter(result.standing for result in real if result.claim.panel and result.is_decided)
    hollow = Counter(result.standing for result in real if result.is_hollow and not result.same_as)
    return ClaimCounts(
        confirmed=counted["held"],
        seed_decides=counted["depends on the seed"],
        decided=counted.total() - counted["not decided"],
        undecided=counted["not decided"],
        hollow=(hollow["held"], hollow.total()),
        computed=(computed["held"], computed.total()),
        repeated=sum(bool(result.same_as) for result in real),
        cannot_fail=len(results) - len(real),
    )


@dataclass(frozen=True)
class ClaimSubject:
    """A model with settings that a claim may be about, with its runs if there are any.

    Attributes:
        identity: names the model, its task and all settings, whether or not it has runs.
    """

    label: str
    model: str
    settings: Mapping[str, Any]
    task_settings: Mapping[str, Any]
    variant: VariantData | None
    identity: str
    selection: str = "curve"

    def has(self, settings: Mapping[str, Any]) -> bool:
        return all(self.settings.get(name) == value for name, value in settings.items())

    @property
    def is_measured(self) -> bool:
        """Return whether it has finished runs and none that diverged."""
        return self.variant is not None and bool(self.variant.finished) and not self.variant.diverged

    @property
    def measured(self) -> VariantData:
        """Return its runs, with the label and the paper's rule of its experiment."""
        assert self.variant is not None
        return replace(self.variant, label=self.label, selection=self.selection)


def check_claims(
    paper: Paper, artifact: Artifact, measured: Mapping[str, VariantData], variant_keys: Mapping[str, str]
) -> list[ClaimResult]:
    """Check the claims of a table or figure.

    Args:
        measured: the variants of the experiments that ran, by the experiments' identity.
        variant_keys: the variant of each experiment's runs, by the experiment's identity.
    """
    subjects = [
        ClaimSubject(
            e.label,
            e.model,
            e.settings,
            e.task_settings,
            measured.get(e.identity),
            variant_keys.get(e.identity, e.identity),
            e.selection,
        )
        for e in paper.experiments_in(artifact.name)
    ]
    return [_check(claim, subjects) for claim in artifact.claims]


def check_runs(artifact: Artifact, variants: Sequence[VariantData]) -> list[ClaimResult]:
    """Check the claims of a figure on the variants that it shows."""
    subjects = []
    for variant in variants:
        spec = variant.run.spec
        subject = ClaimSubject(
            variant.label, variant.run.model, merged_settings(spec), spec["task_settings"], variant, variant.run.variant
        )
        subjects.append(subject)
    return [_check(claim, subjects) for claim in artifact.claims]


def check_panels(artifact: Artifact, panels: Sequence[Mapping[str, Any]]) -> list[ClaimResult]:
    """Check the claims of a figure of trajectories."""
    courses = {panel["panel"]: np.array(panel["trajectories"]) for panel in panels}
    return [
        _computed(claim, *PANEL_CHECKS[claim.check](claim, courses[claim.panel]))
        if claim.panel in courses
        else undecided(claim, f"has no panel {claim.panel}")
        for claim in artifact.claims
    ]


def check_small(store: Store, artifact: Artifact, keys: Sequence[str]) -> list[ClaimResult]:
    """Check the claims of an artifact's small version on the runs of these keys, or on its study's computation."""
    assert artifact.small is not None
    small = artifact.model_copy(update={"claims": artifact.small.claims or artifact.claims})
    study = find_study(artifact.study) if artifact.study else None
    if study and study.computation:
        return check_panels(small, COMPUTATIONS[study.computation]()["panels"])
    conditions = collect(store, store.runs(keys=keys))
    return check_runs(small, [variant for condition in conditions for variant in condition.variants])


def _computed(claim: Claim, holds: bool, reason: str) -> ClaimResult:
    return ClaimResult(claim, share_of_seeds([holds]), reason)


def undecided(claim: Claim, reason: str) -> ClaimResult:
    return ClaimResult(claim, None, reason)


def _check(claim: Claim, subjects: Sequence[ClaimSubject]) -> ClaimResult:
    about, others = select_subjects(claim, subjects)
    evidence = _evidence(claim, about, others)
    missing = {_missing_runs(subject) for subject in (*about, *others) if not subject.is_measured}
    if missing or not about or (claim.check in COMPARING and not others):
        reason = f"needs {', '.join(sorted(missing)) or 'runs that are not there'}"
        return ClaimResult(claim, None, reason, evidence)
    lengths = {subject.settings.get("sequence_length") for subject in (*about, *others)}
    own, rivals = ([_labelled(subject, len(lengths) > 1) for subject in part] for part in (about, others))
    if claim.metric in TIMES and len(machines := {_machine(variant) for variant in (*own, *rivals)}) > 1:
        return ClaimResult(claim, None, f"needs runs on one machine, and has {len(machines)}", evidence)
    if claim.check in JOINT_CHECKS:
        by_setting = [(float(subject.settings[claim.over]), subject.measured) for subject in about]
        verdicts = [JOINT_CHECKS[claim.check](claim, by_setting)]
    else:
        verdicts = [CHECKS[claim.check](claim, variant, rivals) for variant in own]
    share = lowest([share for share, _ in verdicts])
    if not share.seeds:
        return ClaimResult(claim, None, f"needs runs with {claim.metric or 'tests'}", evidence)
    return ClaimResult(claim, share, _reason(own, verdicts), evidence, own=own, rivals=rivals)


def _reason(own: Sequence[VariantData], verdicts: Sequence[Verdict]) -> str:
    """Return what decides a claim; of several variants, each with its own share of seeds."""
    if len(verdicts) == 1:
        return verdicts[0][1]
    named = zip(own, verdicts, strict=True)
    return "; ".join(f"{variant.label}: {reason} ({share})" for variant, (share, reason) in named)


def select_subjects(claim: Claim, subjects: Sequence[ClaimSubject]) -> tuple[list[ClaimSubject], list[ClaimSubject]]:
    """Return the subjects that a claim is about, and those that it compares them with."""
    about = [subject for subject in subjects if subject.model == claim.model and subject.has(claim.where)]
    if claim.check not in COMPARING:
        return about, []
    task_where = {
        name: value for name, value in claim.where.items() if any(name in subject.task_settings for subject in subjects)
    }
    others = [
        subject
        for subject in subjects
        if subject not in about
        and (subject.model in claim.others or not claim.others)
        and subject.has(task_where | claim.than)
    ]
    return about, others


def _labelled(subject: ClaimSubject, with_length: bool) -> VariantData:
    """Return a subject's runs; with the sequence length in their label where the claim is about several lengths."""
    measured, length = subject.measured, subject.settings.get("sequence_length")
    return replace(measured, label=f"{measured.label}, T = {length}") if with_length and length else measured


def _evidence(claim: Claim, about: Sequence[ClaimSubject], others: Sequence[ClaimSubject]) -> str:
    """Return a text that is the same for the same check of the same models and settings."""
    check = [claim.check, claim.factor, claim.metric, claim.split, claim.over]
    return json.dumps([check, *(sorted(subject.identity for subject in part) for part in (about, others))])


def _machine(variant: VariantData) -> str:
    """Return the accelerator or the processor of a variant's runs."""
    names = {str(facts.get("accelerator") or facts.get("cpu")) for facts in (r.environment.facts for r in variant.runs)}
    return ", ".join(sorted(names))


def _missing_runs(subject: ClaimSubject) -> str:
    """Name a subject without the runs that a check needs."""
    if subject.variant is None or not subject.variant.diverged:
        return subject.label
    return f"{subject.label}, of which {subject.variant.diverged} of {len(subject.variant.runs)} runs diverged"


CHECKS = CURVE_CHECKS | GRADIENT_CHECKS | LENGTH_CHECKS
