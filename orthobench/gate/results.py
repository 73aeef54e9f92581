"""The results of new runs, seed by seed, and the speed of the machine.

The seconds of a step differ between machines. A product of two matrices is therefore timed on one thread after each
run, and the time of a step is given in units of this product.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from orthobench.bench.measure import interleave
from orthobench.bench.suite import SGEMM, MatrixProduct
from orthobench.executors.job import JobOutcome
from orthobench.executors.processes import KILLED
from orthobench.isolation import isolated
from orthobench.spec.resolve import RunConfig
from orthobench.store import Run, Status, Store
from orthobench.system import environment

CALIBRATION = "calibration"
"""The name of the calibration in the database; its results hold a run's key and seconds."""
ROUNDS = 3
TRAINING_LOSS = "train/loss"
CODE = "commit", "dirty", "changes", "packages"
"""The facts of an environment that identify the code that ran."""
OTHER_CODE = "by other code or versions: name a new database with `db`, or compare these results with `db_only=True`"
"""Why a run by other code does not count."""


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed: its metrics, or the reason why it has none.

    Attributes:
        values: by metric and choice of test: "final" (the last test), "min" or "max" (the best test). The names are
            those of the task's metrics, the same after VALIDATION, and TRAINING_LOSS.
        missing: why there is no result.
        broken: why this code cannot train the run: it cannot start, or it fails.
        speed: seconds of a training step divided by those of the calibration product.
        facts: the run's environment.
    """

    values: Mapping[tuple[str, str], float] = field(default_factory=dict)
    diverged: bool = False
    missing: str = ""
    broken: str = ""
    speed: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def collect_results(
    store: Store, configs: Sequence[RunConfig], code: Mapping[str, Any] | None, refused: Mapping[str, str]
) -> dict[int, SeedResult]:
    """Return the stored results of configurations that differ only by seed, by seed.

    Args:
        code: the facts of this environment; if given, runs by other code count as missing.
        refused: why runs could not start now, by key; an earlier result of theirs does not count.
    """
    runs = {run.key: run for run in store.runs(keys=[config.spec.key for config in configs])}
    products = {benchmark.results["run"]: benchmark.results["seconds"] for benchmark in store.benchmarks(CALIBRATION)}
    results = {}
    for config in configs:
        run = runs.get(config.spec.key)
        cause = refused.get(config.spec.key)
        if cause is not None:
            results[config.spec.seed] = SeedResult(broken=f"could not start: {cause}")
        elif run is None:
            results[config.spec.seed] = SeedResult(missing="not in the database")
        elif _is_by_other_code(run, code):
            results[config.spec.seed] = SeedResult(missing=OTHER_CODE)
        elif not Status(run.status).is_final:
            state = f"{run.status}: {run.message}" if run.message else run.status
            # Not the code's fault: the system has killed the process, for example because another one took the memory.
            is_broken = run.status == Status.FAILED and not (run.message or "").startswith(KILLED)
            results[config.spec.seed] = SeedResult(broken=state) if is_broken else SeedResult(missing=state)
        else:
            results[config.spec.seed] = _read(store, run, products.get(run.key))
    return results


def _is_by_other_code(run: Run, code: Mapping[str, Any] | None) -> bool:
    return code is not None and any(run.environment.facts.get(name) != code.get(name) for name in CODE)


def _read(store: Store, run: Run, product: float | None) -> SeedResult:
    facts = run.environment.facts
    if run.status == Status.DIVERGED:
        return SeedResult(diverged=True, facts=facts)
    series: dict[str, list[float]] = {}
    for row in store.metrics([run.id]):
        if row.value is not None and row.split != "probe":
            name = row.name if row.split == "test" else f"{row.split}/{row.name}"
            series.setdefault(name, []).append(row.value)
    values: dict[tuple[str, str], float] = {}
    for name, tests in series.items():
        finite = [value for value in tests if math.isfinite(value)]
        if math.isfinite(tests[-1]):
            values |= {(name, "final"): tests[-1], (name, "min"): min(finite), (name, "max"): max(finite)}
    training = run.phases.get("train")
    speed = training / run.iterations / product if training and product and run.iterations else None
    return SeedResult(values, speed=speed, facts=facts)


def calibrated(store: Store, device: torch.device, outcomes: Iterable[JobOutcome]) -> Iterator[JobOutcome]:
    """Time the product after each run that has a result, and store its median seconds with the run's key.

    Args:
        outcomes: an iterator that trains each run before it yields its outcome.
    """
    product = MatrixProduct(device, quick=False)
    for outcome in outcomes:
        if outcome.ending.is_result:
            with isolated(threads=1):
                samples = interleave({SGEMM: product}, ROUNDS, shortest=0.0)[SGEMM]
            results = {"run": outcome.job.spec.key, "seconds": statistics.median(samples)}
            store.add_benchmark(CALIBRATION, results, environment.describe(device))
        yield outcome


def machine_kind(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts of a machine on which rounding depends."""
    names = ("cpu", "cpu_model", "cpu_capability", "accelerator", "threads")
    return {name: str(facts.get(name)) for name in names}  # older runs have no cpu_model
