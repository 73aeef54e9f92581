"""Check the claims of papers about their tables and figures on the stored runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from orthobench.analysis.claims.claim import Claim, ClaimVerdict, Comparing, ModelClaim, Numbers
from orthobench.analysis.claims.claim_results import ClaimResult, Lack
from orthobench.analysis.claims.curve_shapes import CurveClaim
from orthobench.analysis.claims.gradients import VectorClaim
from orthobench.analysis.claims.over_setting import OverSetting
from orthobench.analysis.claims.reading import ClaimKind, read_claims
from orthobench.analysis.claims.trajectories import PanelClaim
from orthobench.analysis.conditions import VariantData, collect
from orthobench.analysis.dynamics import COMPUTATIONS
from orthobench.analysis.paper_tables import TIMES
from orthobench.analysis.statistics import lowest
from orthobench.analysis.variants import of_one_machine
from orthobench.errors import UsageError, unknown
from orthobench.papers import Artifact, Experiment, Paper, Study, StudyRun, find_study
from orthobench.settings import merged_settings, text
from orthobench.spec.index import built_in
from orthobench.store import Store

Subject = TypeVar("Subject", "ClaimSubject", Experiment)
Planned = TypeVar("Planned", Experiment, StudyRun)
SUBJECTS = {"text", "cannot_fail", "model", "where", "others", "than"}
"""Fields of a claim that select its runs, or do not affect its check."""


@dataclass(frozen=True)
class ClaimSubject:
    """A model with settings that a claim may be about, with its runs if there are any.

    Attributes:
        identity: names the model, its task and all settings, whether or not it has runs.
        has_own_settings: whether this project chose settings of its experiment (`Experiment.own_settings`).
    """

    label: str
    model: str
    settings: Mapping[str, Any]
    task_settings: Mapping[str, Any]
    variant: VariantData | None
    identity: str
    selection: str = "curve"
    has_own_settings: bool = False

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
            e.own_settings,
        )
        for e in paper.experiments_in(artifact.name)
    ]
    return [_check(claim, subjects) for claim in read_claims(artifact)]


def refuse_wrong_claims(paper: Paper) -> None:
    """Read all claims of a paper: about its tables and figures, their small versions, and its studies.

    Raises:
        UsageError: a claim is wrong, as for `read_claims`, or selects nothing: no experiment has its model and
            settings, or neither its tasks nor a probe have its metric.
    """
    by_study = {study.name: [run for group in study.run for run in group.runs(["all"])] for study in paper.study}
    for artifact in paper.artifacts():
        runs, experiments = by_study.get(artifact.study, []), paper.experiments_in(artifact.name)
        if experiments:
            _refuse_claims(read_claims(artifact), artifact, experiments, _refuse_empty)
        else:
            _refuse_claims(read_claims(artifact), artifact, runs, _refuse_unset)
        if artifact.small:
            small = artifact.model_copy(update={"claims": artifact.small.claims})
            _refuse_models(read_claims(small), small, artifact.small.models)
            _refuse_claims(read_claims(small), small, runs, _refuse_unset)
    for study in paper.study:
        _refuse_claims(read_claims(study), study, by_study[study.name], _refuse_unset)


def _refuse_claims(
    claims: Sequence[Claim],
    about: Artifact | Study,
    runs: Sequence[Planned],
    refuse_settings: Callable[[ModelClaim, Sequence[Planned]], None],
) -> None:
    """Refuse a claim that selects none of these experiments, or runs of a study; without any, none is refused."""
    _refuse_models(claims, about, {each.model for each in runs})
    for claim in claims if runs else ():
        if isinstance(claim, ModelClaim):
            try:
                refuse_settings(claim, runs)
                _refuse_unknown_metric(claim, {each.task for each in runs})
            except UsageError as error:
                place = " ".join(filter(None, (about.paper, about.name)))
                raise UsageError(f"{place}, claim '{claim.text}': {error}") from None


def _refuse_models(claims: Sequence[Claim], about: Artifact | Study, models: Collection[str]) -> None:
    """Refuse claims about models that none of the runs have; without `models`, or with all of them, none is refused."""
    for claim in claims if models and "all" not in models else ():
        for name in (claim.model, *getattr(claim, "others", [])) if isinstance(claim, ModelClaim) else ():
            if name not in models:
                place = " ".join(filter(None, (about.paper, about.name)))
                raise UsageError(f"{place}, claim '{claim.text}': {unknown('model', name, models)}")


def _refuse_empty(claim: ModelClaim, experiments: Sequence[Experiment]) -> None:
    """Refuse a claim whose settings no experiment of its model, or of one of its others, has."""
    about, others = select_subjects(claim, experiments)
    parts: list[tuple[Sequence[str], Mapping[str, Any], Sequence[Experiment]]] = [([claim.model], claim.where, about)]
    if isinstance(claim, Comparing):
        rest = {each.model for each in experiments if each not in about}
        if not rest:
            raise UsageError(f"there is no experiment with which to compare {claim.model}")
        for compared in [[name] for name in claim.others] or [sorted(rest)]:
            parts.append((compared, claim.where | claim.than, [each for each in others if each.model in compared]))
    for models, settings, found in parts:
        if found:
            continue
        candidates = [each for each in experiments if each.model in models]
        for name, value in settings.items():
            known = [each.settings[name] for each in candidates if name in each.settings]
            if not known:
                raise unknown("setting", name, {name for each in candidates for name in each.settings})
            if value not in known:
                raise _no_value(f"experiment of {', '.join(models)}", name, value, known)
        all_of = ", ".join(f"{name}={text(value)}" for name, value in settings.items())
        raise UsageError(f"no experiment of {', '.join(models)} has all of {all_of}")


def _refuse_unset(claim: ModelClaim, runs: Sequence[StudyRun]) -> None:
    """Refuse a claim about a setting that no run of its model in a study has, or about another value of it."""
    index = built_in()
    plugins = [f"model/{claim.model}", *(f"task/{run.task}" for run in runs)]
    own = [each for name in plugins for each in index["plugins"].get(name, {}).get("settings", [])]
    names = {each["name"] for each in (*index["training"], *own)}
    for name, value in claim.where.items():
        if name not in names:
            raise unknown("setting", name, names)
        known = [run.settings[name] for run in runs if run.model in (claim.model, "all") and name in run.settings]
        # A study may give a count as a share, and a claim names the count.
        may_be_share = isinstance(value, int) and any(isinstance(each, float) for each in known)
        if known and value not in known and not may_be_share:
            raise _no_value(f"run of {claim.model}", name, value, known)


def _no_value(what: str, name: str, value: Any, known: Sequence[Any]) -> UsageError:
    values = ", ".join(dict.fromkeys(map(text, known)))
    return UsageError(f"no {what} has {name}={text(value)}: give {values}")


def _refuse_unknown_metric(claim: ModelClaim, tasks: Collection[str]) -> None:
    """Refuse a claim about a metric that no task declares, or about a number or vector that no probe can log."""
    plugins = built_in()["plugins"]
    declared = {name for task in tasks for name in plugins.get(f"task/{task}", {}).get("metrics", [])} | TIMES.keys()
    probes = {name.partition("/")[2] for name in plugins if name.startswith("probe/")}
    if isinstance(claim, CurveClaim) and claim.metric and claim.split:
        if claim.metric not in declared:
            raise unknown("metric", claim.metric, declared)
    elif isinstance(claim, (CurveClaim, VectorClaim)) and claim.named:
        head = claim.named.partition("/")[0]  # the probe's name, with the kind of its number
        if claim.named in declared:
            raise UsageError(f"{claim.named} is a metric of the task and not of a probe: give split='test'")
        if not any(head == probe or head.startswith(f"{probe}_") for probe in probes):
            raise unknown("metric", claim.named, declared | probes)


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
        return ClaimResult(claim, None, lack=Lack.COMPUTED)
    if claim.panel not in trajectories:
        return ClaimResult(claim, None, lack=Lack.PANEL, lacking=[claim.panel])
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


def _check(claim: ClaimKind, subjects: Sequence[ClaimSubject]) -> ClaimResult:
    if isinstance(claim, PanelClaim):
        return ClaimResult(claim, None, lack=Lack.PANEL, lacking=[claim.panel])
    about, others = select_subjects(claim, subjects)
    undecided = ClaimResult(claim, None, evidence=_evidence(claim, about, others))
    unmeasured = [subject for subject in (*about, *others) if not subject.is_measured]
    if unmeasured or not about or (isinstance(claim, Comparing) and not others):
        diverged = any(subject.variant and subject.variant.diverged for subject in unmeasured)
        lacking = sorted({subject.label for subject in unmeasured})
        return replace(undecided, lack=Lack.DIVERGED if diverged else Lack.RUNS, lacking=lacking)
    lengths = {subject.settings.get("sequence_length") for subject in (*about, *others)}
    own, rivals = ([_labelled(subject, len(lengths) > 1) for subject in part] for part in (about, others))
    if claim.named in TIMES and len(machines := _machines([*own, *rivals])) > 1:
        return replace(undecided, lack=Lack.ONE_MACHINE, lacking=sorted(machines))
    if isinstance(claim, OverSetting):
        verdicts = [claim.judge([(_setting(subject, claim.over), subject.measured) for subject in about])]
    elif isinstance(claim, Comparing):
        verdicts = [claim.judge(variant, rivals) for variant in own]
    else:
        verdicts = [claim.judge(variant) for variant in own]
    share = lowest([share for share, _ in verdicts])
    if not share.seeds:
        measured = all(variant.series("test", claim.named or variant.run.metric) for variant in (*own, *rivals))
        if share.unit == "pair" and measured:
            return replace(undecided, lack=Lack.PAIRS)
        return replace(undecided, lack=Lack.METRIC, lacking=[claim.named or own[0].run.metric])
    metric = own[0].run.declared(claim.named) if claim.named and claim.named != own[0].run.metric else None
    return replace(
        undecided,
        share=share,
        numbers=_numbers(own, verdicts),
        metric=(metric.label or metric.name) if metric else "",
        own=own,
        rivals=rivals,
        at_own_settings=any(subject.has_own_settings for subject in (*about, *others)),
        is_of_times=claim.named in TIMES,
    )


def _setting(subject: ClaimSubject, name: str) -> float:
    """Return the value of a numeric setting."""
    if name not in subject.settings:
        raise unknown("setting", name, subject.settings)
    return float(subject.settings[name])


def _numbers(own: Sequence[VariantData], verdicts: Sequence[ClaimVerdict]) -> list[Numbers]:
    """Return what decides a claim; if it is about several variants, each with its label and its share of seeds."""
    if len(verdicts) == 1:
        return verdicts[0][1]
    return [
        each if each.of else replace(each, of=variant.label, share=share)
        for variant, (share, numbers) in zip(own, verdicts, strict=True)
        for each in numbers
    ]


def select_subjects(claim: ModelClaim, subjects: Sequence[Subject]) -> tuple[list[Subject], list[Subject]]:
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
    """Return the machines and clocks that the variants' times are of."""
    return {run.timed_on for variant in variants for run in of_one_machine(variant.finished)}
