"""The part of the database and of the papers that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orthobench.analysis.own_code import newest_versions
from orthobench.analysis.paper_tables import PaperTable, TableCell
from orthobench.analysis.selection import COLUMNS, select_runs
from orthobench.errors import UsageError, without_folders
from orthobench.papers import Experiment
from orthobench.reporting.account.paper_views import ArtifactView, PaperView
from orthobench.settings import without_paths
from orthobench.settings.filters import Conditions, meets
from orthobench.store import Run, Store

RUN_COLUMNS = frozenset(COLUMNS) - {"task", "model"}
"""Columns that a paper's experiment does not have."""


def stored_status(run: Run) -> str:
    """Return the status stored in the database."""
    return run.status


@dataclass(frozen=True)
class Scope:
    """What a report shows.

    Attributes:
        conditions: select runs, and the papers' experiments, by task, model and settings; none: everything.
        paper: the key of one paper; none: all papers.
        table: the number of one table of the paper.
        figure: the number of one figure of the paper.
        labels: names of models in place of their titles, by their stored names.
        awaits_runs: whether a label may be of a model that has no run yet, as on a served page.
        for_others: whether the page is for others, and shows no path of this machine.
        all_versions: whether to show the runs of earlier versions of the user's own code, too (`newest_versions`).
        status_of: returns the status of a run, in case the stored one is out of date.
    """

    conditions: Conditions = field(default_factory=dict)
    paper: str | None = None
    table: str | None = None
    figure: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    awaits_runs: bool = False
    for_others: bool = False
    all_versions: bool = False
    status_of: Callable[[Run], str] = stored_status

    def __post_init__(self) -> None:
        if self.table and self.figure:
            raise UsageError("`table` and `figure` are two different things: give one of them")
        if (self.table or self.figure) and not self.paper:
            raise UsageError("`table` and `figure` belong to a paper: add `paper`, for example `paper='helfrich2018'`")

    def current_runs(self, store: Store) -> list[Run]:
        """Return all runs of a database with their current status."""
        runs = store.runs()
        for run in runs:
            run.status = self.status_of(run)
        return runs

    def select(self, stored: Sequence[Run]) -> tuple[list[Run], dict[str, int]]:
        """Return the runs to show, and how many of each model are of earlier versions.

        Raises:
            UsageError: no run meets the conditions.
        """
        runs = select_runs(stored, self.conditions)
        if self.for_others:
            for run in runs:
                run.spec, run.environment.facts = without_paths(run.spec), run.environment.facts_for_others
                run.message = run.message and without_folders(run.message)
        return (runs, {}) if self.all_versions else newest_versions(runs)

    def restrict(self, views: Sequence[PaperView]) -> list[PaperView]:
        """Return the papers with the tables, figures, rows and curves that are in scope; empty papers are left out.

        Raises:
            UsageError: the paper has no such table or figure.
        """
        views = [self._named_artifact(view) for view in views]
        if not self.conditions:
            return list(views)
        restricted = [
            replace(view, artifacts=[part for whole in view.artifacts if (part := self._restricted(whole))])
            for view in views
        ]
        return [view for view in restricted if view.artifacts]

    def _named_artifact(self, view: PaperView) -> PaperView:
        number = self.table or self.figure
        if not number:
            return view
        kind = "table" if self.table else "figure"
        by_name = {part.artifact.name: part for part in view.artifacts}
        for name in (f"{kind} {number}", number):
            if name in by_name:
                return replace(view, artifacts=[by_name[name]])
        raise UsageError(f"{view.paper.key} has no {kind} {number}; it has {', '.join(by_name)}")

    def _restricted(self, part: ArtifactView) -> ArtifactView | None:
        """Return the part of a table or figure that is in scope, or None."""
        missing = {experiment.identity for experiment in part.missing}
        printed = [each for each in part.printed if self._includes(each, each.identity not in missing)]
        if part.is_study or not printed:
            return None
        identities = {experiment.identity for experiment in printed}
        return replace(
            part,
            table=part.table and _restricted_table(part.table, identities),
            claim_results=[result for result in part.claim_results if result.is_decided],
            missing=[experiment for experiment in part.missing if experiment.identity in identities],
            printed=printed,
            near_misses=[near for near in part.near_misses if near.experiment.identity in identities],
        )

    def _includes(self, experiment: Experiment, is_measured: bool) -> bool:
        """Return whether an experiment meets the conditions; conditions on runs require that it is measured."""
        values = {"task": experiment.task, "model": experiment.model, **experiment.settings}
        return all(
            is_measured if key in RUN_COLUMNS else meets(key, values.get(key), accepted)
            for key, accepted in self.conditions.items()
        )


def _restricted_table(table: PaperTable, identities: set[str]) -> PaperTable:
    """Return the table with the cells of these experiments, without empty rows and columns."""

    def is_shown(cell: TableCell) -> bool:
        return cell.experiment is not None and cell.experiment.identity in identities

    rows = [
        replace(row, cells={label: cell for label, cell in row.cells.items() if is_shown(cell)}) for row in table.rows
    ]
    labels = {label for row in rows for label in row.cells}
    return replace(
        table,
        rows=[row for row in rows if row.cells],
        columns=[column for column in table.columns if column.label in labels],
    )
