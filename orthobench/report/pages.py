"""What the report shows of each paper, and over everything: views of the data, without any markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orthobench.papers import Artifact, Experiment, Paper
from orthobench.report.claims import Finding, check_claims
from orthobench.report.collect import Condition, Measured, condition_of
from orthobench.report.tables import Table, fill_command, make_table


@dataclass(frozen=True)
class ArtifactView:
    """A table, or a figure's panels, with what is claimed of it."""

    artifact: Artifact
    table: Table | None
    panels: list[Condition]
    findings: list[Finding]
    missing: list[Experiment]
    printed: list[Experiment]
    key: str

    @property
    def commands(self) -> list[str]:
        """What makes the runs that are missing."""
        return list(dict.fromkeys(fill_command(self.artifact, experiment) for experiment in self.missing))


@dataclass(frozen=True)
class PaperView:
    """A paper's tables and figures in its own order."""

    paper: Paper
    artifacts: list[ArtifactView]

    @property
    def coverage(self) -> tuple[int, int]:
        """How many of its results are measured, and how many there are: cells of tables, curves of figures."""
        measured = total = 0
        for view in self.artifacts:
            if view.table:
                cells = [cell for cell in view.table.cells if cell.experiment]
                measured += sum(cell.measured is not None for cell in cells)
                total += len(cells)
            else:
                measured += len(view.printed) - len(view.missing)
                total += len(view.printed)
        return measured, total

    @property
    def findings(self) -> list[Finding]:
        return [finding for view in self.artifacts for finding in view.findings]


def view_paper(paper: Paper, conditions: Sequence[Condition], variant_keys: Mapping[str, str]) -> PaperView:
    """What was measured of a paper; `variant_keys` has for every experiment's identity the variant its runs are of."""
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
        if not experiments and not elsewhere:
            continue
        missing = [e for e in experiments if (one := measured.get(e.identity)) is None or not one.finished]
        key = f"{paper.key}-{number}"
        is_table = artifact.shows == "table"
        views.append(
            ArtifactView(
                artifact,
                make_table(paper, artifact, measured) if is_table else None,
                [] if is_table else _panels(key, experiments, measured),
                check_claims(paper, artifact, measured),
                missing,
                experiments,
                key,
            )
        )
    return PaperView(paper, views)


def _panels(key: str, experiments: list[Experiment], measured: Mapping[str, Measured]) -> list[Condition]:
    """The measured experiments by the condition they ran under, each labelled as in the figure."""
    own = [(experiment, measured[experiment.identity]) for experiment in experiments if experiment.identity in measured]
    by_condition: dict[str, list[Measured]] = {}
    for experiment, variant in own:
        labelled = replace(variant, label=experiment.label)
        by_condition.setdefault(variant.run.condition, []).append(labelled)
    return [
        condition_of(members[0].runs, f"{key}-{number}", members)
        for number, members in enumerate(by_condition.values())
    ]


@dataclass(frozen=True)
class Place:
    """A line of a leaderboard; `efficient`: nothing else there is both better and smaller."""

    variant: Measured
    efficient: bool


def leaderboard(condition: Condition) -> list[Place]:
    """The variants of a condition that finished, the best final mean first."""
    sign = 1.0 if condition.goal == "min" else -1.0
    scored = [(sign * variant.final.mean, variant) for variant in condition.variants if variant.final is not None]
    scored.sort(key=lambda pair: pair[0])
    places = []
    for score, variant in scored:
        size = variant.run.parameter_count
        beaten = any(
            (other_score <= score and other.run.parameter_count <= size)
            and (other_score < score or other.run.parameter_count < size)
            for other_score, other in scored
            if other is not variant
        )
        places.append(Place(variant, not beaten))
    return places


def tasks(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """The conditions by task, in the order they were begun."""
    by_task: dict[str, list[Condition]] = {}
    for condition in conditions:
        by_task.setdefault(condition.task, []).append(condition)
    return list(by_task.values())
