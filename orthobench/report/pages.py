"""What the report shows of each paper, and over everything: views of the data, without any markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orthobench.analysis.claims import ClaimResult, check_claims, check_panels, check_runs, undecided
from orthobench.analysis.conditions import Condition, VariantData, condition_of
from orthobench.analysis.paper_tables import PaperTable, fill_command, make_table
from orthobench.papers import Artifact, Experiment, Paper, Study, find_study
from orthobench.report.studies import StudyResult


@dataclass(frozen=True)
class ArtifactView:
    """A table, or a figure's panels, with what is claimed of it.

    `study` shows it, alone or beside its experiments; `found` is what there is of that study.
    """

    artifact: Artifact
    table: PaperTable | None
    panels: list[Condition]
    claim_results: list[ClaimResult]
    missing: list[Experiment]
    printed: list[Experiment]
    key: str
    study: Study | None = None
    found: StudyResult | None = None

    @property
    def is_study(self) -> bool:
        return self.artifact.shows == "study"

    @property
    def coverage(self) -> tuple[int, int]:
        """How many of its results are measured, and how many there are: cells of a table, curves of a figure; a study
        is one.
        """
        if self.is_study:
            return int(self.found is not None and self.found.is_whole), 1
        if self.table:
            cells = [cell for cell in self.table.cells if cell.experiment]
            return sum(cell.measured is not None for cell in cells), len(cells)
        return len(self.printed) - len(self.missing), len(self.printed)

    @property
    def commands(self) -> list[str]:
        """What makes the runs that are missing."""
        return list(dict.fromkeys(fill_command(self.artifact, experiment) for experiment in self.missing))


GROUPS = {
    "within the interval": "agree",
    "within the tolerance": "agree",
    "better": "better",
    "worse": "worse",
}
"""Verdicts as an overview counts them; what is measured beside no number is "other"."""


@dataclass(frozen=True)
class PaperView:
    """A paper's tables and figures in its own order."""

    paper: Paper
    artifacts: list[ArtifactView]

    @property
    def coverage(self) -> tuple[int, int]:
        """How many of its results are measured, and how many there are: cells of tables, curves of figures."""
        measured, total = zip(*(view.coverage for view in self.artifacts), strict=True)
        return sum(measured), sum(total)

    @property
    def verdicts(self) -> Counter[str]:
        """How many of its measured results are in which group of verdicts (`GROUPS`)."""
        cells = [cell for view in self.artifacts if view.table for cell in view.table.cells if cell.measured]
        found = Counter(GROUPS.get(cell.verdict, "other") for cell in cells)
        found["other"] += self.coverage[0] - len(cells)
        return found

    @property
    def claim_results(self) -> list[ClaimResult]:
        return [finding for view in self.artifacts for finding in view.claim_results]


def view_paper(
    paper: Paper,
    conditions: Sequence[Condition],
    variant_keys: Mapping[str, str],
    studies: Mapping[str, StudyResult] | None = None,
) -> PaperView:
    """What was measured of a paper.

    Args:
        variant_keys: for every experiment's identity the variant its runs are of.
        studies: what there is of studies, by their names.
    """
    found = {variant.run.variant: variant for condition in conditions for variant in condition.variants}
    measured = {
        identity: found[key]
        for experiment in paper.experiments()
        if (key := variant_keys.get(identity := experiment.identity)) in found
    }
    views = []
    for number, artifact in enumerate(paper.artifacts()):
        experiments = paper.experiments_in(artifact.name)
        elsewhere = any(other.artifact == artifact.name for other in paper.elsewhere)
        if not (experiments or elsewhere or artifact.study):
            continue
        carried_out = (studies or {}).get(artifact.study)
        missing = [e for e in experiments if (one := measured.get(e.identity)) is None or not one.finished]
        key = f"{paper.key}-{number}"
        is_table, is_study = artifact.shows == "table", artifact.shows == "study"
        views.append(
            ArtifactView(
                artifact,
                make_table(paper, artifact, measured) if is_table else None,
                [] if is_table else _panels(key, experiments, measured),
                _check_study(artifact, carried_out) if is_study else check_claims(paper, artifact, measured),
                missing,
                experiments,
                key,
                find_study(artifact.study) if artifact.study else None,
                carried_out,
            )
        )
    return PaperView(paper, views)


def _check_study(artifact: Artifact, found: StudyResult | None) -> list[ClaimResult]:
    """The claims of a figure that is a study, where that was carried out whole and at the paper's size."""
    if found is None or not found.is_whole:
        reason = f"needs orthobench study {artifact.study}"
        if found is not None and found.is_small:
            reason += "; only the small version is there"
        elif found is not None:
            reason += "; {} of {} runs are finished".format(*found.progress)
        return [undecided(claim, reason) for claim in artifact.claims]
    if panels := found.record.results.get("panels"):
        return check_panels(artifact, panels)
    shown = [one for figure, one in found.conditions if figure == artifact.name]
    conditions = shown or [one for _, one in found.conditions]
    return check_runs(artifact, [variant for condition in conditions for variant in condition.variants])


def _panels(key: str, experiments: list[Experiment], measured: Mapping[str, VariantData]) -> list[Condition]:
    """The measured experiments by the condition they ran under, each labelled as in the figure."""
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
    """A line of a leaderboard; `efficient`: nothing else there is both better and smaller."""

    variant: VariantData
    efficient: bool


def leaderboard(condition: Condition) -> list[LeaderboardRow]:
    """The variants of a condition that finished, the best final mean first."""
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
    """What tells a condition from others of its title, in words; nothing where it is the only one."""
    same = [other.settings for other in among if other.title == condition.title]
    names = dict.fromkeys(name for settings in same for name in settings)
    differing = [name for name in names if len({str(settings.get(name)) for settings in same}) > 1]
    return ", ".join(f"{name} {str(condition.settings.get(name)).lower()}" for name in differing)


def tasks(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """The conditions by task, in the order they were begun."""
    by_task: dict[str, list[Condition]] = {}
    for condition in conditions:
        by_task.setdefault(condition.task, []).append(condition)
    return list(by_task.values())
