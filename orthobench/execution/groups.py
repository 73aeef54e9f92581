"""Groups of runs that train together on one GPU: each kernel of the recurrence is one launch for all of them.

The runs of a group have the same task, model, sizes and numbers of steps. They may differ in the seed, in settings that
are real numbers, such as learning rates, and in the initialisation. All of them train in this process, each in a thread
(`orthobench.recurrence.meeting`). Each has its own store, lock, checkpoints and end, as alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import torch

from orthobench.errors import UsageError
from orthobench.execution.job import Job, Outcome, SinkFactory, attempt
from orthobench.execution.serial import SerialExecutor
from orthobench.recurrence.cuda.occupancy import runs_at_once
from orthobench.recurrence.meeting import Meeting
from orthobench.settings import digest
from orthobench.spec import RunConfig
from orthobench.store import Store

GroupSize = int | Literal["auto"]
T = TypeVar("T")

TENSORS = 8
"""Tensors of the size of all states that a training step holds: inputs, states, saved values, gradients, copies."""
USUAL_STEPS = 1000
"""Steps of a sequence, where no setting has their number."""
USED_MEMORY = 0.8
"""The share of a GPU's memory that a group may need by the estimate."""

_logger = logging.getLogger("orthobench")


def parse_group_size(text: str) -> GroupSize:
    """Return the number of runs of a group from "4" or "auto".

    Raises:
        UsageError: it is neither.
    """
    if text == "auto":
        return "auto"
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"--gpu-batch {text}: give a number of runs of at least 1, or auto")
    return int(text)


def group_name(config: RunConfig) -> str:
    """Return a name that runs share if they can train in one group."""
    spec = config.spec

    def sizes(settings: dict[str, Any]) -> dict[str, Any]:
        return {
            name: "number" if isinstance(value, float) else value
            for name, value in settings.items()
            if name != "initialization"
        }

    versions = [spec.task, spec.task_version, spec.model, spec.model_version]
    return digest([versions, spec.task_settings, sizes(spec.model_settings), sizes(spec.training)])


def group_size(config: RunConfig, requested: GroupSize, device: torch.device) -> int:
    """Return the largest number of runs like this one in a group; "auto" estimates it from the GPU.

    The estimate is the number of runs whose thread blocks the GPU runs at the same time, as far as its memory suffices.
    """
    if requested != "auto":
        return requested
    properties = torch.cuda.get_device_properties(device)
    features, batch = config.model_class.state_features(config.model_settings), config.training.batch_size
    steps: int = config.spec.settings.get("sequence_length", USUAL_STEPS)
    needed = 4 * TENSORS * steps * batch * features * config.model_settings.layers
    fitting: int = int(USED_MEMORY * properties.total_memory) // needed
    return max(1, min(runs_at_once(features, batch, properties.multi_processor_count), fitting))


def make_groups(runs: Iterable[T], config: Callable[[T], RunConfig], size: Callable[[RunConfig], int]) -> list[list[T]]:
    """Divide runs into groups, in the order of each group's first run."""
    open_groups: dict[str, list[T]] = {}
    groups: list[list[T]] = []
    for run in runs:
        name = group_name(config(run))
        group = open_groups.get(name)
        if group is None or len(group) >= size(config(run)):
            group = open_groups[name] = []
            groups.append(group)
        group.append(run)
    return groups


class GroupExecutor:
    """An executor that trains one group after the other in this process; a group of one run trains as usual.

    Args:
        size: the largest number of runs in the group of a run.
        store: the jobs' database, open, for runs that train alone.
    """

    def __init__(
        self,
        size: Callable[[RunConfig], int],
        open_sink: SinkFactory,
        should_stop: Callable[[], bool],
        store: Store | None = None,
    ) -> None:
        self.size, self.open_sink, self.should_stop = size, open_sink, should_stop
        self.serial = SerialExecutor(open_sink, should_stop, store)

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[Outcome]:
        """Yield every job's outcome. A run that lacks memory in its group trains alone afterwards."""
        for group in make_groups(jobs, Job.resolve, self.size):
            if self.should_stop() or not may_start():
                return
            if len(group) == 1:
                yield from self.serial.run(group)
                continue
            alone = []
            with closing(self._together(group)) as outcomes:
                for outcome in outcomes:
                    if outcome.lacks_memory:
                        _logger.warning("%s: %s; it trains alone after its group", outcome.job.label, outcome.cause)
                        alone += [job for job in group if job.spec.key == outcome.job.spec.key]
                    else:
                        yield outcome
            yield from self.serial.run(alone, may_start)

    def _together(self, group: Sequence[Job]) -> Generator[Outcome, None, None]:
        meeting: Meeting[Outcome] = Meeting()
        with ExitStack() as displays:
            functions, displayed = [], []
            for job in group:
                display = displays.enter_context(ExitStack())
                sink = display.enter_context(self.open_sink(job))
                # The runs share the device, so none of them may record all of its work in a graph.
                job = replace(job, cuda_graph="off", gpu_batch=len(group))
                functions.append(partial(attempt, job, sink, lambda: meeting.is_cancelled or self.should_stop()))
                displayed.append(display)
            with closing(meeting.run(functions)) as ends:
                for number, outcome in ends:
                    displayed[number].close()
                    yield outcome
