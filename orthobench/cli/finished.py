"""Answer `run` and `sweep` from the database if all runs are finished, because resolving settings would load torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import typer

from orthobench.arguments import Preset
from orthobench.location import Location
from orthobench.plugins import Catalog

if TYPE_CHECKING:
    from orthobench.store import Run


def answer_run(task: str, model: str, settings: Mapping[str, str], preset: Preset, seed: int, db: Location) -> bool:
    """Print the result of a run for which an earlier command used the same words; return False if there is none."""
    from orthobench.cli.summaries import describe
    from orthobench.planning.requests import request_of
    from orthobench.store.lookup import stored_results

    if (request := request_of(Catalog(), task, model, settings, preset)) is None:
        return False
    run = stored_results(db, [request]).get((request, seed))
    if run is None:
        return False
    typer.echo(describe(run))
    return True


def answer_sweep(
    task: str,
    models: Sequence[str],
    grid: Mapping[str, str],
    settings: Mapping[str, str],
    preset: Preset,
    seeds: int,
    db: Location,
) -> bool:
    """Print the results of a sweep if earlier commands asked for all its runs; return False if a result is missing.

    Raises:
        UsageError: the grid is invalid.
    """
    from orthobench.analysis.variants import variants
    from orthobench.cli.summaries import RunState, print_states, print_summary
    from orthobench.planning.grid import combinations, read_grid
    from orthobench.planning.requests import request_of
    from orthobench.store.lookup import stored_results

    catalog, points = Catalog(), combinations(read_grid(grid))
    if settings.keys() & points[0].keys():
        return False  # the usual code path reports the error
    requests = [
        (request_of(catalog, task, model, {**settings, **point}, preset), point)
        for model in dict.fromkeys(models)
        for point in points
    ]
    results = stored_results(db, [request for request, _ in requests if request is not None])
    points_by_seed = [(request or "", seed, point) for seed in range(seeds) for request, point in requests]
    if any((request, seed) not in results for request, seed, _ in points_by_seed):
        return False
    runs = [(results[request, seed], point) for request, seed, point in points_by_seed]
    print_states([RunState(run.key, run.task, run.model, point, run.seed, run.status) for run, point in runs])
    print_summary(variants([cast("Run", run) for run, _ in runs]))  # variants only read columns
    return True
