"""Check the claims of papers about their figures on the stored runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orthobench.analysis.conditions import VariantData, collect
from orthobench.analysis.curve_claims import CURVE_CHECKS, JOINT_CHECKS
from orthobench.analysis.dynamics import COMPUTATIONS
from orthobench.analysis.gradient_claims import GRADIENT_CHECKS
from orthobench.analysis.length_claims import LENGTH_CHECKS
from orthobench.analysis.paper_tables import TIMES
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
    """A claim, and whether it holds for every seed of every variant that it is about; None: not decided.

    Attributes:
        evidence: identifies the check and the runs that decide it; empty where this does not matter.
        same_as: the figure or table of another paper in which the same runs decide the same check.
        own: the variants that the claim is about, if it is decided.
        rivals: the variants that they are compared with.
    """

    claim: Claim
    holds: bool | None
    reason: str
    evidence: str = ""
    same_as: str = ""
    own: Sequence[VariantData] = ()
    rivals: Sequence[VariantData] = ()

    @property
    def verdict(self) -> str:
        return "not decided" if self.holds is None else "held" if self.holds else "did not hold"

    @property
    def uncounted(self) -> str:
        """Return the reason why headlines do not count the claim; empty if they do."""
        if self.claim.cannot_fail:
            return "cannot fail: broken models pass it too"
        if self.same_as:
            return f"the same runs decide it in {self.same_as}"
        return "computed, not trained" if self.claim.panel else ""


@dataclass(frozen=True)
class ClaimCounts:
    """Claims as headlines count them.

    Attributes:
        confirmed: claims that held, of those that count.
        decided: claims that count and are decided.
        undecided: claims that count and are not decided.
        computed: claims about computations that held, and all of them.
        repeated: claims of another paper's runs.
        cannot_fail: claims that broken models pass.
    """

    confirmed: int
    decided: int
    undecided: int
    computed: tuple[int, int]
    repeated: int
    cannot_fail: int

    @property
    def apart(self) -> str:
        """Return the claims that are not counted, in words; empty without any."""
        parts = []
        if self.computed[1]:
            parts.append(f"{self.computed[0]} of {self.computed[1]} computed ones held")
        if self.repeated:
            parts.append(f"{self.repeated} repeat another paper's on the same runs")
        if self.cannot_fail:
            parts.append(f"{self.cannot_fail} cannot fail")
        return "; ".join(parts)


def count_claims(results: Sequence[ClaimResult]) -> ClaimCounts:
    """Count claims: those that cannot fail and repetitions nowhere, computed ones apart."""
    counted = [result for result in results if not result.uncounted]
    real = [result for result in results if not result.claim.cannot_fail]
    computed = [result for result in real if result.claim.panel and result.holds is not None]
    return ClaimCounts(
        confirmed=sum(result.holds is True for result in counted),
        decided=sum(result.holds is not None for result in counted),
        undecided=sum(result.holds is None for result in counted),
        computed=(sum(result.holds is True for result in computed), len(computed)),
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
        ClaimResult(claim, *PANEL_CHECKS[claim.check](claim, courses[claim.panel]))
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


def undecided(claim: Claim, reason: str) -> ClaimResult:
    return ClaimResult(claim, None, reason)


def _check(claim: Claim, subjects: Sequence[ClaimSubject]) -> ClaimResult:
    about, others = select_subjects(claim, subjects)
    evidence = _evidence(claim, about, others)
    missing = {_missing_runs(subject) for subject in (*about, *others) if not subject.is_measured}
    if missing or not about or (claim.check in COMPARING and not others):
        reason = f"needs {', '.join(sorted(missing)) or 'runs that are not there'}"
        return ClaimResult(claim, None, reason, evidence)
    own, rivals = ([_labelled(claim, subject) for subject in part] for part in (about, others))
    if claim.metric in TIMES and len(machines := {_machine(variant) for variant in (*own, *rivals)}) > 1:
        return ClaimResult(claim, None, f"needs runs on one machine, and has {len(machines)}", evidence)
    if claim.check in JOINT_CHECKS:
        by_setting = [(float(subject.settings[claim.over]), subject.measured) for subject in about]
        return ClaimResult(claim, *JOINT_CHECKS[claim.check](claim, by_setting), evidence, own=own)
    results = [CHECKS[claim.check](claim, variant, rivals) for variant in own]
    reason = "; ".join(reason for _, reason in results)
    return ClaimResult(claim, all(holds for holds, _ in results), reason, evidence, own=own, rivals=rivals)


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


def _labelled(claim: Claim, subject: ClaimSubject) -> VariantData:
    """Return a subject's runs; its label has the sequence length where the claim compares lengths."""
    measured = subject.measured
    length = subject.settings.get("sequence_length")
    return replace(measured, label=f"{measured.label}, T = {length}") if "sequence_length" in claim.than else measured


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
