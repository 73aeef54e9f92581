"""What a sweep's runs will take, and which of them fit into a time: `--dry-run` and `--budget`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import typer

from orthobench.data import data_folder
from orthobench.execution.budget import by_priority, show_duration, span, within
from orthobench.execution.estimate import Estimate, Estimator, probe
from orthobench.execution.job import Job
from orthobench.execution.session import print_plan
from orthobench.store import Store
from orthobench.sweep.plan import PlannedRun
from orthobench.training.lifecycle import BackendName
from orthobench.training.profiling import RunProfile


@dataclass(frozen=True)
class Planner:
    """How the runs will be trained, so many beside each other; `probing`: steps may be tried."""

    device: torch.device
    backend: BackendName
    plugins: Sequence[Path]
    at_once: int
    probing: bool

    def choose(self, planned: Sequence[PlannedRun], store: Store | None, budget: float | None) -> list[PlannedRun]:
        """Estimate and show a plan; the runs to train, in their order: all that are wanted, or those that fit into a
        budget of seconds.
        """
        wanted = by_priority(planned)
        estimates = self._estimates(wanted, store)
        chosen = wanted if budget is None else within(wanted, estimates, budget, self.at_once)
        left_out = estimates.keys() - {one.config.spec.key for one in chosen}
        print_plan(planned, estimates, left_out)
        typer.echo(f"to train: {self._summary(estimates.values())}")
        if budget is not None:
            taken = self._summary([estimates[one.config.spec.key] for one in chosen])
            typer.echo(f"within {show_duration(budget)}: {taken}; {len(left_out)} left out")
        return chosen

    def tell(self, planned: Sequence[PlannedRun], store: Store | None) -> None:
        """Estimate what the runs of a plan take in all, where they may turn out to be others."""
        typer.echo(f"to train: {self._summary(self._estimates(by_priority(planned), store).values())}")

    def _estimates(self, wanted: Sequence[PlannedRun], store: Store | None) -> dict[str, Estimate]:
        """By the runs' keys, in their order."""
        threads = max(1, torch.get_num_threads() // max(1, min(self.at_once, len(wanted))))
        estimator = Estimator(store, self.device, (lambda one: self._try(one, threads)) if self.probing else None)
        return {one.config.spec.key: estimator.of(one) for one in wanted}

    def _try(self, one: PlannedRun, threads: int) -> RunProfile:
        typer.echo(f"trying a few steps of {one.label}", err=True)
        return probe(
            Job(
                one.config.spec,
                one.label,
                database="",
                checkpoints="",
                plugins=tuple(str(file) for file in self.plugins),
                data_folder=str(data_folder().absolute()),
                device="cuda" if self.device.type == "cuda" else "cpu",
                backend=self.backend,
                threads=threads,
            )
        )

    def _summary(self, estimates: Collection[Estimate]) -> str:
        """How many runs, how long and how large they are together."""
        runs = f"{len(estimates)} run{'s' if len(estimates) != 1 else ''}"
        seconds = [estimate.seconds for estimate in estimates if estimate.seconds is not None]
        if not seconds:
            return runs if not estimates else f"{runs}, of which nothing is known"
        beside = min(self.at_once, len(seconds))
        parts = [runs, f"about {show_duration(sum(seconds))} one after the other"]
        if beside > 1:
            parts.append(f"{show_duration(span(seconds, beside))} with {beside} at once")
        if memory := sorted(estimate.memory for estimate in estimates if estimate.memory)[-beside:]:
            parts.append(f"at most {sum(memory) / 2**20:.0f} MiB")
        if unknown := len(estimates) - len(seconds):
            parts.append(f"and {unknown} more of which nothing is known")
        return ", ".join(parts)
