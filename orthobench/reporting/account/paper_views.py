"""Views of the data for the report, without markup: the papers' tables and figures, leaderboards and tasks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orthobench.analysis.claims import (
    ClaimCounts,
    ClaimResult,
    Lack,
    check_claims,
    check_panels,
    check_runs,
    count_claims,
    read_claims,
    refuse_wrong_claims,
)
from orthobench.analysis.conditions import Condition, VariantData, condition_of
from orthobench.analysis.paper_tables import UNPUBLISHED, PaperTable, TableCell, build_table, fill_command, timed_steps
from orthobench.papers import Artifact, Experiment, Paper, Study, find_study, papers
from orthobench.papers.paper_study import StudyRuns
from orthobench.reporting.account.names import DATA_SIZES, panel_of
from orthobench.reporting.account.studies import StoredStudy
from orthobench.settings import merged_settings, text


@dataclass(frozen=True)
class NearMiss:
    """The runs that differ from an experiment without runs in nothing but their numbers of sequences."""

    experiment: Experiment
    variant: VariantData


@dataclass(frozen=True)
class ArtifactView:
    """A table, or a figure's panels, with the results of its claims.

    `near_misses` are drawn in curves and count nowhere. `study` shows it, alone or in addition to its experiments;
    `study_result` is that study's data, if any. Without a record of the study, `loose_runs` is the number of finished
    runs with its settings.
    """

    artifact: Artifact
    table: PaperTable | None
    panels: list[Condition]
    claim_results: list[ClaimResult]
    missing: list[Experiment]
    printed: list[Experiment]
    key: str
    study: Study | None = None
    study_result: StoredStudy | None = None
    loose_runs: int = 0
    near_misses: Sequence[NearMiss] = ()

    @property
    def is_study(self) -> bool:
        return self.artifact.shows == "study"

    @property
    def study_progress(self) -> str:
        """How many runs are finished, if a study at the paper's size is in progress; else empty."""
        result = self.study_result
        if self.is_study and self.loose_runs:
            return f"no complete study; finished runs with its settings: {self.loose_runs}"
        if not self.is_study or result is None or result.is_small or result.is_whole or not result.progress[0]:
            return ""
        return result.progress_words

    @property
    def coverage(self) -> tuple[int, int]:
        """The numbers of measured and of all results: cells of a table or curves of a figure; a study counts as 1.

        A study of our own after a paper measures nothing that the paper has published.
        """
        if self.is_study:
            return (0, 0) if self.study and self.study.is_own else (int(self._is_study_whole), 1)
        if self.table:
            cells = [cell for cell in self.table.cells if cell.experiment]
            return sum(cell.measured is not None for cell in cells), len(cells)
        drawn, missing = (
            sum(bool(experiment.printed_in(self.artifact.name)) for experiment in experiments)
            for experiments in (self.printed, self.missing)
        )
        return drawn - missing, drawn

    @property
    def _is_study_whole(self) -> bool:
        return self.study_result is not None and self.study_result.is_whole

    @property
    def trained(self) -> tuple[int, int]:
        """The numbers of experiments with runs and of all experiments; those of a study are its own runs."""
        if self.is_study:
            return max(self.loose_runs, int(self._is_study_whole)), 1
        return len(self.printed) - len(self.missing), len(self.printed)

    @property
    def command(self) -> str:
        """The command that trains the missing runs; empty if none is missing."""
        return fill_command(self.artifact, self.missing, self.printed)


GROUPS = ("agree", "better", "worse", "undecided", "too_wide", "unpublished", "at_limit", "other")
"""Groups of measured results, as counted in an overview.

A result that agrees at the ceiling, at chance or at the baseline is "at_limit", because a broken model would agree
there too. A result is "too_wide" if its interval can support no number, and "unpublished" if no source states its
settings. One without a published number, or on another machine, is "other".
"""
COMPARED = ("agree", "better", "worse", "undecided")
"""The groups that count as compared with the papers; the others are counted apart."""
APART = {
    "too_wide": "too wide to say",
    "unpublished": "with settings not published",
    "at_limit": "at the ceiling, at chance or at the baseline",
}
"""The groups that are counted apart, in words; results in "other" are not counted."""


def group_of(cell: TableCell) -> str:
    """Return the group of a measured cell (`GROUPS`)."""
    if cell.is_refuted:
        return "better" if cell.better else "worse"
    if cell.is_confirmed:
        return "agree"
    if group := {"undecided": "undecided", "too wide to say": "too_wide", UNPUBLISHED: "unpublished"}.get(cell.verdict):
        return group
    return "at_limit" if cell.is_settled else "other"


@dataclass(frozen=True)
class PaperView:
    """A paper's tables and figures, in the paper's order."""

    paper: Paper
    artifacts: list[ArtifactView]

    @property
    def coverage(self) -> tuple[int, int]:
        """The numbers of measured and of all results: cells of tables and curves of figures."""
        measured, total = zip(*(view.coverage for view in self.artifacts), strict=True)
        return sum(measured), sum(total)

    @property
    def verdicts(self) -> Counter[str]:
        """The number of measured results in each group of verdicts (`GROUPS`)."""
        return total_verdicts([self])

    @property
    def compared(self) -> int:
        """The number of measured results that are compared with a published number (`COMPARED`)."""
        return compared(self.verdicts)

    @property
    def claim_results(self) -> list[ClaimResult]:
        return [result for view in self.artifacts for result in view.claim_results]

    @property
    def claim_counts(self) -> ClaimCounts:
        return count_claims(self.claim_results)


@dataclass(frozen=True)
class MeasuredNumber:
    """A measured number with its place in a paper."""

    paper: Paper
    part: ArtifactView
    row: str
    column: str
    cell: TableCell


def distinct_numbers(views: Sequence[PaperView]) -> list[MeasuredNumber]:
    """Return the measured numbers of all tables; one that a later paper prints again for the same runs counts once."""
    first: dict[Any, str] = {}
    return [
        MeasuredNumber(view.paper, part, row.label, column, cell)
        for view in views
        for part in view.artifacts
        for row in (part.table.rows if part.table else [])
        for column, cell in row.cells.items()
        if cell.evidence and first.setdefault(cell.evidence, view.paper.key) == view.paper.key
    ]


def total_verdicts(views: Sequence[PaperView]) -> Counter[str]:
    """Return the number of distinct measured results of all papers in each group of verdicts (`GROUPS`)."""
    counts = Counter(group_of(number.cell) for number in distinct_numbers(views))
    for view in views:
        cells = sum(cell.measured is not None for part in view.artifacts if part.table for cell in part.table.cells)
        counts["other"] += view.coverage[0] - cells
    return counts


def compared(verdicts: Mapping[str, int]) -> int:
    """Return how many results are compared with a published number (`COMPARED`)."""
    return sum(verdicts[group] for group in COMPARED if group in verdicts)


def mark_repeated_claims(views: Sequence[PaperView]) -> list[PaperView]:
    """Return the views, with each claim that repeats an earlier paper's claim on the same runs naming that claim."""
    seen: dict[str, tuple[str, str]] = {}

    def mark(paper: Paper, part: ArtifactView, result: ClaimResult) -> ClaimResult:
        first, name = seen.setdefault(result.evidence, (paper.key, part.artifact.name))
        return replace(result, same_as=f"{first} {name}") if result.evidence and first != paper.key else result

    return [
        replace(
            view,
            artifacts=[
                replace(part, claim_results=[mark(view.paper, part, result) for result in part.claim_results])
                for part in view.artifacts
            ],
        )
        for view in views
    ]


def view_paper(
    paper: Paper,
    conditions: Sequence[Condition],
    variant_keys: Mapping[str, str],
    studies: Mapping[str, StoredStudy] | None = None,
) -> PaperView:
    """Return a paper's tables and figures with their measured values.

    Args:
        variant_keys: the variant of each experiment's runs, by the experiment's identity.
        studies: the results of studies, by name.

    Raises:
        UsageError: a claim is wrong, as for `refuse_wrong_claims`.
    """
    refuse_wrong_claims(paper)
    by_key = {variant.run.variant: variant for condition in conditions for variant in condition.variants}
    measured = {
        identity: by_key[key]
        for experiment in paper.experiments()
        if (key := variant_keys.get(identity := experiment.identity)) in by_key
    }
    views = []
    for number, artifact in enumerate(paper.artifacts()):
        experiments = paper.experiments_in(artifact.name)
        elsewhere = any(other.artifact == artifact.name for other in paper.elsewhere)
        if not (experiments or elsewhere or artifact.study):
            continue
        study_result = (studies or {}).get(artifact.study)
        here = measured
        if study_result and study_result.study.benchmark and not study_result.is_small:
            here = measured | timed_steps(study_result.record, experiments)
        missing = [e for e in experiments if (variant := here.get(e.identity)) is None or not variant.finished]
        key = f"{paper.key}-{number}"
        study = find_study(artifact.study) if artifact.study else None
        is_table, is_study = artifact.shows == "table", artifact.shows == "study"
        views.append(
            ArtifactView(
                artifact,
                build_table(paper, artifact, here) if is_table else None,
                [] if is_table else _panels(key, experiments, measured),
                _check_study(artifact, study_result) if is_study else check_claims(paper, artifact, here, variant_keys),
                missing,
                experiments,
                key,
                study,
                study_result,
                _loose_runs(study, conditions) if study and study_result is None else 0,
                _near_misses(missing, conditions) if artifact.shows == "learning_curves" else [],
            )
        )
    return PaperView(paper, views)


def _near_misses(missing: Sequence[Experiment], conditions: Sequence[Condition]) -> list[NearMiss]:
    """Return for each experiment the runs that train as long on other numbers of sequences, those of most seeds."""
    near = []
    for experiment in missing:
        own = [
            variant
            for condition in conditions
            for variant in condition.variants
            if (condition.task, variant.run.model) == (experiment.task, experiment.model)
            and variant.finished
            and _trains_as_long(experiment, merged_settings(variant.run.spec))
        ]
        if own:
            near.append(NearMiss(experiment, max(own, key=lambda variant: len(variant.finished))))
    return near


def _trains_as_long(experiment: Experiment, settings: Mapping[str, Any]) -> bool:
    """Return whether settings differ in numbers of sequences alone, and in epochs so that training is as long."""
    differing = experiment.differences(settings).keys()
    printed = {**settings, **experiment.settings}
    seen, seen_printed = ([each.get(name) or 0 for name in ("train_size", "epochs")] for each in (settings, printed))
    is_data = bool(differing & DATA_SIZES.keys()) and differing <= {*DATA_SIZES, "epochs"}
    return is_data and math.prod(seen) == math.prod(seen_printed)


def _loose_runs(study: Study, conditions: Sequence[Condition]) -> int:
    """Count the finished runs that have all settings of one of the study's groups of runs, at the paper's size."""
    groups = [group for group in study.run if group.preset == "paper" and group.settings]
    return sum(
        len(variant.finished)
        for condition in conditions
        for variant in condition.variants
        if any(group.task == condition.task and _has(variant, group) for group in groups)
    )


def _has(variant: VariantData, group: StudyRuns) -> bool:
    own = merged_settings(variant.run.spec)
    settings = {**group.settings, **group.own.get(variant.run.model, {})}
    is_member = group.models == ["all"] or variant.run.model in group.models
    return is_member and all(text(own.get(name)) == text(value) for name, value in settings.items())


def _check_study(artifact: Artifact, result: StoredStudy | None) -> list[ClaimResult]:
    """Check the claims of a figure from a study, once the study is complete at the paper's size."""
    if result is None or not result.is_whole:
        command = f"orthobench study {artifact.study}"
        return [ClaimResult(claim, None, lack=Lack.STUDY, lacking=[command]) for claim in read_claims(artifact)]
    if panels := result.record.results.get("panels"):
        return check_panels(artifact, panels)
    own = [condition for figure, condition in result.conditions if figure == artifact.name]
    conditions = own or [condition for _, condition in result.conditions]
    return check_runs(artifact, [variant for condition in conditions for variant in condition.variants])


@dataclass(frozen=True)
class StudyClaims:
    """The checked claims of a study: those of the paper about its figures, and those of this project about the runs."""

    paper: list[ClaimResult]
    own: list[ClaimResult]


def study_claims(result: StoredStudy, views: Sequence[PaperView]) -> StudyClaims:
    """Return the claims of the figures that a study shows, from the papers' views or checked on the study alone.

    The claims of this project are checked on the runs that have finished.
    """
    parts = [part for view in views for part in view.artifacts if part.artifact.study == result.study.name]
    variants = [variant for _, condition in result.conditions for variant in condition.variants]
    own = [] if result.is_small else check_runs(result.study, variants)
    if parts:
        return StudyClaims([claim for part in parts for claim in part.claim_results], own)
    artifacts = [a for paper in papers() for a in paper.artifacts() if a.study == result.study.name]
    return StudyClaims([claim for artifact in artifacts for claim in _check_study(artifact, result)], own)


def _panels(key: str, experiments: list[Experiment], measured: Mapping[str, VariantData]) -> list[Condition]:
    """Group the measured experiments by panel, each labelled as in the figure, in the paper's order.

    A panel may hold several conditions, where a paper draws models with different numbers of sequences together.
    """
    own = [(experiment, measured[experiment.identity]) for experiment in experiments if experiment.identity in measured]
    by_panel: dict[tuple[str, str], list[VariantData]] = {}
    for experiment, variant in own:
        labelled = replace(variant, label=experiment.label)
        by_panel.setdefault((panel_of(experiment), experiment.task), []).append(labelled)
    return [
        condition_of(members[0].runs, f"{key}-{number}", members) for number, members in enumerate(by_panel.values())
    ]
