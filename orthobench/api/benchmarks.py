"""Time training steps on this machine, and keep the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from orthobench.bench import shapes, suite
from orthobench.bench.measure import CPU, WALL
from orthobench.bench.models import measure_models
from orthobench.options.arguments import DeviceName
from orthobench.plugins import Catalog
from orthobench.store import open_store
from orthobench.store.open import check_writable
from orthobench.system import environment
from orthobench.system.cores import counts_cpu_time
from orthobench.system.location import Location
from orthobench.training.device import pick_device

BenchmarkName = Literal["recurrence", "models"]


def measure(
    name: BenchmarkName,
    db: Location,
    *,
    only: Sequence[str] = (),
    rounds: int = 5,
    threads: int | None = None,
    device: DeviceName = "auto",
    quick: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run a benchmark, store its results in a database, and return them with their environment as JSON values.

    Args:
        only: names of shapes; all by default. Models have their own.
        rounds: number of timings of each implementation.
        threads: number of CPU threads; None for the current one.
        quick: use toy sizes, whose times are not meaningful.
        tell: receives a line about the progress.

    Raises:
        UsageError: a shape or the device is unknown, or the database cannot be written.
    """
    selected = shapes.select(only)
    check_writable(db)
    torch_device = pick_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    clock = CPU if counts_cpu_time(torch_device.type, torch.get_num_threads()) else WALL
    setup = suite.Setup(torch_device, rounds, quick, clock, tell)
    with open_store(db, create=True) as store:
        if name == "models":
            results = measure_models(Catalog().usable("model"), setup)
        else:
            results = suite.measure_recurrences(selected, setup)
        facts = environment.describe(torch_device)
        stored = store.add_benchmark(name, results, facts)
    created_at = stored.created_at.isoformat(timespec="seconds")
    return {"benchmark": stored.id, "name": name, "created_at": created_at, "environment": facts, **results}
