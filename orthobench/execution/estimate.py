"""How long the runs of a plan will take and how much memory they will hold: from history, or from a few steps tried.

A run that was begun is judged by itself. Another goes by the nearest earlier run of the same task and model on the
same hardware: what an iteration took there, everything included, times the iterations here. Nearest is in the sizes,
as ratios; where none is within a factor of two in all, a few steps are tried in a process of its own, and serve as
history for the rest of the plan. An iteration over longer sequences takes longer in proportion.
"""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeGuard, cast

import torch

from orthobench import environment
from orthobench.data import use_data_folder
from orthobench.errors import OrthobenchError, UsageError
from orthobench.execution.job import Job
from orthobench.plugins import Catalog
from orthobench.settings import merged_settings
from orthobench.spec import RunConfig, resolve_again
from orthobench.store import Run, Store
from orthobench.sweep.plan import PlannedRun
from orthobench.training.lifecycle import pick_device
from orthobench.training.profiling import RunProfile, profile_run

NEAR = math.log(2)
"""How far a run in the history may be to be gone by: sizes that are twice as large, in all."""

LENGTH = {"epochs", "max_iterations", "train_size"}
"""Settings that say how many iterations there are, not how long one takes."""


@dataclass(frozen=True)
class Estimate:
    """Seconds that a run will still take and the bytes its process will hold, and where that is from.

    None: not known; the source says why.
    """

    seconds: float | None
    memory: int | None
    source: str


@dataclass(frozen=True)
class Experience:
    """A run's settings and what it took; `name` says which it was."""

    settings: dict[str, Any]
    seconds_per_iteration: float
    iterations_per_epoch: int
    memory: int | None
    name: str


class Estimator:
    """Estimates for one device, from a database's runs and, where `probe` is given, from steps that it tries."""

    def __init__(
        self, store: Store | None, device: torch.device, probe: Callable[[PlannedRun], RunProfile] | None = None
    ) -> None:
        self.store, self.device, self.probe = store, device.type, probe
        self.hardware = "cpu" if self.device == "cpu" else "accelerator"
        self.here = environment.describe(device)[self.hardware]
        self.known: dict[tuple[str, str], list[Experience]] = {}
        self.untried: dict[str, Estimate] = {}  # by variant

    def of(self, one: PlannedRun) -> Estimate:
        """What a run that is wanted will still take."""
        if one.existing_run is not None and self._serves(one.existing_run):
            left = one.existing_run.total_iterations - one.existing_run.iterations
            done = f"its own {one.existing_run.iterations} of {one.existing_run.total_iterations} iterations"
            return Estimate(left * _pace(one.existing_run), one.existing_run.peak_memory, done)
        settings, known = one.config.spec.settings, self._known(one.config)
        near = min(known, key=lambda other: distance(settings, other.settings), default=None)
        if near is None or distance(settings, near.settings) >= NEAR:
            if self.probe is None:
                return Estimate(None, None, "no run like it yet")
            if untried := self.untried.get(one.config.spec.variant):
                return untried
            try:
                near = _experience(one.config, self.probe(one))
            except (OrthobenchError, Untried) as error:
                untried = self.untried[one.config.spec.variant] = Estimate(None, None, str(error))
                return untried
            known.append(near)
        longer = _longer(settings, near.settings)
        seconds = _iterations(settings, near) * near.seconds_per_iteration * longer
        return Estimate(seconds, None if near.memory is None else round(near.memory * max(1.0, longer)), near.name)

    def _known(self, config: RunConfig) -> list[Experience]:
        """What there is of this task and model, the newest first."""
        of = config.spec.task, config.spec.model
        if of not in self.known:
            runs = self.store.runs(task=of[0], model=of[1]) if self.store else []
            self.known[of] = [
                Experience(
                    merged_settings(run.spec),
                    _pace(run),
                    run.iterations_per_epoch,
                    run.peak_memory,
                    f"run {run.key[:8]}",
                )
                for run in reversed(runs)
                if self._serves(run)
            ]
        return self.known[of]

    def _serves(self, run: Run) -> bool:
        """Whether a run was made on this hardware, and went far enough to tell how long an iteration takes."""
        here = run.device == self.device and run.environment.facts.get(self.hardware) == self.here
        return here and run.iterations > 0 and run.seconds.get("train", 0.0) > 0


class Untried(Exception):
    """Why a run's steps could not be tried."""


def probe(job: Job) -> RunProfile:
    """Try a few steps of a job in a process of its own; neither its database nor its checkpoints are touched.

    Raises:
        UsageError: the run cannot be started.
        Untried: the steps failed, or the process was killed.
    """
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_probe, args=(job, sender), daemon=True)
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        raise Untried("its first steps ended the process: out of memory?") from None
    finally:
        process.kill()  # where it has not ended by itself, it is not waited for
        process.join()
        receiver.close()
    if isinstance(found, Exception):
        raise found
    return cast(RunProfile, found)


def _probe(job: Job, sender: Connection) -> None:
    """Send what the steps of a job took, or why there were none."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    found: RunProfile | Exception
    try:
        if job.threads is not None:
            torch.set_num_threads(job.threads)
        with use_data_folder(None if job.data_folder is None else Path(job.data_folder)):
            config = resolve_again(Catalog(Path(file) for file in job.plugins), job.spec)
            found = profile_run(config, pick_device(job.device), job.backend)
    except OrthobenchError as error:
        found = UsageError(str(error))
    except Exception as error:
        found = Untried(f"its first steps failed: {type(error).__name__}: {error}".splitlines()[0])
    sender.send(found)


def distance(one: dict[str, Any], other: dict[str, Any]) -> float:
    """How differently long the iterations of two runs of the same model may take.

    The sum of |ln(a / b)| over whole numbers; a little for another name, share or rate; much for a thing that one has
    and the other has not.
    """
    return sum(_apart(one.get(name), other.get(name)) for name in (one.keys() | other.keys()) - LENGTH)


def _apart(a: Any, b: Any) -> float:
    if a == b:
        return 0.0
    if _is_size(a) and _is_size(b):
        return abs(math.log(a / b))
    return 0.01 if isinstance(a, (str, float, bool)) and isinstance(b, (str, float, bool)) else 1.0


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _pace(run: Run) -> float:
    """Seconds of an iteration with its share of tests, probes, logging and checkpoints."""
    return float(sum(run.seconds.values())) / run.iterations


def _experience(config: RunConfig, pace: RunProfile) -> Experience:
    return Experience(
        config.spec.settings,
        pace.seconds / pace.total_iterations,
        pace.iterations_per_epoch,
        pace.memory,
        f"{pace.steps} steps tried" if pace.steps > 1 else "one step tried",
    )


def _longer(settings: dict[str, Any], near: dict[str, Any]) -> float:
    """How many times as long the sequences are, where both say."""
    own, other = settings.get("sequence_length"), near.get("sequence_length")
    return own / other if _is_size(own) and _is_size(other) else 1.0


def _iterations(settings: dict[str, Any], near: Experience) -> int:
    """How many iterations a run has, by the size of the training set that the near one had."""
    examples: float = near.iterations_per_epoch * near.settings["batch_size"]
    if "train_size" in settings and "train_size" in near.settings:
        examples = examples * settings["train_size"] / near.settings["train_size"]
    total: int = settings["epochs"] * max(1, round(examples / settings["batch_size"]))
    return min(total, settings["max_iterations"] or total)
