"""A single run: check whether this machine supports the options, open the database, and train in this process.

A run that has a result goes through the same checks as any other, and is then only looked up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress

from orthobench.display.display import Display
from orthobench.errors import UsageError, shell_command
from orthobench.isolation import isolated
from orthobench.options.arguments import KeepWeights
from orthobench.options.run_options import RunOptions
from orthobench.sinks.live import LiveSinks
from orthobench.sinks.targets import parse_target
from orthobench.spec.resolve import RunConfig
from orthobench.store import Run, Store, open_store
from orthobench.store.open import check_writable
from orthobench.store.sqlite import named_or_default
from orthobench.system.location import Location, Place
from orthobench.system.signals import Stopped, StopRequest, stop_on_signals
from orthobench.training.build import check_fit
from orthobench.training.checkpoint import checkpoint_root, lock, places, remove_leftovers
from orthobench.training.device import check_backend, pick_device
from orthobench.training.extend import begin_longer, why_not_longer
from orthobench.training.graph import check_graph
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted
from orthobench.training.settled import settled_run
from orthobench.training.trainer import Trainer
from orthobench.weights.weights_files import remove, weights_folder

_logger = logging.getLogger(__name__)


def train_one(
    config: RunConfig,
    database: Place | None,
    options: RunOptions,
    display: Display,
    force: bool = False,
    extend: bool = False,
) -> Run:
    """Train a run in this process, and return its record; a run with a result is only looked up.

    Args:
        database: a file or an SQLAlchemy URL, created only if the run can start; None for the default database.
        force: delete the run's record and train it again.
        extend: start from the training state that a shorter run with the same settings has kept, if there is one.

    Raises:
        OrthobenchError: the run cannot start, or its results cannot be stored.
        Stopped: the user stopped the run.
    """
    database, key = named_or_default(database, writes=True), config.spec.key
    with ExitStack() as stack:
        check_places(database, options)
        check_device(options)
        check_writable(database)
        # Before the database, because a run that cannot start must leave no empty file. The trainer is kept,
        # so that task and model are built once.
        trainer = None
        if is_new(database):
            stack.enter_context(isolated())
            trainer = check_fit([config], pick_device(options.device))
        store = stack.enter_context(open_store(database, create=True))
        checkpoints, _ = places(database, options, key)
        if force:
            _forget(store, database, options, key)
        # Here, because the sink that adds tags belongs to the training, which a run with a result skips.
        store.tag([key], options.tags)
        if run := settled_run(store, checkpoints, options.on_divergence):
            remove_leftovers(store, checkpoints)
            for destination in options.log_to:
                command = shell_command("db", "export", "--to", destination, "--where", f"key={key}", "--db", database)
                _logger.warning("run %s is %s, so nothing is sent to %s: %s", key, run.status, destination, command)
            _say_missing_weights(store, run, options.keep_weights)
            return run
        return _train(config, store, database, options, display, extend, trainer)


def _say_missing_weights(store: Store, run: Run, wanted: KeepWeights) -> None:
    """Warn if a run with a result lacks the weights that it should keep.

    With "best" this says nothing, because it is the default, which the user may not have asked for.
    """
    if wanted not in ("last", "both"):
        return
    kept = {record.kind for record in store.weights([run.id])} - {"state"}
    if kept >= ({"last"} if wanted == "last" else {"best", "last"}):
        return
    what = f"only its {' and '.join(sorted(kept))} weights" if kept else "no weights"
    _logger.warning(
        "run %s is %s and has kept %s, so `keep_weights=%r` has no effect: `force=True` trains it again",
        run.key,
        run.status,
        what,
        wanted,
    )


def _train(
    config: RunConfig,
    store: Store,
    database: Location,
    options: RunOptions,
    display: Display,
    extend: bool,
    trainer: Trainer | None,
) -> Run:
    """Train a run that has no result."""
    say_before_training([config], set())
    with ExitStack() as stack:
        logs = stack.enter_context(open_logs(store, options.log_to)) if options.log_to else None
        if extend and store.find(config.spec.key) is None:
            display.print_line(_begin_longer(config, store, database, options))
        stop = StopRequest(display.on_stop_request)
        stack.enter_context(stop_on_signals(stop))
        shown = stack.enter_context(display.open_jobs(1, in_this_process=True))
        label = f"{config.spec.task} {config.spec.model} seed {config.spec.seed}"
        sinks = [stack.enter_context(shown.open_sink(label)), *([logs.sink(config.spec.key)] if logs else [])]
        try:
            return train(config, store, options, sinks, stop, trainer)
        except Interrupted:
            raise Stopped from None


def say_before_training(configs: Iterable[RunConfig], said: set[str]) -> None:
    """Say what own data is, and warn of what keeps the layers of other programs from learning.

    For plugins both are part of their contract.

    Args:
        said: the lines so far, which are not repeated; new ones are added.
    """
    for config in configs:
        with suppress(UsageError):
            if (remark := config.task_class.remark(config.task_settings)) and remark not in said:
                said.add(remark)
                _logger.info(remark)
        if (faults := getattr(config.model_class, "faults", None)) is None:
            continue
        with suppress(UsageError):  # the run itself will raise it
            for fault in faults(config.model_settings):
                if fault not in said:
                    said.add(fault)
                    _logger.warning(fault)


def _forget(store: Store, database: Location, options: RunOptions, key: str) -> None:
    """Delete a run with its checkpoints and weights."""
    if run := store.find(key):
        checkpoints, folder = places(database, options, key)
        with lock(store, checkpoints):
            weights = store.weights([run.id])
            store.delete(run.id)
            checkpoints.clear()
            remove(database, key, weights, folder.root)


def _begin_longer(config: RunConfig, store: Store, database: Location, options: RunOptions) -> str:
    """Start from the training state of a shorter run, if one has kept it; return a line that says which, or why not."""
    key = config.spec.key
    checkpoints, folder = places(database, options, key)
    with lock(store, checkpoints):
        shorter = begin_longer(config, store, database, checkpoints, folder.root)
    if shorter is not None:
        return f"run {key} continues run {shorter.key} from epoch {shorter.epochs:g}"
    why = why_not_longer(config)
    return f"run {key} starts at the beginning: " + (
        why or "no shorter run of these settings has kept its training state with `keep_weights='last'`"
    )


def check_places(database: Location, options: RunOptions) -> None:
    """Check the destinations of events, and the folders of checkpoints and weights.

    Raises:
        UsageError: one of them cannot be used.
    """
    if options.log_to:
        for target in options.log_to:
            parse_target(target)
    checkpoints = checkpoint_root(database, options.checkpoints)
    if options.keep_weights != "none":
        weights_folder(database, options.weights, checkpoints).check()


def check_device(options: RunOptions) -> None:
    """Check that this machine has the device of the options, and the device the back end and CUDA graphs.

    Raises:
        UsageError: one of them is missing.
    """
    if options.device == "cuda" or options.backend != "auto" or options.cuda_graph == "on":  # all else runs anywhere
        device = pick_device(options.device)
        check_backend(options.backend, device)
        check_graph(options.cuda_graph, device)


def is_new(database: Location) -> bool:
    """Return whether the database is a file that does not exist yet."""
    return (file := database.file) is not None and not file.exists()


def open_logs(store: Store, log_to: Sequence[Place]) -> LiveSinks:
    """Open each destination once, and return the sinks that send the events of runs to them."""
    return LiveSinks(store, list(dict.fromkeys(map(parse_target, log_to))))
