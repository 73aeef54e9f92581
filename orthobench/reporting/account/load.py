"""Collect the contents of a report: the measured conditions, the papers and the studies in scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from orthobench.analysis.conditions import Condition, collect
from orthobench.analysis.variants import group
from orthobench.papers import Paper, find_paper, find_study, papers
from orthobench.reporting.account.leaderboards import best_first
from orthobench.reporting.account.names import NO_LABELS, check_labels, named
from orthobench.reporting.account.paper_views import PaperView, mark_repeated_claims, view_paper
from orthobench.reporting.account.part_cache import PartCache
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.account.studies import StoredStudy, study_results
from orthobench.store import Run, Store


def load_views(
    store: Store, scope: Scope, variant_keys: Mapping[str, str], cache: PartCache | None = None
) -> tuple[list[Condition], list[PaperView], list[StoredStudy], dict[str, int]]:
    """Return the measured conditions, the papers and the studies in scope, and how many runs are left out, by model.

    Runs are left out that are of earlier versions of the user's own code (`newest_versions`).

    Args:
        cache: what an earlier call has read and computed.

    Raises:
        UsageError: no run is in scope, the paper, table or figure is unknown, or a label does not fit.
    """
    selected = [find_paper(scope.paper)] if scope.paper else papers()
    cache = cache or PartCache()
    runs, earlier = scope.select(store, cache)
    models = {run.model for run in runs}
    check_labels({name: scope.labels[name] for name in scope.labels if name in models or not scope.awaits_runs}, models)
    conditions = current_conditions(store, runs, cache, scope.labels)
    results = [] if scope.conditions else study_results(store, cache, scope.labels, conditions)
    by_name = {result.study.name: result for result in results}

    variants_of = {each.key: {variant.run.variant for variant in each.variants} for each in conditions}

    def view(paper: Paper) -> PaperView:
        names = {variant_keys.get(experiment.identity) for experiment in paper.experiments()}
        used = [by_name.get(artifact.study) for artifact in paper.artifacts()]
        loose = [find_study(part.study) for part in paper.artifacts() if part.study and part.study not in by_name]
        tasks = {runs.task for study in loose for runs in study.run}
        own = [each for each in conditions if each.task in tasks or not names.isdisjoint(variants_of[each.key])]
        return cache(f"paper {paper.key}", [*own, *used], None, lambda: view_paper(paper, own, variant_keys, by_name))

    views = mark_repeated_claims([view(paper) for paper in papers()])
    return conditions, scope.restrict([view for view in views if view.paper in selected]), results, earlier


def current_conditions(
    store: Store, runs: Sequence[Run], cache: PartCache, labels: Mapping[str, str] = NO_LABELS
) -> list[Condition]:
    """Return the conditions of these runs, of which only those with changed runs are read, the best variants first.

    Args:
        labels: the user's names of models, by their stored names.
    """
    groups = {members[0].condition: members for members in group(runs, lambda run: run.condition)}
    changed: dict[str, Condition] = {}

    def read(key: str) -> Condition:
        if key not in changed:  # all at once, because a query for each condition takes longer
            others = [name for name, members in groups.items() if not cache.has(f"condition {name}", members)]
            own = [run for run in runs if run.condition in others]
            conditions = [best_first(named(condition, labels)) for condition in collect(store, own)]
            changed.update((condition.key, condition) for condition in conditions)
        return changed[key]

    return [cache(f"condition {key}", members, None, partial(read, key)) for key, members in groups.items()]
