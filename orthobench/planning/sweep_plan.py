"""Plan a sweep: the runs to train, their order, and their estimated time and memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from orthobench.planning.budget import Budget, runs_within, span
from orthobench.planning.estimate import Estimate
from orthobench.planning.sweep_runs import PlannedRun


@dataclass(frozen=True)
class Totals:
    """The estimated time and memory of several runs.

    Attributes:
        runs: the number of runs.
        unknown: the number of runs without an estimate.
        seconds: the time if the runs train one after another; None without any estimate.
        at_once: the number of runs that train at the same time.
        seconds_at_once: the time if `at_once` runs train at the same time.
        memory: the peak memory of the largest `at_once` runs in bytes; None if unknown.
        weights: the size in bytes of the weights that the runs keep.
        machine: the memory of this machine in bytes; None if the runs train on other machines.
    """

    runs: int
    unknown: int
    seconds: float | None
    at_once: int
    seconds_at_once: float
    memory: int | None
    weights: int = 0
    machine: int | None = None

    @property
    def lacks_memory(self) -> bool:
        """Whether the machine has less memory than the runs need."""
        return self.memory is not None and self.machine is not None and self.memory > self.machine


@dataclass(frozen=True)
class SweepPlan:
    """The runs of a sweep, and which of them will train.

    Attributes:
        runs: all runs of the sweep.
        selected: the pending runs that will train, in order.
        estimates: the estimates of all pending runs, by key; None if nothing was estimated.
        at_once: the number of runs that train at the same time.
        budget: the seconds within which runs may start; None for no limit.
        machine: the memory of this machine in bytes; None if the runs train on other machines.
        given: the settings that all runs were given, as text; those of the grid are in `runs`.
    """

    runs: list[PlannedRun]
    selected: list[PlannedRun]
    estimates: Mapping[str, Estimate] | None
    at_once: int
    budget: float | None
    machine: int | None = None
    given: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def left_out(self) -> set[str]:
        """The keys of the pending runs that do not fit into the budget."""
        return {run.key for run in self.runs if run.is_pending} - {run.key for run in self.selected}

    def totals(self, selected_only: bool = False) -> Totals:
        """Add up the estimates of the pending runs, or only of the selected ones."""
        assert self.estimates is not None
        chosen = [self.estimates[run.key] for run in self.selected] if selected_only else self.estimates.values()
        return _totals(chosen, self.at_once, self.machine)

    def records(self) -> list[dict[str, Any]]:
        """Return the runs as JSON values: times in seconds, memory in bytes, None where it is unknown."""
        planned = []
        for run in self.runs:
            spec, estimate = run.config.spec, (self.estimates or {}).get(run.key)
            planned.append(
                {
                    "run": run.key,
                    "task": spec.task,
                    "model": spec.model,
                    "seed": spec.seed,
                    "state": str(run.state),
                    "left_out": run.key in self.left_out,
                    "settings": spec.settings,
                    "seconds": estimate and estimate.seconds,
                    "memory": estimate and estimate.memory,
                    "judged_by": estimate and estimate.source,
                }
            )
        return planned


def plan_sweep(
    planned: Sequence[PlannedRun],
    estimates: Mapping[str, Estimate] | None,
    budget: Budget | None,
    at_once: int,
    machine: int | None = None,
) -> SweepPlan:
    """Select the runs to train: all pending runs, or the pending runs that fit into what is left of the budget."""
    if budget is None or estimates is None:
        selected = [run for run in planned if run.is_pending]
    else:
        selected = runs_within(planned, estimates, budget.left, at_once)
    seconds = None if budget is None else budget.seconds
    return SweepPlan(list(planned), selected, estimates, at_once, seconds, machine)


def _totals(estimates: Collection[Estimate], at_once: int, machine: int | None) -> Totals:
    seconds = [estimate.seconds for estimate in estimates if estimate.seconds is not None]
    at_once = max(1, min(at_once, len(seconds)))
    memory = sorted(estimate.memory for estimate in estimates if estimate.memory)[-at_once:]
    return Totals(
        runs=len(estimates),
        unknown=len(estimates) - len(seconds),
        seconds=sum(seconds) if seconds else None,
        at_once=at_once,
        seconds_at_once=span(seconds, at_once),
        memory=sum(memory) if memory else None,
        weights=sum(estimate.weights for estimate in estimates),
        machine=machine,
    )
