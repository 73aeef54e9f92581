"""The base class of probes: measurements of a model during training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from orthobench.model import Model
from orthobench.task import Batch, Task


@dataclass(frozen=True)
class ProbeContext:
    """The model, its task, and a batch that stays the same for the whole run."""

    model: Model
    task: Task
    batch: Batch


@dataclass(frozen=True)
class ProbeResult:
    """A probe's numbers and vectors, by names that begin with the probe's name; matrices are stored row by row."""

    values: Mapping[str, float] = field(default_factory=dict)
    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Probe(ABC):
    """The base class of probe plugins.

    A probe measures before the first iteration, at the end of the run, and after every `every_epochs` epochs. Its time
    counts towards the run's seconds.

    Attributes:
        title: the measured quantity.
        paper: the paper that showed it first.
        every_epochs: number of epochs between two measurements; 0: only before training and after it.
        default: whether every run has the probe; `-s probes=name` adds other probes.
    """

    title: ClassVar[str]
    paper: ClassVar[str]
    every_epochs: ClassVar[int] = 1
    default: ClassVar[bool] = False

    @classmethod
    def schedule(cls) -> str:
        """Describe in a sentence when the probe measures."""
        match cls.every_epochs:
            case 0:
                return "It measures before training and at the end."
            case 1:
                return "It measures before training, after every epoch, and at the end."
            case every:
                return f"It measures before training, after every {every} epochs, and at the end."

    @abstractmethod
    def __call__(self, context: ProbeContext) -> ProbeResult:
        """Measure, and leave the model, its gradients and torch's random stream unchanged."""
