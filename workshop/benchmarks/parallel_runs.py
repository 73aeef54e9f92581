"""Comparison of a run per core, each with one thread, against one run at a time on all cores.

    python workshop/benchmarks/parallel_runs.py [--epochs 1]

Trains the same runs both ways in fresh processes, as `orthobench sweep -j` does, and prints the training iterations a
second of all runs together, from the times that the runs record. Both ways are measured in turns on a quiet machine; on
a busy one the shares mean little.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import nullcontext

import torch

from orthobench.executors.job import Job
from orthobench.executors.processes import ProcessExecutor
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.system.location import Location
from orthobench.training.events import EventSink

RUNS = (
    ("adding", "scornn", {"sequence_length": "200", "hidden_size": "170"}),
    ("adding", "lstm", {"sequence_length": "200", "hidden_size": "60"}),
    ("copying", "exprnn", {"sequence_length": "300", "hidden_size": "190"}),
    ("copying", "gru", {"sequence_length": "300", "hidden_size": "512", "batch_size": "128"}),
)
SMALL = {"train_size": "2000", "test_size": "200"}


def measure(task: str, model: str, settings: dict[str, str], at_once: int, count: int) -> float:
    """Training iterations a second of this many runs together."""
    cores = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder, open_store(f"{folder}/r.db", create=True) as store:
        config = [resolve(Catalog(), task, model, settings, seed=seed) for seed in range(count)]
        jobs = [
            Job(run_config.spec, str(run_config.spec.seed), Location(f"{folder}/r.db"), RunOptions(keep_weights="none"))
            for run_config in config
        ]
        executor = ProcessExecutor(
            store, [None] * at_once, cores, lambda _: nullcontext(EventSink()), lambda: False, print
        )
        outcomes = list(executor.run(jobs))
        assert all(outcome.ending.is_result for outcome in outcomes), outcomes
        runs = store.runs()
        return at_once * sum(run.iterations for run in runs) / sum(run.seconds["train"] for run in runs)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--epochs", default="1")
    options.add_argument("--rounds", type=int, default=2)
    arguments = options.parse_args()
    cores = torch.get_num_threads()
    print(f"{cores} cores; training iterations a second")
    for task, model, settings in RUNS:
        every = SMALL | settings | {"epochs": arguments.epochs}
        ways: dict[int, list[float]] = {1: [], cores: []}
        for _ in range(arguments.rounds):
            for at_once, rates in ways.items():
                rates.append(measure(task, model, every, at_once, cores))
        alone, together = (max(rates) for rates in ways.values())
        label = f"{task}, {model}"
        print(
            f"{label:<18} one on all cores {alone:7.1f}   one a core {together:7.1f}   x {together / alone:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
