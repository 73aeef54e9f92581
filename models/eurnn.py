"""EURNN: a unitary recurrent matrix as a product of layers of 2 x 2 rotations (the EUNN cell).

    h_t = modReLU(W h_{t-1} + U x_t; b),   W = diag(e^{i w}) F_L ... F_1,   y_t = V Re(h_t) + c

L. Jing, Y. Shen, T. Dubcek, J. Peurifoy, S. Skirlo, Y. LeCun, M. Tegmark, M. Soljacic, "Tunable Efficient Unitary
Neural Networks (EUNN) and their application to RNNs", ICML 2017. A layer F rotates pairs of units, each by its own
angle and phase (`matrices.rotations`). The tunable style has L layers that pair neighbours; the FFT style has log2 n
layers, which pair units n / 2, n / 4, ..., 1 apart. Real units have angles only. As in the program, modReLU uses |z| +
0.01 as the modulus, and the direction of real units is sign(z). The output map reads only the real part.

For complex units, the number of parameters is counted as in the program: 2 angles + n + 2 m n + n + n p + p. The sizes
in the scoRNN paper, 3k and 7k, result if w is left out and U is counted once.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.matrices.complex_form import interleaved, real_form
from orthobench.matrices.rotations import (
    Rotations,
    fft,
    rotate,
    rotation_layers,
    rotation_numbers,
    rotation_product,
    tunable,
)
from orthobench.model import Count, Learns, Model, ModelSettings, OutputBias, Signature, State
from orthobench.recurrence import Activation, Kind

from ._plain import PlainRNN, is_worth_applying


class RotationSettings(ModelSettings):
    """Settings of the models whose matrix is a product of rotations."""

    output_bias: OutputBias = "constant"
    style: Literal["tunable", "fft"] = Field(
        "tunable",
        description="which units the rotations pair; tunable: neighbours, in `capacity` layers; "
        "fft: as in the fast Fourier transform",
    )
    capacity: Count = Field(2, description="L, layers of rotations in the tunable style")

    def rotations(self) -> Rotations:
        return tunable(self.hidden_size, self.capacity) if self.style == "tunable" else fft(self.hidden_size)

    @model_validator(mode="after")
    def _fits(self) -> RotationSettings:
        if self.style == "fft" and self.capacity != type(self).model_fields["capacity"].default:
            raise ValueError(f"capacity={self.capacity} needs style=tunable: the FFT style always has log2 n layers")
        self.rotations()
        return self


class EURNNSettings(RotationSettings):
    hidden_size: Count = Field(512, description="number of hidden units n")
    units: Literal["complex", "real"] = Field("complex", description="complex hidden units, or real ones")


def random_angles(count: int, generator: torch.Generator) -> nn.Parameter:
    """Draw angles from U(-3.14, 3.14), as in the programs."""
    return nn.Parameter(torch.empty(count).uniform_(-3.14, 3.14, generator=generator))


def start_output(model: Model, signature: Signature, generator: torch.Generator) -> None:
    """Initialise V as in the programs: Glorot-uniform, but with the input size instead of the hidden size."""
    bound = math.sqrt(6 / (signature.input_size + signature.output_size))
    nn.init.uniform_(model.output_weight, -bound, bound, generator=generator)


class EURNN(PlainRNN):
    version = 1
    title = "EURNN"
    paper = "Jing et al. Tunable Efficient Unitary Neural Networks (EUNN) and their application to RNNs. ICML 2017"
    cites = "jing2017"
    look = "dash diamond"
    family = "orthogonal"
    learns = Learns("copying", 0.2, gate={"hidden_size": 32})
    cost = "complex units are two features each: four times the products"
    orthogonal = True
    bounded_parts = {}  # the derivative of a modReLU that divides by |z| + epsilon exceeds 1
    Settings = EURNNSettings
    matrix_parameters = ("theta", "phi", "omega")

    def __init__(self, settings: EURNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n, is_complex = settings.hidden_size, settings.units == "complex"
        self.activation = Activation(Kind.COMPLEX_MODRELU if is_complex else Kind.MODRELU, epsilon=0.01)
        self.rotations = settings.rotations()
        self.layers = rotation_layers(self.rotations, is_complex)
        self.forms_weight = not is_worth_applying(self.layers)
        self.bias = nn.Parameter(torch.zeros(n))
        self.theta = random_angles(self.rotations.angle_count, generator)
        self.phi = random_angles(self.rotations.angle_count, generator) if is_complex else None
        self.omega = random_angles(n, generator) if is_complex else None
        start_output(self, signature, generator)

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, EURNNSettings)
        return settings.hidden_size * (2 if settings.units == "complex" else 1)

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return settings.hidden_size

    def matrix(self) -> Tensor:
        """Return W `[n, n]`, complex if the units are."""
        angles = self.rotations.by_layer(self.theta)
        if self.phi is None or self.omega is None:
            return rotation_product(self.rotations, angles)
        units = torch.eye(self.hidden_size, dtype=self.theta.dtype.to_complex(), device=self.theta.device)
        last = torch.polar(torch.ones_like(self.omega), self.omega)
        return (rotate(units, self.rotations, angles, self.rotations.by_layer(self.phi)) * last).T

    def weight(self) -> Tensor:
        return self.matrix() if self.phi is None else real_form(self.matrix())

    def layer_weight(self) -> Tensor:
        angles = self.rotations.by_layer(self.theta)
        if self.phi is None or self.omega is None:
            return rotation_numbers(self.rotations, angles).flatten(0, 1)
        numbers = rotation_numbers(self.rotations, angles, self.rotations.by_layer(self.phi))
        last = numbers[-1:] * torch.polar(torch.ones_like(self.omega), self.omega)
        return interleaved(torch.cat((numbers[:-1], last)).flatten(0, 1))

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        h = super().readout(outputs, final)
        return h if self.phi is None else h[..., ::2]

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return {"W": self.matrix()}
