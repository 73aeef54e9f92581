"""What a probe plugin is: a measurement of what happens inside a model, taken beside training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from orthobench.model import Model
from orthobench.task import Batch, Task


@dataclass(frozen=True)
class Subject:
    """What a probe looks at: the model as it stands, and one batch that stays the same for the whole run."""

    model: Model
    task: Task
    batch: Batch


@dataclass(frozen=True)
class Reading:
    """What a probe found: numbers and vectors, by names that begin with the probe's. A table is kept as its rows."""

    values: Mapping[str, float] = field(default_factory=dict)
    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Probe(ABC):
    """Base of the probe plugins.

    Class attributes: `title`, what is measured; `paper`, where it was first shown; `every_epochs`, the schedule: the
    probe is taken before the first iteration, at the end, and in between after so many epochs each (0: not at all);
    `default`, whether every run has it. The others are asked for by `-s probes=name`. What a probe costs is in the
    run's account of seconds.
    """

    title: ClassVar[str]
    paper: ClassVar[str]
    every_epochs: ClassVar[int] = 1
    default: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, subject: Subject) -> Reading:
        """Measure. Neither the model nor its gradients nor torch's random stream may be changed by it."""
