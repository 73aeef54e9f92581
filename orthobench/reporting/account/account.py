"""The account of results: everything that a page says about them, computed once and without markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from orthobench.analysis.conditions import Condition
from orthobench.analysis.searches import SearchData, collect_searches
from orthobench.papers.discrepancies import Discrepancy, discrepancies
from orthobench.reporting.account.abilities import Abilities, compute_abilities
from orthobench.reporting.account.captions import capitalized
from orthobench.reporting.account.commentary import NONE, Commentary
from orthobench.reporting.account.contents import Contents, contents_of
from orthobench.reporting.account.leaderboards import Leaderboard, headline, leaderboard, more_seeds, tasks
from orthobench.reporting.account.load import load_views
from orthobench.reporting.account.matrix import MatrixColumn, ResultMatrix, compute_matrix
from orthobench.reporting.account.names import NO_LABELS, full_title, name_of, short_labels
from orthobench.reporting.account.own_models import NONE_EARLIER, own_models, words_of_earlier
from orthobench.reporting.account.paper_views import PaperView, StudyClaims, study_claims
from orthobench.reporting.account.printed_numbers import Hours, PrintedNumbers, open_hours, printed_numbers
from orthobench.reporting.account.regressions import GatedNumber, gated_numbers
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.account.studies import StoredStudy
from orthobench.reporting.account.verdict_sheet import VerdictSheet, verdict_sheet
from orthobench.spec.index import built_in
from orthobench.store import Run, Store

MOST_WITHOUT_RUNS = 3
"""The most built-in cells without a run that are named next to the number of the others."""


@dataclass(frozen=True)
class Account:
    """What a page says about results. Mappings have the keys of conditions, unless they say otherwise.

    Attributes:
        conditions: the measured conditions.
        papers: the papers in scope, with their tables and figures.
        studies: the results of the studies that belong to a paper in scope.
        searches: the searches whose trials are among the runs.
        gated: the numbers of `orthobench check`.
        runs: all runs of conditions and studies.
        contents: the counts of runs, results and verdicts.
        matrix: how far each model gets on each task.
        abilities: what each family of cells can learn; None if the matrix is so short that it says this itself.
        explaining: the panel that explains the results (`Commentary.explanation`); None without it.
        trials: conditions of tasks in the matrix that are not in it themselves, because they are trials.
        quick: conditions at the size of quick presets.
        tasks: the conditions by task.
        leaderboards: the ranking of each condition.
        verdicts: what held and what did not, and numbers versus published ones.
        study_claims: the checked claims of each study, by its name.
        printed_numbers: the counts of numbers of each paper; empty if nothing of any paper is measured.
        open_hours: the hours of what is missing in a table or figure, by its key.
        names: the names of tasks and models for people, by their stored names.
        labels: a short name of each condition.
        titles: the title of each condition, with the settings that distinguish it.
        plugins: what the built-in tasks and models are, and their settings, by "kind/name".
        own_models: the models of the user's own code (`own_models`).
        left_out: how many runs of earlier versions of the user's own code are left out, in words.
        appearances: the tables and figures that show each run, by its key: their keys and names.
        discrepancies: where sources disagree.
        commentary: what the author writes about the results.
    """

    conditions: list[Condition]
    papers: list[PaperView]
    studies: list[StoredStudy]
    searches: Sequence[SearchData]
    gated: Sequence[GatedNumber]
    runs: list[Run]
    contents: Contents
    matrix: ResultMatrix
    abilities: Abilities | None
    explaining: Condition | None
    trials: set[str]
    quick: set[str]
    tasks: list[list[Condition]]
    leaderboards: dict[str, Leaderboard]
    verdicts: VerdictSheet
    study_claims: dict[str, StudyClaims]
    printed_numbers: list[PrintedNumbers]
    open_hours: dict[str, Hours]
    names: dict[str, str]
    labels: dict[str, str]
    titles: dict[str, str]
    plugins: dict[str, dict[str, Any]]
    own_models: dict[str, Any]
    left_out: str
    appearances: dict[str, list[tuple[str, str]]]
    discrepancies: Sequence[Discrepancy]
    commentary: Commentary

    @property
    def by_task(self) -> list[Condition]:
        """The conditions in the order of `tasks`."""
        return list(chain.from_iterable(self.tasks))

    @property
    def models(self) -> list[str]:
        """The models of the conditions, by the alphabet of their names."""
        return sorted(self.contents.models, key=lambda model: self.names[model].lower())

    @property
    def cells(self) -> list[str]:
        """The built-in ones of these models; all others are layers of other packages or of the user."""
        return [model for model in self.models if f"model/{model}" in self.plugins]

    @property
    def cells_without_runs(self) -> list[str]:
        """The names of the built-in cells without a run, which tell the number of `cells` from that of all; or none.

        None where they are more than `MOST_WITHOUT_RUNS`, because then nobody takes these cells for all.
        """
        models = [plugin for plugin in built_in()["plugins"].values() if plugin["kind"] == "model"]
        missing = [model["title"] for model in models if model["name"] not in self.contents.models]
        return missing if len(missing) <= MOST_WITHOUT_RUNS else []

    @property
    def seeds(self) -> list[int]:
        """The seeds of the conditions' runs."""
        return sorted({run.seed for c in self.conditions for variant in c.variants for run in variant.runs})

    @property
    def tags(self) -> list[str]:
        """The tags of the conditions' runs."""
        return sorted({tag for c in self.conditions for variant in c.variants for tag in variant.tags})


def compute_account(
    store: Store,
    scope: Scope,
    variant_keys: Mapping[str, str],
    commentary: Commentary = NONE,
) -> Account:
    """Return the account of the results in scope.

    Args:
        variant_keys: the variant of each experiment's runs, by the experiment's identity; only these runs are shown as
            the paper's.

    Raises:
        UsageError: no run is in scope, the paper is unknown, or a remark of the commentary is about nothing.
    """
    conditions, papers, _, earlier = load_views(store, scope, variant_keys)
    commentary.check(papers)
    results = {part.artifact.study: part.study_result for view in papers for part in view.artifacts}
    studies = [result for result in results.values() if result]
    searches = collect_searches(store, conditions)
    gated = [] if scope.conditions or scope.paper else gated_numbers(store)
    return account_of(conditions, papers, studies, searches, gated, scope.labels, earlier, commentary)


def account_of(
    conditions: list[Condition],
    papers: list[PaperView],
    studies: list[StoredStudy],
    searches: Sequence[SearchData] = (),
    gated: Sequence[GatedNumber] = (),
    labels: Mapping[str, str] = NO_LABELS,
    earlier: Mapping[str, int] = NONE_EARLIER,
    commentary: Commentary = NONE,
) -> Account:
    """Return the account of these conditions, papers and studies.

    Args:
        labels: the user's names of models, by their stored names.
        earlier: how many runs of earlier versions are left out, by model.
    """
    studied = [condition for result in studies for _, condition in result.conditions]
    runs = {run.id: run for c in (*conditions, *studied) for variant in c.variants for run in variant.runs}
    contents = contents_of(conditions, papers)
    matrix = compute_matrix(conditions, labels)
    in_matrix = {condition.key for column in matrix.columns for condition in column.conditions}
    tasks_of_matrix = {column.condition.task for column in matrix.columns}
    trials = {each.key for each in conditions if each.task in tasks_of_matrix} - in_matrix
    quick = {each.key for column in matrix.columns if column.is_folded for each in column.conditions}
    specs = built_in()["specs"]

    def ranking(condition: Condition) -> Leaderboard:
        rows = leaderboard(condition)
        return Leaderboard(rows, headline(condition, rows), more_seeds(condition, rows, studies))

    return Account(
        conditions=conditions,
        papers=papers,
        studies=studies,
        searches=searches,
        gated=gated,
        runs=list(runs.values()),
        contents=contents,
        matrix=matrix,
        abilities=compute_abilities(matrix),
        explaining=_explaining(commentary, papers),
        trials=trials,
        quick=quick,
        tasks=tasks(conditions, trials, quick),
        leaderboards={condition.key: ranking(condition) for condition in conditions},
        verdicts=verdict_sheet(papers, conditions),
        study_claims={result.study.name: study_claims(result, papers) for result in studies},
        printed_numbers=printed_numbers(papers, conditions, specs) if contents.measured else [],
        open_hours=open_hours(papers, conditions, specs),
        names={each.task: each.task_name for each in conditions}
        | {model: name_of(model, labels) for model in contents.models},
        labels=_labels(conditions, matrix),
        titles={each.key: full_title(each, conditions) for each in conditions},
        plugins=_plugins(contents),
        own_models=own_models(conditions, labels, earlier),
        left_out=words_of_earlier(earlier, labels),
        appearances=_appearances(papers),
        discrepancies=discrepancies(),
        commentary=commentary,
    )


def _explaining(commentary: Commentary, papers: Sequence[PaperView]) -> Condition | None:
    """Return the panel that the author chose to explain the results, as far as it is measured."""
    chosen = commentary.explanation
    panels = [
        panel
        for view in papers
        for part in view.artifacts
        if chosen and (view.paper.key, part.artifact.name) == (chosen.paper, chosen.artifact)
        for panel in part.panels
    ]
    return next(iter(panels), None)


def _labels(conditions: Sequence[Condition], matrix: ResultMatrix) -> dict[str, str]:
    """Return a short name of each condition by its key: in the matrix that of its column, which suits fewer names.

    Conditions that share a column keep their own names, because that of the column does not tell them apart.
    """
    named = dict(zip((condition.key for condition in conditions), short_labels(conditions), strict=True))

    def is_alone(column: MatrixColumn) -> bool:
        return not column.is_folded and len(column.conditions) == 1

    columns = {column.condition.key: column.label for column in matrix.columns if is_alone(column)}
    others = {label for key, label in named.items() if key not in columns}
    return named | {key: label for key, label in columns.items() if label not in others}


def _plugins(contents: Contents) -> dict[str, dict[str, Any]]:
    """Return what the built-in tasks and models are, and their settings, by "kind/name"."""
    known = [*(f"task/{task}" for task in contents.tasks), *(f"model/{model}" for model in contents.models)]
    return {
        name: {
            "title": capitalized(plugin["title"]) if plugin["kind"] == "task" else plugin["title"],
            "paper": plugin["paper"],
            "family": plugin.get("family"),
            "settings": [[each["name"], each["default"], each["meaning"]] for each in plugin["settings"]],
        }
        for name in known
        if (plugin := built_in()["plugins"].get(name))
    }


def _appearances(papers: Sequence[PaperView]) -> dict[str, list[tuple[str, str]]]:
    """Return the tables and figures that show each run, by key: their part of the page, and their names."""
    appearances: dict[str, dict[str, str]] = {}
    for view in papers:
        for part in view.artifacts:
            cells = part.table.cells if part.table else []
            panels = (run.key for panel in part.panels for variant in panel.variants for run in variant.runs)
            for key in (*(key for cell in cells for key in cell.runs), *panels):
                appearances.setdefault(key, {})[part.key] = f"{view.paper.key}, {part.artifact.name}"
    return {key: list(named.items()) for key, named in appearances.items()}
