"""The pointwise functions that follow h_t = act(x_t + W h_{t-1}), in the numerical forms of the papers' programs.

z is the pre-activation `[..., n]`, b a trainable vector. In the complex forms unit j has two real columns, 2j (real
part) and 2j+1 (imaginary part). b has one entry for each complex unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor


class Kind(StrEnum):
    IDENTITY = "identity"
    TANH = "tanh"
    RELU = "relu"
    LEAKY_RELU = "leaky_relu"
    MODRELU = "modrelu"
    COMPLEX_MODRELU = "complex_modrelu"
    COMPLEX_MODRELU_SMOOTH = "complex_modrelu_smooth"


@dataclass(frozen=True)
class Activation:
    """An activation.

    * identity, tanh, relu, leaky_relu: f(z + b); `slope` is the slope of leaky ReLU for negative inputs.
    * modrelu: sign(z) max(q + b, 0) with q = |z| + epsilon and sign(0) = 0. epsilon is 0 for scoRNN, 0.01 in the
      real EURNN program, 0.001 in GORU's.
    * complex_modrelu: (z / q) max(q + b, 0), q = |z| + epsilon; 0 at z = 0 (EURNN's program: epsilon = 0.01).
    * complex_modrelu_smooth: z max(rho + b, 0) / (rho + epsilon), rho = sqrt(epsilon + |z|^2)
      (the uRNN programs: epsilon = 1e-5).
    """

    kind: Kind
    slope: float = 0.1
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if self.kind is Kind.COMPLEX_MODRELU_SMOOTH and self.epsilon <= 0:
            raise ValueError(f"{self.kind} divides by epsilon at z = 0: it must be positive, not {self.epsilon}")

    @property
    def is_complex(self) -> bool:
        return self.kind in (Kind.COMPLEX_MODRELU, Kind.COMPLEX_MODRELU_SMOOTH)

    def bias_size(self, features: int) -> int:
        """Return the length of b for a state with this number of real features."""
        return features // 2 if self.is_complex else features

    def __call__(self, z: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return act(z; b) for z `[..., n]`, elementwise or over pairs of columns; the shape is z's."""
        match self.kind:
            case Kind.MODRELU:
                return z.sign() * _shifted(z.abs() + self.epsilon, bias)
            case Kind.COMPLEX_MODRELU | Kind.COMPLEX_MODRELU_SMOOTH:
                pairs = z.reshape(*z.shape[:-1], -1, 2)
                scale = self._complex_scale(pairs.square().sum(-1), bias)
                return (pairs * scale.unsqueeze(-1)).reshape(z.shape)
        shifted = z if bias is None else z + bias
        match self.kind:
            case Kind.TANH:
                return shifted.tanh()
            case Kind.RELU:
                return shifted.relu()
            case Kind.LEAKY_RELU:
                return torch.where(shifted >= 0, shifted, self.slope * shifted)
        return shifted

    def _complex_scale(self, squared_modulus: Tensor, bias: Tensor | None) -> Tensor:
        if self.kind is Kind.COMPLEX_MODRELU_SMOOTH:
            rho = (squared_modulus + self.epsilon).sqrt()
            return _shifted(rho, bias) / (rho + self.epsilon)
        # Autograd must not reach the root's infinite slope at 0, where the output is 0 for any scale.
        zero = squared_modulus == 0
        q = torch.where(zero, 1.0, squared_modulus).sqrt() + self.epsilon
        return torch.where(zero, 0.0, _shifted(q, bias) / q)


def _shifted(modulus: Tensor, bias: Tensor | None) -> Tensor:
    return (modulus if bias is None else modulus + bias).relu()


IDENTITY = Activation(Kind.IDENTITY)
TANH = Activation(Kind.TANH)
RELU = Activation(Kind.RELU)
LEAKY_RELU = Activation(Kind.LEAKY_RELU)
MODRELU = Activation(Kind.MODRELU)
