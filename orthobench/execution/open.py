"""Check before training whether this machine supports the options, and open the destinations of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orthobench.options import RunOptions
from orthobench.store import Store
from orthobench.store.location import sqlite_file
from orthobench.training.checkpoint import checkpoint_root

if TYPE_CHECKING:
    from orthobench.sinks.live import LiveSinks


def check_places(database: str, options: RunOptions) -> None:
    """Check the destinations of events, and the folders of checkpoints and weights.

    Raises:
        UsageError: one of them cannot be used.
    """
    if options.log_to:
        from orthobench.sinks.targets import parse_target

        for target in options.log_to:
            parse_target(target)
    checkpoints = checkpoint_root(database, options.checkpoints)
    if options.keep_weights != "none":
        from orthobench.weights.folder import weights_folder

        weights_folder(database, options.weights, checkpoints).check()


def check_device(options: RunOptions) -> None:
    """Check that this machine has the device of the options, and the device the back end and CUDA graphs.

    Options that suit every machine do not load torch.

    Raises:
        UsageError: one of them is missing.
    """
    if options.device == "cuda" or options.backend != "auto" or options.cuda_graph == "on":
        from orthobench.training.devices import check_backend, pick_device
        from orthobench.training.graph import check_graph

        device = pick_device(options.device)
        check_backend(options.backend, device)
        check_graph(options.cuda_graph, device)


def is_new(database: str) -> bool:
    """Tell whether the database is a file that does not exist yet."""
    return (file := sqlite_file(database)) is not None and not file.exists()


def open_logs(store: Store, log_to: Sequence[str]) -> LiveSinks:
    """Open each destination once, and return the sinks that send the events of runs to them."""
    from orthobench.sinks.live import LiveSinks
    from orthobench.sinks.targets import parse_target

    return LiveSinks(store, list(dict.fromkeys(map(parse_target, log_to))))
