"""The part that minGRU and minLSTM share: independent units whose gates and candidate depend on the inputs alone."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Model, ModelSettings, OptimizerName, Signature, State
from orthobench.recurrence import GradientTrace, project
from orthobench.recurrence.operation import Operation


class MinimalSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    candidate: Literal["positive", "identity"] = Field(
        "positive", description="g; positive: c + 1/2 where c >= 0, else sigmoid(c); identity: c"
    )


class MinimalCell(Model):
    """A cell without a recurrent matrix, whose operation reads `operation.gates` blocks of n inputs.

    All weights and biases start as torch.nn.Linear, the states at 0.
    """

    Settings = MinimalSettings
    step_matrices = ()
    operation: ClassVar[Operation[...]]

    def __init__(self, settings: MinimalSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        size = self.operation.gates * settings.hidden_size
        self.positive = settings.candidate == "positive"
        self.input_weight = nn.Parameter(torch.empty(size, signature.input_size))
        self.bias = nn.Parameter(torch.empty(size))
        for parameter in (self.input_weight, self.bias):
            torch_linear_(parameter, signature.input_size, generator)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        run: Any = self.operation
        result: tuple[Tensor, State] = run(project(inputs, self.input_weight), self.bias, state, trace, self.positive)
        return result

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return {}
