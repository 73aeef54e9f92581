"""What a checkpoint holds: the state of a training and where it was made."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from orthobench.model import State
from orthobench.recurrence.source_hash import source_hash

FORMAT = 3
"""Version of the checkpoints' fields."""


def kernel_facts() -> dict[str, str]:
    """Return what a run's rounding depends on: torch version, instruction set and hash of the kernels' code."""
    return {
        "torch": str(torch.__version__),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "kernel_code": source_hash(),
    }


def backend_names(backends: Set[str]) -> str | None:
    """Return the names of back ends as the database stores them, or None without any."""
    return ", ".join(sorted(backends)) or None


@dataclass
class TrainingState:
    """The part of a run's state that is neither weights nor optimisers.

    Attributes:
        loss_sum: sum of the training losses since the last evaluation, a float64 scalar.
        loss_count: number of the losses in it.
        logged: iteration of the newest rows; -1 before the first.
        best: best metric on the data that judge the run, and its iteration.
        best_test: the test metric at this iteration.
        best_weights: the model's state at this iteration, if the trainer keeps it.
        best_valid: best validation metric at the end of an epoch.
        plateaus: epochs without a better validation metric.
        solved: whether the last evaluation reached `solved_at`, so that the run is over.
        carried: the state after the last batch, for a task that carries its state.
        segments: first iteration and token of the run's segments, see `orthobench.store.Segment`.
        earlier_backends: back ends of the recurrence before the run was resumed.
    """

    loss_sum: Tensor
    loss_count: int = 0
    iteration: int = 0
    logged: int = -1
    best: tuple[float, int] | None = None
    best_test: float | None = None
    best_weights: dict[str, Tensor] | None = None
    best_valid: float | None = None
    plateaus: int = 0
    solved: bool = False
    carried: State | None = None
    segments: list[tuple[int, str | None]] = field(default_factory=list)
    earlier_backends: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Checkpoint:
    """The whole state of a run, as stored in a checkpoint's file.

    Attributes:
        logged: iteration of the newest rows.
        state: the carried state, see `TrainingState`.
        threads: torch's number of threads, which affects the rounding of its sums.
        random: state of torch's CPU generator.
        random_cuda: state of the generator of the run's CUDA device.
        key: key of the run.
        segments: first iteration and token of the segments up to this checkpoint.
        kernels: back ends, torch version and instruction set that computed the numbers.
    """

    iteration: int
    logged: int
    model: dict[str, Any]
    optimizers: list[dict[str, Any]]
    state: State | None
    loss_sum: Tensor
    loss_count: int
    best: tuple[float, int] | None
    seconds: dict[str, float | str]
    random: Tensor
    random_cuda: Tensor | None
    best_valid: float | None
    best_weights: dict[str, Tensor] | None
    plateaus: int
    solved: bool
    threads: int
    key: str
    segments: list[tuple[int, str | None]]
    kernels: dict[str, Any]
    format: int
    best_test: float | None = None  # earlier checkpoints, which were judged by their tests, lack it

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Return the checkpoint in a file's content.

        Raises:
            ValueError: the content has a different format.
            TypeError: a field is missing.
        """
        if (own := content.get("format")) != FORMAT:
            raise ValueError(f"its format is {own}, and this orthobench reads {FORMAT}")
        return cls(**content)
