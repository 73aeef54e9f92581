"""LRU, the linear recurrent unit: a complex diagonal recurrence inside a residual block.

    e_t = E x_t + b_e,   v_t = LayerNorm(e_t)
    s_t = lambda o s_{t-1} + exp(g) o (B v_t),   lambda = exp(-exp(nu) + i exp(theta))
    u_t = gelu(Re(C s_t) + D o v_t),   o_t = e_t + (P u_t + b_p) o sigmoid(Q u_t + b_q)

A. Orvieto, S. L. Smith, A. Gu, A. Fernando, C. Gulcehre, R. Pascanu, S. De, "Resurrecting Recurrent Neural Networks
for Long Sequences", ICML 2023. The n complex units start with |lambda| uniform in area on the ring [r_min, r_max] and
angles uniform in (0, theta_max). The gain g keeps the power of white noise: exp(g)^2 = 1 - |lambda|^2. B ~ N(0,
1 / 2d) and C ~ N(0, 1 / n) in each part, D ~ N(0, 1). B and the parameters of lambda and exp(g) train more slowly.

The paper stacks several such blocks, averages over time where a task has one answer, and uses batch normalisation,
dropout and weight decay. Here one recurrent layer is compared with the other models: one block, the last step read,
layer normalisation, neither dropout nor decay. Dense weights start as N(0, 1 / inputs), their biases at 0.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear

from orthobench.matrices.complex_form import interleaved
from orthobench.model import Count, Model, ModelSettings, OptimizerName, ParameterGroup, Positive, Signature, State
from orthobench.recurrence import GradientTrace, diagonal_recurrence, project


class LRUSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    block_size: Count = Field(128, description="d, features of the residual block")
    r_min: float = Field(0.0, ge=0, lt=1, description="smallest |lambda| at the start")
    r_max: float = Field(0.999, gt=0, le=1, description="largest |lambda| at the start")
    theta_max: float = Field(
        2 * math.pi, gt=0, le=2 * math.pi, description="largest angle of lambda at the start, in radians"
    )
    recurrent_factor: Positive = Field(
        0.5, description="learning rate of lambda, g and B, as a factor of learning_rate"
    )

    @model_validator(mode="after")
    def _check_radii(self) -> LRUSettings:
        if self.r_min >= self.r_max:
            raise ValueError(f"r_min={self.r_min} should be below r_max ({self.r_max})")
        return self


class LRU(Model):
    version = 1
    title = "LRU"
    paper = "Orvieto et al. Resurrecting Recurrent Neural Networks for Long Sequences. ICML 2023"
    cost = "two products a step at d = n (B has 2n rows of d), and a normalisation"
    Settings = LRUSettings

    def __init__(self, settings: LRUSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n, d = signature.input_size, settings.hidden_size, settings.block_size
        self.recurrent_factor = settings.recurrent_factor

        def normal(*shape: int, variance: float) -> nn.Parameter:
            return nn.Parameter(math.sqrt(variance) * torch.randn(*shape, generator=generator))

        self.encoder_weight, self.encoder_bias = normal(d, m, variance=1 / m), nn.Parameter(torch.zeros(d))
        self.norm_weight, self.norm_bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        area, turn = torch.rand(2, n, generator=generator, dtype=torch.float64)
        squared_modulus = settings.r_min**2 + area * (settings.r_max**2 - settings.r_min**2)
        self.nu = nn.Parameter((-0.5 * squared_modulus.log()).log().float())
        self.theta = nn.Parameter((settings.theta_max * turn).log().float())
        self.gain = nn.Parameter((0.5 * torch.log1p(-squared_modulus)).float())
        # Complex unit j has rows 2j and 2j+1 of B; of C, columns 2j and 2j+1 are Re C and -Im C, which make Re(C s).
        self.input_weight = normal(2 * n, d, variance=1 / (2 * d))
        self.state_weight = normal(d, 2 * n, variance=1 / n)
        self.feedthrough = normal(d, variance=1)
        self.gate_weight, self.gate_bias = normal(2 * d, d, variance=1 / d), nn.Parameter(torch.zeros(2 * d))

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

    def encode(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return e and v `[T, B, d]`."""
        e = project(inputs, self.encoder_weight, self.encoder_bias)
        return e, layer_norm(e, self.norm_bias.shape, self.norm_weight, self.norm_bias)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        e, v = self.encode(inputs)
        driven = project(v, self.gain.exp().repeat_interleave(2)[:, None] * self.input_weight)
        s, (final,) = diagonal_recurrence(driven, interleaved(self.eigenvalues()), state, trace, is_complex=True)
        if self.signature.readout == "last":  # e[-1:] would make autograd write zeros of the size of e
            (e, v), s = self.encode(inputs[-1:]), final[None]
        u = gelu(linear(s, self.state_weight) + self.feedthrough * v)
        value, gate = linear(u, self.gate_weight, self.gate_bias).chunk(2, dim=-1)
        return e + value * gate.sigmoid(), (final,)

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
