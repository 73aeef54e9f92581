"""Collect the contents of a report: the measured conditions, the papers and the studies in scope."""

from __future__ import annotations

from collections.abc import Mapping

from orthobench.analysis.conditions import Condition, collect
from orthobench.papers import find_paper, papers
from orthobench.reporting.page.names import check_labels, named
from orthobench.reporting.page.pages import PaperView, best_first, mark_repeated_claims, view_paper
from orthobench.reporting.page.scope import Scope
from orthobench.reporting.page.studies import StoredStudy, study_results
from orthobench.store import Store


def load_views(
    store: Store, scope: Scope, variant_keys: Mapping[str, str]
) -> tuple[list[Condition], list[PaperView], list[StoredStudy]]:
    """Return the measured conditions, the papers and the studies in scope.

    Raises:
        UsageError: no run is in scope, the paper, table or figure is unknown, or a label does not fit.
    """
    selected = [find_paper(scope.paper)] if scope.paper else papers()
    runs = scope.select(store)
    check_labels(scope.labels, {run.model for run in runs})
    conditions = [best_first(named(condition, scope.labels)) for condition in collect(store, runs)]
    results = [] if scope.conditions else study_results(store, scope.labels)
    by_name = {result.study.name: result for result in results}
    views = mark_repeated_claims([view_paper(paper, conditions, variant_keys, by_name) for paper in papers()])
    return conditions, scope.restrict([view for view in views if view.paper in selected]), results
