"""Open a session: check the options, connect to the cluster, and open the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch

from orthobench.data import use_data_folder
from orthobench.execution.budget import Budget
from orthobench.execution.display import Display
from orthobench.execution.processes import worker_slots
from orthobench.execution.ray import RayCluster
from orthobench.execution.session import Session
from orthobench.execution.slurm import SlurmCluster
from orthobench.options import RunOptions, SweepOptions
from orthobench.sinks.live import LiveSinks
from orthobench.sinks.targets import parse_target
from orthobench.spec import RunConfig
from orthobench.store import Store, open_store
from orthobench.store.default import named_or_default
from orthobench.store.location import sqlite_file
from orthobench.store.open import DatabaseNotFoundError, check_writable
from orthobench.training.checkpoint import checkpoint_root
from orthobench.training.devices import check_backend, pick_device, plain_torch
from orthobench.training.fit import check_fit
from orthobench.training.graph import check_graph
from orthobench.weights.folder import weights_folder


@contextmanager
def open_session(
    database: str | Path | None,
    options: RunOptions,
    display: Display | None = None,
    dry_run: bool = False,
    runs: Iterable[Iterable[RunConfig]] = (),
) -> Iterator[Session]:
    """Open a session: check the options, connect to the cluster, and open the database.

    Args:
        database: a file or an SQLAlchemy URL; a missing file is created. None: the default database.
        dry_run: neither connect to a cluster nor create a database.
        runs: groups of the runs to train. A missing database is created only if this machine can start a run of each
            group; the machines of a cluster have data of their own.

    Raises:
        UsageError: an option does not fit this machine, the cluster or database cannot be used, a destination of
            `log_to` is unknown, or no run of a group can start.
    """
    database, options = named_or_default(database, writes=True), SweepOptions.of(options)
    destinations = list(dict.fromkeys(map(parse_target, options.log_to)))
    with ExitStack() as stack:
        stack.enter_context(plain_torch())
        stack.enter_context(use_data_folder(options.data_folder))
        checkpoints = checkpoint_root(database, options.checkpoints)
        if options.keep_weights != "none":
            weights_folder(database, options.weights, checkpoints).check()
        cluster = None
        if options.executor != "local" and not dry_run:
            cluster = (SlurmCluster if options.executor == "slurm" else RayCluster)(database, options)
        device = pick_device(options.device) if cluster is None else torch.device(cluster.device)
        if cluster is None:
            check_backend(options.backend, device)
            check_graph(options.cuda_graph, device)
            at_once = 1
            if options.jobs != 0:
                at_once = len(worker_slots(device, options.jobs, options.gpu_share, torch.get_num_threads()))
        else:
            at_once = cluster.room()
        store: Store | None = None
        if dry_run:
            with suppress(DatabaseNotFoundError):
                store = stack.enter_context(open_store(database))
        else:
            check_writable(database)
            if cluster is not None:
                stack.enter_context(cluster)
            elif (file := sqlite_file(database)) is not None and not file.exists():
                for group in runs:
                    check_fit(group)
            store = stack.enter_context(open_store(database, create=True))
        budget = None if options.budget is None else Budget(options.budget)
        logs = None
        if options.log_to and not dry_run and store is not None:
            logs = stack.enter_context(LiveSinks(store, destinations))
        yield Session(store, database, options, device, at_once, display or Display(), cluster, budget, logs)
