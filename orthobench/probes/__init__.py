"""Probes: measurements of what happens inside a model, taken beside training and without touching it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

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
    """What a probe found: numbers and vectors, by name."""

    values: dict[str, float]
    vectors: dict[str, Sequence[float]]


class Probe(Protocol):
    """A measurement taken before the first iteration and after every `every_epochs` epochs."""

    every_epochs: ClassVar[int]

    def __call__(self, subject: Subject) -> Reading: ...


def default_probes() -> list[Probe]:
    """The probes of every run."""
    from orthobench.probes.gradient_norm import GradientNorm
    from orthobench.probes.orthogonality import Orthogonality

    return [Orthogonality(), GradientNorm()]


__all__ = ["Probe", "Reading", "Subject", "default_probes"]
