"""Views of the data for the report, without markup: the papers' tables and figures, leaderboards, tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orthobench.analysis.claims import ClaimResult, check_claims, check_panels, check_runs, undecided
from orthobench.analysis.conditions import Condition, VariantData, condition_of
from orthobench.analysis.paper_tables import PaperTable, fill_command, make_table
from orthobench.papers import Artifact, Experiment, Paper, Study, find_study
from orthobench.reporting.studies import StudyResult


@dataclass(frozen=True)
class ArtifactView:
    """A table, or a figure's panels, with the results of its claims.

    `study` shows it, alone or beside its experiments; `study_result` is that study's data, if there is any.
    """

    artifact: Artifact
    table: PaperTable | None
    panels: list[Condition]
    claim_results: list[ClaimResult]
    missing: list[Experiment]
    printed: list[Experiment]
    key: str
    study: Study | None = None
    study_result: StudyResult | None = None

    @property
    def is_study(self) -> bool:
        return self.artifact.shows == "study"

    @property
    def coverage(self) -> tuple[int, int]:
        """Return the number of measured results and of all: cells of a table, curves of a figure; a study counts 1."""
        if self.is_study:
            return int(self.study_result is not None and self.study_result.is_whole), 1
        if self.table:
            cells = [cell for cell in self.table.cells if cell.experiment]
            return sum(cell.measured is not None for cell in cells), len(cells)
        return len(self.printed) - len(self.missing), len(self.printed)

    @property
    def commands(self) -> list[str]:
        """Return the commands that train the missing runs."""
        return list(dict.fromkeys(fill_command(self.artifact, experiment) for experiment in self.missing))


GROUPS = {
    "within the interval": "agree",
    "within the tolerance": "agree",
    "better": "better",
    "worse": "worse",
}
"""Verdicts as an overview counts them; a result without a printed number is "other"."""


@dataclass(frozen=True)
class PaperView:
    """A paper's tables and figures in its own order."""

    paper: Paper
    artifacts: list[ArtifactView]

    @property
    def coverage(self) -> tuple[int, int]:
        """Return the number of measured results and of all: cells of tables, curves of figures."""
        measured, total = zip(*(view.coverage for view in self.artifacts), strict=True)
        return sum(measured), sum(total)

    @property
    def verdicts(self) -> Counter[str]:
        """Return the number of measured results in each group of verdicts (`GROUPS`)."""
        cells = [cell for view in self.artifacts if view.table for cell in view.table.cells if cell.measured]
        counts = Counter(GROUPS.get(cell.verdict, "other") for cell in cells)
        counts["other"] += self.coverage[0] - len(cells)
        return counts

    @property
    def claim_results(self) -> list[ClaimResult]:
        return [result for view in self.artifacts for result in view.claim_results]


def view_paper(
    paper: Paper,
    conditions: Sequence[Condition],
    variant_keys: Mapping[str, str],
    studies: Mapping[str, StudyResult] | None = None,
) -> PaperView:
    """Return a paper's tables and figures with their measured values.

    Args:
        variant_keys: the variant of each experiment's runs, by the experiment's identity.
        studies: the results of studies, by their names.
    """
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
        missing = [e for e in experiments if (variant := measured.get(e.identity)) is None or not variant.finished]
        key = f"{paper.key}-{number}"
        is_table, is_study = artifact.shows == "table", artifact.shows == "study"
        views.append(
            ArtifactView(
                artifact,
                make_table(paper, artifact, measured) if is_table else None,
                [] if is_table else _panels(key, experiments, measured),
                _check_study(artifact, study_result) if is_study else check_claims(paper, artifact, measured),
                missing,
                experiments,
                key,
                find_study(artifact.study) if artifact.study else None,
                study_result,
            )
        )
    return PaperView(paper, views)


def _check_study(artifact: Artifact, result: StudyResult | None) -> list[ClaimResult]:
    """Check the claims of a figure that is a study, once the study is complete at the paper's size."""
    if result is None or not result.is_whole:
        reason = f"needs orthobench study {artifact.study}"
        if result is not None and result.is_small:
            reason += "; only the small version is there"
        elif result is not None:
            reason += "; {} of {} runs are finished".format(*result.progress)
        return [undecided(claim, reason) for claim in artifact.claims]
    if panels := result.record.results.get("panels"):
        return check_panels(artifact, panels)
    own = [condition for figure, condition in result.conditions if figure == artifact.name]
    conditions = own or [condition for _, condition in result.conditions]
    return check_runs(artifact, [variant for condition in conditions for variant in condition.variants])


def _panels(key: str, experiments: list[Experiment], measured: Mapping[str, VariantData]) -> list[Condition]:
    """Group the measured experiments by condition, each labelled as in the figure."""
    own = [(experiment, measured[experiment.identity]) for experiment in experiments if experiment.identity in measured]
    by_condition: dict[str, list[VariantData]] = {}
    for experiment, variant in own:
        labelled = replace(variant, label=experiment.label)
        by_condition.setdefault(variant.run.condition, []).append(labelled)
    return [
        condition_of(members[0].runs, f"{key}-{number}", members)
        for number, members in enumerate(by_condition.values())
    ]


@dataclass(frozen=True)
class LeaderboardRow:
    """A row of a leaderboard; `efficient` if no other variant is both better and smaller."""

    variant: VariantData
    efficient: bool


def leaderboard(condition: Condition) -> list[LeaderboardRow]:
    """Rank the variants of a condition that have finished runs by their final mean, the best first."""
    scored = [
        (condition.metric.sign * variant.final.mean, variant)
        for variant in condition.variants
        if variant.final is not None
    ]
    scored.sort(key=lambda pair: pair[0])
    rows = []
    for score, variant in scored:
        size = variant.run.parameter_count
        beaten = any(
            (other_score <= score and other.run.parameter_count <= size)
            and (other_score < score or other.run.parameter_count < size)
            for other_score, other in scored
            if other is not variant
        )
        rows.append(LeaderboardRow(variant, not beaten))
    return rows


def distinguishing_settings(condition: Condition, among: Sequence[Condition]) -> str:
    """Return the settings that distinguish a condition from others of its title, in words; empty without others."""
    same = [other.settings for other in among if other.title == condition.title]
    names = dict.fromkeys(name for settings in same for name in settings)
    differing = [name for name in names if len({str(settings.get(name)) for settings in same}) > 1]
    return ", ".join(f"{name} {str(condition.settings.get(name)).lower()}" for name in differing)


def tasks(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Group the conditions by task, in the order of their start."""
    by_task: dict[str, list[Condition]] = {}
    for condition in conditions:
        by_task.setdefault(condition.task, []).append(condition)
    return list(by_task.values())
