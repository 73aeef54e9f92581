"""`orthobench reproduce`: the papers' figures in small, and whether what is said of them shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Backend,
    CheckpointEvery,
    Database,
    Device,
    GpuShare,
    Jobs,
    checkpoint_root,
)
from orthobench.sweep import MAX_SEEDS

if TYPE_CHECKING:
    from orthobench.analysis.claims import ClaimResult
    from orthobench.papers import Artifact, Paper
    from orthobench.spec import RunConfig


def command(
    paper: Annotated[str | None, typer.Option("--paper", metavar="KEY", help="Only this paper's.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=MAX_SEEDS, help="How many seeds: 0, 1, 2, ...")] = 1,
    device: Device = "auto",
    backend: Backend = "auto",
    db: Database = DEFAULT_DATABASE,
    checkpoint_every: CheckpointEvery = 30.0,
    jobs: Jobs = None,
    gpu_share: GpuShare = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and start none.")] = False,
) -> None:
    """Train a small version of the papers' figures and check on each what is claimed of it.

    Takes about five minutes on two cores; asked again it goes on. Exit code 1 if a claim did not hold. What a paper
    ran itself is `orthobench sweep --paper`.
    """
    from contextlib import nullcontext

    from orthobench.errors import UsageError
    from orthobench.execution import session as training
    from orthobench.papers import find_paper, papers
    from orthobench.plugins import Catalog
    from orthobench.store import open_store
    from orthobench.store.open import check_writable
    from orthobench.sweep.paper import small_runs
    from orthobench.sweep.plan import plan
    from orthobench.training.lifecycle import check_backend, pick_device

    catalog = Catalog()
    wanted = [find_paper(paper)] if paper else papers()
    figures = [(one, artifact) for one in wanted for artifact in one.artifacts() if artifact.small]
    if not figures:
        raise UsageError(f"{paper} has no figures in small: orthobench sweep --paper {paper}")
    where = pick_device(device)
    check_backend(backend, where)
    runs: dict[str, tuple[RunConfig, dict[str, str]]] = {}
    keys: list[list[str]] = []
    for one, artifact in figures:
        seeded = [
            (made.with_seed(seed), chosen)
            for seed in range(seeds)
            for made, chosen in small_runs(catalog, one, artifact)
        ]
        runs |= {made.spec.key: (made, chosen) for made, chosen in seeded}
        keys.append([made.spec.key for made, _ in seeded])
    place = checkpoint_root(db)
    if dry_run:
        with training.existing(db) or nullcontext() as store:
            training.print_plan(plan(list(runs.values()), store, place))
        return
    check_writable(db)
    with open_store(db, create=True) as store:
        planned = plan(list(runs.values()), store, place)
        training.print_plan(planned)
        with training.stop_on_signals() as stop:
            session = training.Session(store, db, where, backend, checkpoint_every, stop)
            failed = session.train_missing(planned, jobs, gpu_share)
        from orthobench.analysis.claims import check_small

        found = [
            (one, artifact, check_small(store, artifact, own))
            for (one, artifact), own in zip(figures, keys, strict=True)
        ]
    held = _print(found)
    training.report_failures(failed, len(runs))
    if not held:
        raise typer.Exit(1)


def _print(found: list[tuple[Paper, Artifact, list[ClaimResult]]]) -> bool:
    """The claims in a table; whether all held."""
    from rich.markup import escape
    from rich.table import Table

    from orthobench.cli.records import console

    table = Table("figure", "the paper says", "here, in small", "measured", box=None)
    for paper, artifact, claim_results in found:
        for number, one in enumerate(claim_results):
            name = "" if number else f"{paper.key} {artifact.name}"
            table.add_row(name, escape(one.claim.text), one.verdict, escape(one.reason))
    console().print(table)
    claim_results = [one for _, _, some in found for one in some]
    held = sum(one.holds is True for one in claim_results)
    typer.echo(f"{held} of {len(claim_results)} claims held")
    return held == len(claim_results)
