"""A single run: check the options, open the database, and train in this process."""

from __future__ import annotations

from contextlib import ExitStack

from orthobench.data.folder import use_data_folder
from orthobench.execution.display import Display
from orthobench.execution.open import check_device, check_places, is_new, open_logs
from orthobench.location import Location, Place
from orthobench.options import RunOptions
from orthobench.process.stop import Stopped, StopRequest, stop_on_signals
from orthobench.spec import RunConfig
from orthobench.store import Run, Status, Store, open_store
from orthobench.store.default import named_or_default
from orthobench.store.open import check_writable
from orthobench.training.checkpoint import Checkpoints, checkpoint_root, checkpoints_at
from orthobench.training.devices import plain_torch
from orthobench.training.fit import check_fit
from orthobench.training.lifecycle import train
from orthobench.training.locks import lock
from orthobench.training.loop import Interrupted


def train_one(
    config: RunConfig,
    database: Place | None,
    options: RunOptions,
    display: Display,
    force: bool = False,
    extend: bool = False,
    request: str | None = None,
) -> Run:
    """Train a run in this process, and return its record; a run with a result is only looked up.

    Args:
        database: a file or an SQLAlchemy URL, created only if the run can start; None for the default database.
        force: delete the run's record and train it again.
        extend: start from the training state that a shorter run with the same settings has kept, if there is one.
        request: the request to store with a run that has a result (see `orthobench.planning.requests`).

    Raises:
        OrthobenchError: the run cannot start, or its results cannot be stored.
        Stopped: the user stopped the run.
    """
    database, key = named_or_default(database, writes=True), config.spec.key
    with ExitStack() as stack:
        stack.enter_context(plain_torch())
        stack.enter_context(use_data_folder(options.data_folder))
        check_places(database, options)
        device = check_device(options)
        check_writable(database)
        trainer = check_fit([config], device) if is_new(database) else None
        store = stack.enter_context(open_store(database, create=True))
        logs = stack.enter_context(open_logs(store, options.log_to)) if options.log_to else None
        if force:
            _forget(store, database, options, key)
        if extend and store.find(key) is None:
            display.print_line(_begin_longer(config, store, database, options))
        stop = StopRequest(display.on_stop_request)
        stack.enter_context(stop_on_signals(stop))
        shown = stack.enter_context(display.open_jobs(1, in_this_process=True))
        label = f"{config.spec.task} {config.spec.model} seed {config.spec.seed}"
        sinks = [stack.enter_context(shown.open_sink(label)), *([logs.sink(key)] if logs else [])]
        try:
            run = train(config, store, options, sinks, stop, trainer)
        except Interrupted:
            raise Stopped from None
        if request not in (None, run.request) and Status(run.status).is_final:
            store.keep_requests({key: request})
        return run


def _forget(store: Store, database: Location, options: RunOptions, key: str) -> None:
    """Delete a run with its checkpoints and weights."""
    from orthobench.weights.folder import remove

    if run := store.find(key):
        checkpoints, place = _places(database, options, key)
        with lock(store, checkpoints):
            weights = store.weights([run.id])
            store.delete(run.id)
            checkpoints.clear()
            remove(database, key, weights, place)


def _begin_longer(config: RunConfig, store: Store, database: Location, options: RunOptions) -> str:
    """Start from the training state of a shorter run, if one has kept it; return a line that says which, or why not."""
    from orthobench.training.longer import begin_longer, why_not_longer

    key = config.spec.key
    checkpoints, place = _places(database, options, key)
    with lock(store, checkpoints):
        shorter = begin_longer(config, store, database, checkpoints, place)
    if shorter is not None:
        return f"run {key} continues run {shorter.key} from epoch {shorter.epochs:g}"
    why = why_not_longer(config)
    return f"run {key} starts at the beginning: " + (
        why or "no shorter run of these settings has kept its training state with `keep_weights='last'`"
    )


def _places(database: Location, options: RunOptions, key: str) -> tuple[Checkpoints, Location]:
    """Return the checkpoints of a run, and the folder or URL of all weights."""
    from orthobench.weights.folder import weights_folder

    root = checkpoint_root(database, options.checkpoints)
    return checkpoints_at(root, key), weights_folder(database, options.weights, root).root
