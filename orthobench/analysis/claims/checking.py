"""Check the claims of papers about their tables and figures on the stored runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orthobench.analysis.claims.claim import Claim, ClaimVerdict, Comparing, ModelClaim
from orthobench.analysis.claims.claim_results import ClaimResult
from orthobench.analysis.claims.over_setting import OverSetting
from orthobench.analysis.claims.reading import ClaimKind, read_claims
from orthobench.analysis.claims.trajectories import PanelClaim
from orthobench.analysis.conditions import VariantData, collect
from orthobench.analysis.dynamics import COMPUTATIONS
from orthobench.analysis.paper_tables import TIMES
from orthobench.analysis.statistics import lowest
from orthobench.analysis.variants import of_one_machine
from orthobench.errors import unknown
from orthobench.papers import Artifact, Paper, Study, find_study
from orthobench.settings import merged_settings
from orthobench.store import Store

SUBJECTS = {"text", "cannot_fail", "model", "where", "others", "than"}
"""Fields of a claim that select its runs, or do not affect its check."""


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
        """Whether it has finished runs and no diverged ones."""
        return self.variant is not None and bool(self.variant.finished) and not self.variant.diverged

    @property
    def measured(self) -> VariantData:
        """Its runs, with its experiment's label and the paper's rule."""
        assert self.variant is not None
        return replace(self.variant, label=self.label, selection=self.selection)


def check_claims(
    paper: Paper, artifact: Artifact, measured: Mapping[str, VariantData], variant_keys: Mapping[str, str]
) -> list[ClaimResult]:
    """Check the claims of a table or figure.

    Args:
        measured: the variants of the experiments that have runs, by the experiment's identity.
        variant_keys: the key of each experiment's variant, by the experiment's identity.
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
    return [_check(claim, subjects) for claim in read_claims(artifact)]


def check_runs(artifact: Artifact | Study, variants: Sequence[VariantData]) -> list[ClaimResult]:
    """Check the claims of a figure or study on the variants that it shows."""
    subjects = []
    for variant in variants:
        spec = variant.run.spec
        subject = ClaimSubject(
            variant.label, variant.run.model, merged_settings(spec), spec["task_settings"], variant, variant.run.variant
        )
        subjects.append(subject)
    return [_check(claim, subjects) for claim in read_claims(artifact)]


def check_panels(artifact: Artifact, panels: Sequence[Mapping[str, Any]]) -> list[ClaimResult]:
    """Check the claims of a figure of trajectories."""
    trajectories = {panel["panel"]: np.array(panel["trajectories"]) for panel in panels}
    return [_check_panel(claim, trajectories) for claim in read_claims(artifact)]


def _check_panel(claim: ClaimKind, trajectories: Mapping[str, np.ndarray]) -> ClaimResult:
    if not isinstance(claim, PanelClaim):
        return undecided(claim, "needs runs, but the figure is computed")
    if claim.panel not in trajectories:
        return undecided(claim, f"has no panel {claim.panel}")
    return ClaimResult(claim, *claim.judge(trajectories[claim.panel]))


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


def _check(claim: ClaimKind, subjects: Sequence[ClaimSubject]) -> ClaimResult:
    if isinstance(claim, PanelClaim):
        return undecided(claim, f"has no panel {claim.panel}")
    about, others = select_subjects(claim, subjects)
    evidence = _evidence(claim, about, others)
    missing = {_missing_runs(subject) for subject in (*about, *others) if not subject.is_measured}
    if missing or not about or (isinstance(claim, Comparing) and not others):
        reason = f"needs {', '.join(sorted(missing)) or 'missing runs'}"
        return ClaimResult(claim, None, reason, evidence)
    lengths = {subject.settings.get("sequence_length") for subject in (*about, *others)}
    own, rivals = ([_labelled(subject, len(lengths) > 1) for subject in part] for part in (about, others))
    if claim.named in TIMES and len(machines := _machines([*own, *rivals])) > 1:
        return ClaimResult(claim, None, f"needs runs on one machine, and has {len(machines)}", evidence)
    if isinstance(claim, OverSetting):
        verdicts = [claim.judge([(_setting(subject, claim.over), subject.measured) for subject in about])]
    elif isinstance(claim, Comparing):
        verdicts = [claim.judge(variant, rivals) for variant in own]
    else:
        verdicts = [claim.judge(variant) for variant in own]
    share = lowest([share for share, _ in verdicts])
    reason = _metric_words(claim.named, own[0]) + _reason(own, verdicts)
    if not share.seeds:
        # Measured models may still have no pair of runs that can be compared, which their own words then say.
        measured = all(variant.series("test", claim.named or variant.run.metric) for variant in (*own, *rivals))
        lack = reason if share.unit == "pair" and measured else f"needs runs with {claim.named or 'tests'}"
        return ClaimResult(claim, None, lack, evidence)
    return ClaimResult(claim, share, reason, evidence, own=own, rivals=rivals)


def _metric_words(name: str, variant: VariantData) -> str:
    """Return the name of a claim's metric with a colon; "" for that of the task, and for a number of a probe."""
    metric = variant.run.declared(name) if name and name != variant.run.metric else None
    return f"{metric.label or metric.name}: " if metric else ""


def _setting(subject: ClaimSubject, name: str) -> float:
    """Return the value of a numeric setting."""
    if name not in subject.settings:
        raise unknown("setting", name, subject.settings)
    return float(subject.settings[name])


def _reason(own: Sequence[VariantData], verdicts: Sequence[ClaimVerdict]) -> str:
    """Return what decides a claim; if there are several variants, each with its own share of seeds."""
    if len(verdicts) == 1:
        return verdicts[0][1]
    named = zip(own, verdicts, strict=True)
    return "; ".join(f"{variant.label}: {reason} ({share})" for variant, (share, reason) in named)


def select_subjects(
    claim: ModelClaim, subjects: Sequence[ClaimSubject]
) -> tuple[list[ClaimSubject], list[ClaimSubject]]:
    """Return the subjects that a claim is about, and those that it compares them with."""
    about = [subject for subject in subjects if subject.model == claim.model and subject.has(claim.where)]
    if not isinstance(claim, Comparing):
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
    """Return a subject's runs, with the sequence length in the label if the claim is about several lengths."""
    measured, length = subject.measured, subject.settings.get("sequence_length")
    return replace(measured, label=f"{measured.label}, T = {length}") if with_length and length else measured


def _evidence(claim: ModelClaim, about: Sequence[ClaimSubject], others: Sequence[ClaimSubject]) -> str:
    """Return a text that identifies the check and its models and settings, so that repetitions are recognised."""
    check = claim.model_dump(exclude=SUBJECTS)
    # Sorted, because two papers may list the same models in another order.
    return json.dumps([check, *(sorted(subject.identity for subject in part) for part in (about, others))])


def _machines(variants: Sequence[VariantData]) -> set[str]:
    """Return the machines that the variants' times are of."""
    return {run.environment.machine for variant in variants for run in of_one_machine(variant.finished)}


def _missing_runs(subject: ClaimSubject) -> str:
    """Name a subject without the runs that a check needs."""
    if subject.variant is None or not subject.variant.diverged:
        return subject.label
    return f"{subject.label}, of which {subject.variant.diverged} of {len(subject.variant.runs)} runs diverged"
