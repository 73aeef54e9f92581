"""Estimate the time and memory of planned runs, from runs in the database or from a few training steps.

The estimate of an interrupted run follows from its own iterations. For other runs, it follows from the nearest earlier
run of the same task and model on the same hardware (`analysis/experience.py`), whose seconds per iteration are
multiplied by the new run's number of iterations. On a cluster, any hardware of the same kind of device is good enough.

Without an earlier run within a factor of two, a few steps are profiled in another process, and the result also serves
the remaining runs of the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from orthobench.analysis.experience import (
    FLOAT,
    Experience,
    experiences,
    longer,
    nearest,
    seconds_per_iteration,
)
from orthobench.errors import OrthobenchError
from orthobench.options.arguments import KeepWeights
from orthobench.planning.sweep_runs import PlannedRun
from orthobench.spec.resolve import RunConfig
from orthobench.store import Store
from orthobench.system import environment
from orthobench.system.processor import machine_name

COPIES: dict[KeepWeights, int] = {"none": 0, "best": 1, "last": 5, "both": 6}
"""The approximate number of weight copies that a run keeps; a training state has last and best ones and averages."""


@dataclass(frozen=True)
class Estimate:
    """The remaining seconds of a run, the peak memory of its process in bytes, and the source of the estimate.

    None means unknown, and `source` then gives the reason. `weights` is the size in bytes of the files that the run
    keeps.
    """

    seconds: float | None
    memory: int | None
    source: str
    weights: int = 0


class Estimator:
    """An estimator of runs on one device, from the runs of a database and, if `profile` is set, from profiles.

    Args:
        keep_weights: which weights the runs keep.
        is_on_cluster: whether the runs train on other machines, so that earlier runs on any hardware of this kind of
            device count.
    """

    def __init__(
        self,
        store: Store | None,
        device: torch.device,
        profile: Callable[[PlannedRun], Experience] | None = None,
        keep_weights: KeepWeights = "none",
        is_on_cluster: bool = False,
    ) -> None:
        self.copies = COPIES[keep_weights]
        self.store, self.device, self.profile = store, device.type, profile
        self.machine = None if is_on_cluster else machine_name(environment.describe(device))
        self.known: dict[tuple[str, str], list[Experience]] = {}
        self.failures: dict[str, Estimate] = {}  # by variant

    def of(self, planned: PlannedRun) -> Estimate:
        """Estimate a pending run."""
        run = planned.existing_run
        if run is not None and experiences([run], self.device, self.machine):
            left = run.total_iterations - run.iterations
            source = f"its own {run.iterations} of {run.total_iterations} iterations"
            weights = self.copies * FLOAT * run.parameter_count
            return Estimate(
                left * seconds_per_iteration(run), run.peak_memory, source + _or_solved(planned.config), weights
            )
        spec, known = planned.config.spec, self._known(planned.config)
        form = asdict(spec)
        near = nearest(form, known)
        if near is None and self.profile is not None:
            # Remembered, because the other seeds of the variant would fail in the
            # same way, each in a process of its own.
            if failure := self.failures.get(spec.variant):
                return failure
            try:
                near = self.profile(planned)
            except OrthobenchError as error:
                failure = self.failures[spec.variant] = Estimate(None, None, str(error))
                return failure
            known.append(near)
        if near is None:
            return Estimate(None, None, "no run like it yet")
        memory = None if near.memory is None else round(near.memory * max(1.0, longer(spec.settings, near.settings)))
        # Squared, because the largest matrices have a row and a column for each hidden unit.
        wider = (spec.settings["hidden_size"] / near.settings["hidden_size"]) ** 2
        weights = round(self.copies * near.weights * wider)
        return Estimate(near.seconds(form), memory, near.name + _or_solved(planned.config), weights)

    def _known(self, config: RunConfig) -> list[Experience]:
        """Return the earlier runs of this task and model, the newest first."""
        pair = config.spec.task, config.spec.model
        if pair not in self.known:
            runs = self.store.runs(task=pair[0], model=pair[1]) if self.store else []
            self.known[pair] = experiences(runs, self.device, self.machine)
        return self.known[pair]


def _or_solved(config: RunConfig) -> str:
    """Return a remark for the estimate of a run that may stop before its last iteration; "" for other runs."""
    return "" if config.training.solved_at is None else "; less if solved earlier"
