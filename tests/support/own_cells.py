"""Cells as users write them: those of `docs/cells.py` and others, and the number of tensors of their states."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from docs import cells


class Antisymmetric(nn.Module):
    """Gated AntisymmetricRNN (Chang and others, 2019), whose matrix is a function of its weight."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.weight = nn.Linear(inputs, 2 * units), nn.Parameter(torch.randn(units, units) / units)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        matrix = self.weight - self.weight.T - 0.1 * torch.eye(len(self.weight), dtype=h.dtype)
        product, (u, v) = h @ matrix.T, self.x(x).chunk(2, 1)
        return h + 0.5 * torch.sigmoid(product + u) * torch.tanh(product + v)


class Independent(nn.Module):
    """IndRNN (Li and others, 2018): no product of a state with a matrix."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.weight = nn.Linear(inputs, units), nn.Parameter(torch.rand(units))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.relu(self.x(x) + self.weight * h)


class LongExpressive(nn.Module):
    """LEM (Rusch and others, 2022): the second product reads the state that the first phase has computed."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.y, self.z = nn.Linear(inputs, 4 * units), nn.Linear(units, 3 * units), nn.Linear(units, units)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        y, z = state
        (a, b, c), last = (part := self.x(x).chunk(4, 1))[:3], part[3]
        one, two, three = self.y(y).chunk(3, 1)
        short, long = 0.7 * torch.sigmoid(a + one), 0.7 * torch.sigmoid(b + two)
        z = (1 - short) * z + short * torch.tanh(c + three)
        return (1 - long) * y + long * torch.tanh(last + self.z(z)), z


class Functions(nn.Module):
    """No cell of the literature: the functions that the others do not have, and a row's own number."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(inputs, 3 * units), nn.Linear(units, 3 * units)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        a, b, c = (self.x(x) + self.h(h)).chunk(3, 1)
        a = torch.cos(a).abs().clamp(0.1, 0.8) / (1.5 + nn.functional.elu(b))
        b = torch.where(c > 0.1, softplus(b), torch.exp(-c.square())) + nn.functional.leaky_relu(c, 0.2)
        c = torch.sqrt(1 + b.square()) + nn.functional.silu(c) - torch.log(1.1 + torch.maximum(b, c).abs())
        return 0.2 * (a + b - c) + x[:, :1] * torch.sign(h) * 0.1 + torch.zeros_like(h)


_TWO = (cells.PeepholeLSTM, cells.Oscillators, cells.LayerNormLSTM, LongExpressive, nn.LSTMCell)
_ONE = (
    *(each for each in vars(cells).values() if isinstance(each, type) and each not in (cells.Forgetful, *_TWO)),
    *(Antisymmetric, Independent, Functions, nn.GRUCell, nn.RNNCell),
)
STATES = dict.fromkeys(_ONE, 1) | dict.fromkeys(_TWO, 2)
"""The number of tensors of each cell's state."""
