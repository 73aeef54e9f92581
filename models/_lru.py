"""The recurrence of LRU and its bare cell, for use inside a residual block or a stack of blocks."""

from __future__ import annotations

import math

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.matrices.complex_form import interleaved
from orthobench.matrices.initial import as_parameter
from orthobench.model import Count, Model, ModelSettings, OptimizerName, ParameterGroup, Positive, Signature, State
from orthobench.recurrence import GradientTrace, diagonal_recurrence, project


class LRUSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    block_size: Count = Field(128, description="d, features of the residual block, or between the blocks of a stack")
    r_min: float = Field(0.0, ge=0, lt=1, description="smallest |lambda| at the start")
    r_max: float = Field(0.999, gt=0, le=1, description="largest |lambda| at the start")
    theta_max: float = Field(
        2 * math.pi, gt=0, le=2 * math.pi, description="largest angle of lambda at the start, in radians"
    )
    recurrent_factor: Positive = Field(
        0.5, description="learning rate of lambda, g and B, as a multiple of learning_rate"
    )

    @model_validator(mode="after")
    def _check_radii(self) -> LRUSettings:
        if self.r_min >= self.r_max:
            raise ValueError(f"r_min={self.r_min} should be below r_max ({self.r_max})")
        return self


class DiagonalLRU(Model):
    """The complex diagonal recurrence with inputs B v and outputs Re(C s) + D o v, where v has d features."""

    def __init__(self, settings: LRUSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.recurrent_factor = settings.recurrent_factor

    def start_recurrence(self, settings: LRUSettings, d: int, generator: torch.Generator) -> None:
        """Draw the parameters of the recurrence, which reads and writes d features."""
        n = settings.hidden_size
        area, turn = torch.rand(2, n, generator=generator, dtype=torch.float64)
        squared_modulus = settings.r_min**2 + area * (settings.r_max**2 - settings.r_min**2)
        self.nu = as_parameter((-0.5 * squared_modulus.log()).log())
        self.theta = as_parameter((settings.theta_max * turn).log())
        self.gain = as_parameter(0.5 * torch.log1p(-squared_modulus))
        # Rows 2j and 2j+1 of B are complex unit j. Columns 2j and 2j+1 of C are Re C and -Im C, which gives Re(C s).
        self.input_weight = normal(2 * n, d, variance=1 / (2 * d), generator=generator)
        self.state_weight = normal(d, 2 * n, variance=1 / n, generator=generator)
        self.feedthrough = normal(d, variance=1, generator=generator)

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        return 2 * settings.hidden_size

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, LRUSettings)
        return settings.block_size

    def eigenvalues(self) -> Tensor:
        """Return lambda, complex `[n]`."""
        return torch.complex(-self.nu.exp(), self.theta.exp()).exp()

    def recur(self, v: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, Tensor]:
        """Return s `[T, B, 2n]` for features v `[T, B, d]`, and its final value `[B, 2n]`."""
        driven = project(v, self.gain.exp().repeat_interleave(2)[:, None] * self.input_weight)
        s, (final,) = diagonal_recurrence(driven, interleaved(self.eigenvalues()), state, trace, is_complex=True)
        return s, final

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def parameter_groups(self) -> list[ParameterGroup]:
        recurrent = [self.nu, self.theta, self.gain, self.input_weight]
        slow = {id(parameter) for parameter in recurrent}
        others = [parameter for parameter in self.parameters() if id(parameter) not in slow]
        return [
            ParameterGroup(others, self.optimizer, self.learning_rate),
            ParameterGroup(recurrent, self.optimizer, self.recurrent_factor * self.learning_rate),
        ]

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return {"W": torch.diag(self.eigenvalues())}


class ResidualLRU(DiagonalLRU):
    """The bare cell of a block, y_t = Re(C s_t) + D o x_t; it reads and writes the block's features."""

    def __init__(self, settings: LRUSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.start_recurrence(settings, signature.input_size, generator)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        s, final = self.recur(inputs, state, trace)
        if self.signature.readout == "last":
            inputs, s = inputs[-1:], final[None]
        return project(s, self.state_weight) + self.feedthrough * inputs, (final,)


def normal(*shape: int, variance: float, generator: torch.Generator) -> nn.Parameter:
    """Draw a parameter from N(0, variance)."""
    return nn.Parameter(math.sqrt(variance) * torch.randn(*shape, generator=generator))
