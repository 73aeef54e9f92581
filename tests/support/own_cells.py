"""Cells of the literature, as users write them: one step of a module, and the number of tensors of its state."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, softplus


class Peephole(nn.Module):
    """LSTM with peepholes (Gers, Schraudolph, 2000)."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(inputs, 4 * units), nn.Linear(units, 4 * units, bias=False)
        self.peepholes = nn.Parameter(0.3 * torch.randn(3, units))

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = state
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, dim=-1)
        to_i, to_f, to_o = self.peepholes
        c_next = (f + to_f * c).sigmoid() * c + (i + to_i * c).sigmoid() * g.tanh()
        return (o + to_o * c_next).sigmoid() * c_next.tanh(), c_next


class Janet(nn.Module):
    """An LSTM with nothing but a forget gate (van der Westhuizen, Lasenby, 2018)."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(inputs, 2 * units), nn.Linear(units, 2 * units)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        s, g = torch.split(self.x(x) + self.h(h), h.shape[-1], dim=1)
        return torch.sigmoid(s) * h + (1 - torch.sigmoid(s - 1)) * torch.tanh(g)


class MinimalGated(nn.Module):
    """Minimal gated unit (Zhou and others, 2016)."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.gate, self.candidate = nn.Linear(inputs + units, units), nn.Linear(inputs + units, units)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        f = torch.sigmoid(self.gate(torch.cat((x, h), dim=1)))
        return torch.lerp(h, torch.tanh(self.candidate(torch.cat((x, f * h), dim=1))), f)


class LightGRU(nn.Module):
    """Light GRU (Ravanelli and others, 2018), without its batch norm."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(inputs, 2 * units), nn.Linear(units, 2 * units, bias=False)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        gates = self.x(x)
        gates += self.h(h)
        z, g = gates.chunk(2, 1)
        z = torch.sigmoid(z)
        return z * h + (1 - z) * torch.relu(g)


class UGRNN(nn.Module):
    """Update gate RNN (Collins and others, 2017), with slices of one weight."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.both, self.inputs = nn.Linear(inputs + units, 2 * units), inputs

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        w = self.both.weight
        total = linear(x, w[:, : self.inputs], self.both.bias) + h @ w[:, self.inputs :].T
        u, g = total[:, : h.shape[1]], total[:, h.shape[1] :]
        u = torch.sigmoid(u)
        return u * h + (1 - u) * torch.tanh(g)


class Star(nn.Module):
    """STAR (Turkoglu and others, 2021)."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.z, self.k, self.h = nn.Linear(inputs, units), nn.Linear(inputs, units), nn.Linear(units, units)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        k = torch.sigmoid(self.k(x) + self.h(h))
        h = torch.tanh((1 - k) * h + k * torch.tanh(self.z(x)))
        return h, h


class ChaosFree(nn.Module):
    """Chaos free network (Laurent, von Brecht, 2017)."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.h, self.w = nn.Linear(inputs, 2 * units), nn.Linear(units, 2 * units), nn.Linear(inputs, units)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        theta, eta = torch.sigmoid(self.x(x) + self.h(h)).chunk(2, 1)
        return theta * torch.tanh(h) + eta * torch.tanh(self.w(x))


class Sine(nn.Module):
    """A leaky cell with a sine and a learnt rate, one number."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.h, self.rate = nn.Linear(inputs, units), nn.Linear(units, units), nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return h + 0.3 * (torch.sin(3 * (self.x(x) + self.h(h))) - self.rate * h)


class Oscillators(nn.Module):
    """coRNN (Rusch, Mishra, 2021) with a learnt frequency and damping of each unit."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.y, self.z = nn.Linear(inputs, units), nn.Linear(units, units), nn.Linear(units, units, bias=False)
        self.frequency, self.damping = nn.Parameter(torch.randn(units)), nn.Parameter(torch.randn(units))

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        y, z = state
        force = torch.tanh(self.x(x) + self.y(y) + self.z(z))
        z = z + 0.3 * (force - softplus(self.frequency) * y - softplus(self.damping) * z)
        return y + 0.3 * z, z


class FiringRate(nn.Module):
    """The rate model of neuroscience, whose products read a function of the state."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(inputs, units), nn.Linear(units, units, bias=False)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return 0.8 * h + 0.2 * (self.x(x) + self.h(torch.tanh(h)))


class Multiplicative(nn.Module):
    """Multiplicative integration (Wu and others, 2016)."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(inputs, units, bias=False), nn.Linear(units, units, bias=False)
        self.a, self.b, self.c, self.d = (nn.Parameter(torch.randn(units)) for _ in range(4))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        u, v = self.x(x), self.h(h)
        return torch.tanh(self.a * u * v + self.b * u + self.c * v + self.d)


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


class Highway(nn.Module):
    """A recurrent highway (Zilly and others, 2017), whose second layer reads no inputs."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.x, self.first, self.second = (
            nn.Linear(inputs, 2 * units),
            nn.Linear(units, 2 * units),
            nn.Linear(units, 2 * units),
        )

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        candidate, gate = (self.x(x) + self.first(h)).chunk(2, 1)
        h = h + torch.sigmoid(gate) * (torch.tanh(candidate) - h)
        candidate, gate = self.second(h).chunk(2, 1)
        return h + torch.sigmoid(gate) * (torch.tanh(candidate) - h)


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


STATES = {
    Peephole: 2,
    Janet: 1,
    MinimalGated: 1,
    LightGRU: 1,
    UGRNN: 1,
    Star: 1,
    ChaosFree: 1,
    Sine: 1,
    Oscillators: 2,
    FiringRate: 1,
    Multiplicative: 1,
    Antisymmetric: 1,
    Independent: 1,
    LongExpressive: 2,
    Highway: 1,
    Functions: 1,
    nn.GRUCell: 1,
    nn.LSTMCell: 2,
    nn.RNNCell: 1,
}
"""The number of tensors of each cell's state."""
