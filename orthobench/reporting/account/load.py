"""Collect the contents of a report: the measured conditions, the papers and the studies in scope."""

from __future__ import annotations

from collections.abc import Mapping

from orthobench.analysis.conditions import Condition, collect
from orthobench.papers import find_paper, papers
from orthobench.reporting.account.leaderboards import best_first
from orthobench.reporting.account.names import check_labels, named
from orthobench.reporting.account.paper_views import PaperView, mark_repeated_claims, view_paper
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.account.studies import StoredStudy, study_results
from orthobench.store import Store


def load_views(
    store: Store, scope: Scope, variant_keys: Mapping[str, str]
) -> tuple[list[Condition], list[PaperView], list[StoredStudy], dict[str, int]]:
    """Return the measured conditions, the papers and the studies in scope, and how many runs are left out, by model.

    Runs are left out that are of earlier versions of the user's own code (`newest_versions`).

    Raises:
        UsageError: no run is in scope, the paper, table or figure is unknown, or a label does not fit.
    """
    selected = [find_paper(scope.paper)] if scope.paper else papers()
    stored = scope.current_runs(store)
    runs, earlier = scope.select(stored)
    models = {run.model for run in runs}
    check_labels({name: scope.labels[name] for name in scope.labels if name in models or not scope.awaits_runs}, models)
    conditions = [best_first(named(condition, scope.labels)) for condition in collect(store, runs)]
    results = [] if scope.conditions else study_results(store, stored, scope.labels, conditions)
    by_name = {result.study.name: result for result in results}
    views = mark_repeated_claims([view_paper(paper, conditions, variant_keys, by_name) for paper in papers()])
    return conditions, scope.restrict([view for view in views if view.paper in selected]), results, earlier
