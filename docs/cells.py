"""Sixteen cells from the literature as you may write them: one step of a module, which orthobench compiles.

    orthobench run adding docs/cells.py:JANET -s hidden_size=128
    orthobench plugins docs/cells.py:JANET

A cell gets the inputs x of a step `[batch, input_size]` and its state, one tensor `[batch, hidden_size]` or two. It
returns the next state, whose first tensor is its output. Where a paper adds a bias of the inputs and one of the states,
one of them is left out.
"""

import torch
from torch import nn


class JANET(nn.Module):
    """An LSTM with nothing but a forget gate (van der Westhuizen and Lasenby, 2018, arXiv:1804.04849).

    h_t = sigmoid(s) h + (1 - sigmoid(s - 1)) tanh(g), with s and g linear in x_t and h.
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x, self.h = nn.Linear(input_size, 2 * hidden_size), nn.Linear(hidden_size, 2 * hidden_size, bias=False)

    def forward(self, x, h):
        s, g = (self.x(x) + self.h(h)).chunk(2, dim=-1)
        return torch.sigmoid(s) * h + (1 - torch.sigmoid(s - 1)) * torch.tanh(g)


class MGU(nn.Module):
    """Minimal gated unit (Zhou, Wu, Zhang and Zhou, 2016, arXiv:1603.09420).

    f = sigmoid(W_f [x_t, h]), h_t = (1 - f) h + f tanh(W [x_t, f h]).
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.forget = nn.Linear(input_size + hidden_size, hidden_size)
        self.candidate = nn.Linear(input_size + hidden_size, hidden_size)

    def forward(self, x, h):
        f = torch.sigmoid(self.forget(torch.cat((x, h), dim=1)))
        return torch.lerp(h, torch.tanh(self.candidate(torch.cat((x, f * h), dim=1))), f)


class LightGRU(nn.Module):
    """Light GRU (Ravanelli, Brakel, Omologo and Bengio, 2018, arXiv:1803.10225), without its batch norm of the inputs.

    h_t = z h + (1 - z) relu(g), with z = sigmoid(.) and g linear in x_t and h.
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x, self.h = nn.Linear(input_size, 2 * hidden_size), nn.Linear(hidden_size, 2 * hidden_size, bias=False)

    def forward(self, x, h):
        gates = self.x(x)
        gates += self.h(h)
        z, g = gates.chunk(2, 1)
        z = torch.sigmoid(z)
        return z * h + (1 - z) * torch.relu(g)


class UGRNN(nn.Module):
    """Update gate RNN (Collins, Sohl-Dickstein and Sussillo, 2017, arXiv:1611.09913), here with slices of one weight.

    h_t = u h + (1 - u) tanh(c), with u = sigmoid(.) and c linear in x_t and h.
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.both, self.input_size = nn.Linear(input_size + hidden_size, 2 * hidden_size), input_size

    def forward(self, x, h):
        w = self.both.weight
        total = nn.functional.linear(x, w[:, : self.input_size], self.both.bias) + h @ w[:, self.input_size :].T
        u, c = total[:, : h.shape[1]], total[:, h.shape[1] :]
        u = torch.sigmoid(u)
        return u * h + (1 - u) * torch.tanh(c)


class STAR(nn.Module):
    """Stackable recurrent cell (Turkoglu, D'Aronco, Wegner and Schindler, 2021, arXiv:1911.11033).

    h_t = tanh((1 - k) h + k tanh(W_z x_t)), with k = sigmoid(W_x x_t + W_h h).
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.z, self.k = nn.Linear(input_size, hidden_size), nn.Linear(input_size, hidden_size)
        self.h = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, x, h):
        k = torch.sigmoid(self.k(x) + self.h(h))
        h = torch.tanh((1 - k) * h + k * torch.tanh(self.z(x)))
        return h, h


class CFN(nn.Module):
    """Chaos free network (Laurent and von Brecht, 2017, arXiv:1612.06212).

    h_t = theta tanh(h) + eta tanh(W x_t), with theta and eta = sigmoid(.), linear in x_t and h.
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x, self.h = nn.Linear(input_size, 2 * hidden_size), nn.Linear(hidden_size, 2 * hidden_size, bias=False)
        self.w = nn.Linear(input_size, hidden_size, bias=False)

    def forward(self, x, h):
        theta, eta = torch.sigmoid(self.x(x) + self.h(h)).chunk(2, 1)
        return theta * torch.tanh(h) + eta * torch.tanh(self.w(x))


class PeepholeLSTM(nn.Module):
    """LSTM whose gates see its memory (Gers, Schraudolph and Schmidhuber, 2002, JMLR 3, pp. 115-143).

    i and f see c, o sees c_t, by a weight of each unit: o = sigmoid(. + p_o c_t).
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x, self.h = nn.Linear(input_size, 4 * hidden_size), nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.peepholes = nn.Parameter(0.3 * torch.randn(3, hidden_size))

    def forward(self, x, state):
        h, c = state
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, dim=-1)
        to_i, to_f, to_o = self.peepholes
        c_next = (f + to_f * c).sigmoid() * c + (i + to_i * c).sigmoid() * g.tanh()
        return (o + to_o * c_next).sigmoid() * c_next.tanh(), c_next


class BRC(nn.Module):
    """Bistable recurrent cell (Vecoven, Ernst and Drion, 2021, arXiv:2006.05252): each unit sees only itself.

    h_t = c h + (1 - c) tanh(U x_t + a h), with a = 1 + tanh(U_a x_t + w_a h) and c = sigmoid(U_c x_t + w_c h).
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x = nn.Linear(input_size, 3 * hidden_size)
        self.a, self.c = nn.Parameter(torch.randn(hidden_size)), nn.Parameter(torch.randn(hidden_size))

    def forward(self, x, h):
        to_a, to_c, to_h = self.x(x).chunk(3, 1)
        a, c = 1 + torch.tanh(to_a + self.a * h), torch.sigmoid(to_c + self.c * h)
        return c * h + (1 - c) * torch.tanh(to_h + a * h)


class NBRC(nn.Module):
    """The neuromodulated form of BRC, in the same paper: a and c see all units, by matrices instead of w_a and w_c."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x, self.h = nn.Linear(input_size, 3 * hidden_size), nn.Linear(hidden_size, 2 * hidden_size, bias=False)

    def forward(self, x, h):
        to_a, to_c, to_h = self.x(x).chunk(3, 1)
        a, c = self.h(h).chunk(2, 1)
        a, c = 1 + torch.tanh(to_a + a), torch.sigmoid(to_c + c)
        return c * h + (1 - c) * torch.tanh(to_h + a * h)


class Multiplicative(nn.Module):
    """Multiplicative integration (Wu, Zhang, Zhang, Bengio and Salakhutdinov, 2016, arXiv:1606.06630).

    h_t = tanh(a W x_t U h + b W x_t + c U h + d), with a, b, c and d for each unit.
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x = nn.Linear(input_size, hidden_size, bias=False)
        self.h = nn.Linear(hidden_size, hidden_size, bias=False)
        self.a, self.b, self.c, self.d = (nn.Parameter(torch.randn(hidden_size)) for _ in range(4))

    def forward(self, x, h):
        u, v = self.x(x), self.h(h)
        return torch.tanh(self.a * u * v + self.b * u + self.c * v + self.d)


class Sine(nn.Module):
    """A sine, as in sinusoidal networks (Sitzmann and others, 2020, arXiv:2006.09661), in a cell with a learnt leak.

    h_t = h + 0.3 (sin(3 (W x_t + U h)) - rate h).
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x, self.h = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size, bias=False)
        self.rate = nn.Parameter(torch.tensor(0.7))

    def forward(self, x, h):
        return h + 0.3 * (torch.sin(3 * (self.x(x) + self.h(h))) - self.rate * h)


class Oscillators(nn.Module):
    """Coupled oscillators (coRNN; Rusch and Mishra, 2021, arXiv:2010.00951), each with a learnt frequency and damping.

    z_t = z + 0.3 (tanh(W y + V z + U x_t) - gamma y - epsilon z), y_t = y + 0.3 z_t.
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x, self.y = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size, bias=False)
        self.z = nn.Linear(hidden_size, hidden_size, bias=False)
        self.gamma, self.epsilon = nn.Parameter(torch.randn(hidden_size)), nn.Parameter(torch.randn(hidden_size))

    def forward(self, x, state):
        y, z = state
        force = torch.tanh(self.x(x) + self.y(y) + self.z(z))
        z = z + 0.3 * (force - nn.functional.softplus(self.gamma) * y - nn.functional.softplus(self.epsilon) * z)
        return y + 0.3 * z, z


class FiringRate(nn.Module):
    """Firing rates (Sompolinsky, Crisanti and Sommers, 1988): the state is a current, its tanh the rate of a neuron.

    h_t = 0.8 h + 0.2 (W x_t + U tanh(h)).
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x, self.h = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, x, h):
        return 0.8 * h + 0.2 * (self.x(x) + self.h(torch.tanh(h)))


class Highway(nn.Module):
    """Recurrent highway network of depth two (Zilly and others, 2017, arXiv:1607.03474), gates coupled.

    In each layer h becomes h + sigmoid(.) (tanh(.) - h); the second one sees no inputs.
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x, self.first = nn.Linear(input_size, 2 * hidden_size), nn.Linear(hidden_size, 2 * hidden_size, bias=False)
        self.second = nn.Linear(hidden_size, 2 * hidden_size)

    def forward(self, x, h):
        candidate, gate = (self.x(x) + self.first(h)).chunk(2, 1)
        h = h + torch.sigmoid(gate) * (torch.tanh(candidate) - h)
        candidate, gate = self.second(h).chunk(2, 1)
        return h + torch.sigmoid(gate) * (torch.tanh(candidate) - h)


class LayerNormLSTM(nn.Module):
    """LSTM with layer norm (Ba, Kiros and Hinton, 2016, arXiv:1607.06450, supplement).

    The gates are LN(W_x x_t) + LN(W_h h), and h_t = sigmoid(o) tanh(LN(c_t)).
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x = nn.Linear(input_size, 4 * hidden_size, bias=False)
        self.h = nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.of_x, self.of_h, self.of_c = (nn.LayerNorm(k * hidden_size) for k in (4, 4, 1))

    def forward(self, x, state):
        h, c = state
        i, f, g, o = (self.of_x(self.x(x)) + self.of_h(self.h(h))).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(self.of_c(c)), c


class LayerNormGRU(nn.Module):
    """GRU with layer norm of each sum of products, before the gates (after Ba, Kiros and Hinton, 2016).

    z, r = sigmoid(LN(W x_t + U h)), h_t = h + z (tanh(LN(W_c x_t + U_c (r h))) - h).
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        both = input_size + hidden_size
        self.gates, self.candidate = nn.Linear(both, 2 * hidden_size), nn.Linear(both, hidden_size)
        self.of_gates, self.of_candidate = nn.LayerNorm(2 * hidden_size), nn.LayerNorm(hidden_size)

    def forward(self, x, h):
        z, r = torch.sigmoid(self.of_gates(self.gates(torch.cat((x, h), 1)))).chunk(2, 1)
        candidate = torch.tanh(self.of_candidate(self.candidate(torch.cat((x, r * h), 1))))
        return torch.lerp(h, candidate, z)


class Forgetful(nn.Module):
    """A cell with a bug: no gradient passes `detach`, so it learns from one step at a time.

    It runs as a loop in PyTorch, and one line names the place.
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x, self.h = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, x, h):
        return torch.tanh(self.x(x) + self.h(h.detach()))
