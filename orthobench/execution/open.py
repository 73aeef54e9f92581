"""Check before training whether this machine supports the options, and open the destinations of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from orthobench.location import Location
from orthobench.options import RunOptions
from orthobench.store import Store
from orthobench.training.checkpoint import checkpoint_root
from orthobench.training.devices import check_backend, pick_device
from orthobench.training.graph import check_graph

if TYPE_CHECKING:
    from orthobench.sinks.live import LiveSinks


def check_places(database: Location, options: RunOptions) -> None:
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


def check_device(options: RunOptions) -> torch.device:
    """Return the device of runs on this machine.

    Raises:
        UsageError: the machine has no such device, or the device has no such back end or no CUDA graphs.
    """
    device = pick_device(options.device)
    check_backend(options.backend, device)
    check_graph(options.cuda_graph, device)
    return device


def is_new(database: Location) -> bool:
    """Tell whether the database is a file that does not exist yet."""
    return (file := database.file) is not None and not file.exists()


def open_logs(store: Store, log_to: Sequence[str]) -> LiveSinks:
    """Open each destination once, and return the sinks that send the events of runs to them."""
    from orthobench.sinks.live import LiveSinks
    from orthobench.sinks.targets import parse_target

    return LiveSinks(store, list(dict.fromkeys(map(parse_target, log_to))))
