"""scoRNN: a real orthogonal recurrent matrix by the scaled Cayley transform.

    h_t = modReLU(W h_{t-1} + U x_t; b),   W = (I + A)^{-1} (I - A) D,   y = V h + c,   h_0 = 0

A is skew-symmetric and trained; D = diag(+1, ..., -1, ...) is fixed. K. Helfrich, D. Willmott, Q. Ye, "Orthogonal
Recurrent Neural Networks with Scaled Cayley Transform", ICML 2018, sections 3 and 4.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.matrices.cayley import minus_ones_last, scaled_cayley
from orthobench.matrices.initial import half_circle_angles
from orthobench.matrices.skew import block_rotation_entries
from orthobench.model import Count, Model, ModelSettings, ParameterGroup, Positive, Signature, State
from orthobench.optimizers import OptimizerName
from orthobench.recurrence import MODRELU, RELU, TANH, GradientTrace, project, recurrence

_ACTIVATIONS = {"modrelu": MODRELU, "relu": RELU, "tanh": TANH}


class ScoRNNSettings(ModelSettings):
    hidden_size: Count = Field(170, description="number of hidden units n")
    negative_ones: int | float = Field(
        0.5,
        description="rho, how many -1 stand on D; a share of n if given with a decimal point, such as 0.5",
        json_schema_extra={"tied_to": "hidden_size"},
    )
    activation: Literal["modrelu", "relu", "tanh"] = "modrelu"
    initialization: Literal["half_circle", "zeros"] = Field("half_circle", description="start of A")
    recurrent_optimizer: OptimizerName = Field("rmsprop_tf1", description="optimiser of A")
    recurrent_learning_rate: Positive = Field(1e-4, description="learning rate of A")

    @model_validator(mode="before")
    @classmethod
    def _share_of_units(cls, values: dict[str, object]) -> dict[str, object]:
        """A share of n becomes the number it stands for, so that the run's record holds the number."""
        n = cls.model_fields["hidden_size"].default if "hidden_size" not in values else values["hidden_size"]
        rho = values.get("negative_ones", 0.5)
        try:
            n, share = int(str(n)), float(str(rho))
        except ValueError:
            return values  # the fields' own validators say what is wrong
        if "." in str(rho) and 0 <= share <= 1:
            return values | {"negative_ones": round(share * n)}
        return values

    @model_validator(mode="after")
    def _fits(self) -> ScoRNNSettings:
        if not isinstance(self.negative_ones, int) or not 0 <= self.negative_ones <= self.hidden_size:
            raise ValueError(
                f"negative_ones={self.negative_ones} should be a whole number from 0 to hidden_size "
                f"({self.hidden_size}), or a share such as 0.5"
            )
        return self


class ScoRNN(Model):
    version = 1
    title = "scoRNN"
    paper = "Helfrich, Willmott, Ye. Orthogonal Recurrent Neural Networks with Scaled Cayley Transform. ICML 2018"
    orthogonal = True
    Settings = ScoRNNSettings

    signs: Tensor

    def __init__(self, settings: ScoRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n = settings.hidden_size
        self.activation = _ACTIVATIONS[settings.activation]
        self.recurrent_optimizer = settings.recurrent_optimizer
        self.recurrent_learning_rate = settings.recurrent_learning_rate

        # s = tan(t / 2) = sqrt((1 - cos t) / (1 + cos t)): Cayley makes [[0, s], [-s, 0]] a rotation by t.
        s = torch.tan(half_circle_angles(n, generator) / 2)
        if settings.initialization == "zeros":
            s = torch.zeros_like(s)
        self.skew_entries = nn.Parameter(block_rotation_entries(s, n).float())
        self.register_buffer("signs", minus_ones_last(n, int(settings.negative_ones)))
        self.input_weight = nn.Parameter(torch.empty(n, signature.input_size))
        nn.init.uniform_(self.input_weight, -0.01, 0.01, generator=generator)
        self.bias = nn.Parameter(torch.zeros(n))

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = project(inputs, self.input_weight)
        weight = scaled_cayley(self.skew_entries, self.signs)
        (h0,) = state
        h = recurrence(x, weight, h0, self.activation, self.bias, trace=trace, last=self.reads_last)
        return h, (self.last(h),)

    def parameter_groups(self) -> list[ParameterGroup]:
        others = [parameter for name, parameter in self.named_parameters() if name != "skew_entries"]
        return [
            ParameterGroup(others, self.optimizer, self.learning_rate),
            ParameterGroup([self.skew_entries], self.recurrent_optimizer, self.recurrent_learning_rate),
        ]

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return {"W": scaled_cayley(self.skew_entries, self.signs)}
