"""What the database has of a run, seed by seed, and the machine's speed beside it.

A step's seconds mean nothing on another machine. So the product of two matrices of a set size, on one thread, is timed
before and after each run, and the step is given as a multiple of it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from orthobench import environment
from orthobench.bench.measure import SystemClock, interleave
from orthobench.bench.suite import SGEMM, MatrixProduct
from orthobench.spec import RunConfig
from orthobench.store import Run, Status, Store

CALIBRATION = "calibration"
"""The benchmark's name in the database; its results hold a run's key and seconds."""
ROUNDS = 3
CODE = "commit", "dirty", "changes", "packages"  # of an environment's facts, those that say which code it is


@dataclass(frozen=True)
class Measured:
    """What one seed gave: test metrics by name and which of the tests, or why there are none.

    Of the tests "final" is the last, "min" and "max" the best, whichever is better. speed: seconds of a training step
    over those of the calibration's product. facts: the environment the run was made in.
    """

    values: Mapping[tuple[str, str], float] = field(default_factory=dict)
    diverged: bool = False
    missing: str = ""
    speed: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def collect(store: Store, runs: Sequence[RunConfig], here: Mapping[str, Any] | None = None) -> dict[int, Measured]:
    """By seed, what the database has of these runs, which differ by seed alone.

    `here`, the facts of this environment, is given where runs by other code are no answer.
    """
    found = {run.key: run for run in store.runs(keys=[one.spec.key for one in runs])}
    products = {one.results["run"]: one.results["seconds"] for one in store.benchmarks(CALIBRATION)}
    measured = {}
    for one in runs:
        run = found.get(one.spec.key)
        missing = _missing(run, here)
        if run is None or missing:
            measured[one.spec.seed] = Measured(missing=missing)
        else:
            measured[one.spec.seed] = _read(store, run, products.get(run.key))
    return measured


def _missing(run: Run | None, here: Mapping[str, Any] | None) -> str:
    """Why a run is no answer; empty if it is one."""
    if run is None:
        return "not in the database"
    if not Status(run.status).is_final:
        return f"{run.status}: {run.message}" if run.message else run.status
    facts = run.environment.facts
    if here is not None and any(facts.get(name) != here.get(name) for name in CODE):
        return "made by other code or versions: give a new database, or compare them as they are with --db-only"
    return ""


def _read(store: Store, run: Run, product: float | None) -> Measured:
    facts = run.environment.facts
    if run.status == Status.DIVERGED:
        return Measured(diverged=True, facts=facts)
    series: dict[str, list[float]] = {}
    for row in store.metrics([run.id], "test"):
        if row.value is not None:
            series.setdefault(row.name, []).append(row.value)
    values: dict[tuple[str, str], float] = {}
    for name, tests in series.items():
        finite = [value for value in tests if math.isfinite(value)]
        if math.isfinite(tests[-1]):
            values |= {(name, "final"): tests[-1], (name, "min"): min(finite), (name, "max"): max(finite)}
    speed = run.seconds["train"] / run.iterations / product if product and run.iterations else None
    return Measured(values, speed=speed, facts=facts)


class Calibration:
    """Times the product beside runs and keeps it with them."""

    def __init__(self, store: Store, device: torch.device) -> None:
        self.store, self.device = store, device
        self.product = MatrixProduct(device, quick=False)

    def beside(self, runs: Iterable[Run]) -> None:
        """Take what `runs`, which trains as it goes, gives; each run's product is the mean of before and after it."""
        before = self._seconds()
        for run in runs:
            after = self._seconds()
            facts = environment.describe(self.device)
            results = {"run": run.key, "seconds": (before + after) / 2}
            self.store.add_benchmark(CALIBRATION, results, environment.digest(facts), facts)
            before = after

    def _seconds(self) -> float:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            samples = interleave({SGEMM: self.product}, ROUNDS, SystemClock(), shortest=0.0)[SGEMM]
        finally:
            torch.set_num_threads(threads)
        return statistics.median(sample.seconds for sample in samples)


def kind_of_machine(facts: Mapping[str, Any]) -> dict[str, str]:
    """What of a machine its rounding depends on."""
    return {name: str(facts[name]) for name in ("cpu", "cpu_capability", "accelerator")}
