"""The dense recurrences: a step multiplies the state by a matrix W.

W maps columns, so in rows a step is z_t = x_t + h_{t-1} W^T. The inputs x_t include the input projection and its bias.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from orthobench.recurrence.activations import TANH, Activation, Kind
from orthobench.recurrence.call import State, Weight
from orthobench.recurrence.operation import Step, operation


def _check_activation(
    n: int, activation: Activation, bias: Tensor | None, step_size: float | None = None
) -> str | None:
    if activation.is_complex and n % 2:
        return f"a complex activation needs an even number of real features, not {n}"
    if bias is not None and bias.shape != (activation.bias_size(n),):
        return f"bias {list(bias.shape)} should be [{activation.bias_size(n)}]"
    return None


@operation(check=_check_activation)
def recurrence(
    weight: Weight, activation: Activation = TANH, bias: Tensor | None = None, step_size: float | None = None
) -> Step:
    """h_t = act(x_t + W h_{t-1}; b), or with a step size eps the Euler form h_t = h_{t-1} + eps act(...).

    W is a matrix `[n, n]`, or a function that applies it, for a structure that is cheaper to apply than to form.
    `bias` is the activation's vector b, `[activation.bias_size(n)]`.
    """

    def step(x: Tensor, h: Tensor) -> State:
        z = torch.addmm(x, h, weight.T) if isinstance(weight, Tensor) else x + weight(h)
        update = activation(z, bias)
        return (update if step_size is None else h + step_size * update,)

    return step


@operation(gates=2, rows=1)
def gated_recurrence(weight: Tensor, step_size: float) -> Step:
    """h_t = h_{t-1} + eps sigmoid(W h_{t-1} + g_t) o tanh(W h_{t-1} + x_t): the gated AntisymmetricRNN.

    x is `[T, B, 2n]`: the candidate's inputs x_t, then the gate's g_t.
    """

    def step(x: Tensor, h: Tensor) -> State:
        candidate, gate = x.chunk(2, dim=-1)
        mixed = h @ weight.T
        return (h + step_size * (mixed + gate).sigmoid() * (mixed + candidate).tanh(),)

    return step


def _check_cell_weight(n: int, cell_weight: Tensor | None) -> str | None:
    if cell_weight is not None and cell_weight.shape != (n, n):
        return f"cell_weight {list(cell_weight.shape)} should be [{n}, {n}]"
    return None


@operation(states=("h", "c"), gates=4, check=_check_cell_weight)
def lstm(weight: Tensor, cell_weight: Tensor | None = None) -> Step:
    """LSTM without peepholes: c_t = s(f) c_{t-1} + s(i) tanh(g), h_t = s(o) tanh(c_t).

    The gates are in the order i, f, g, o (torch's). With P = `cell_weight` `[n, n]`, h_t = s(o + P c_t) tanh(c_t).
    """

    def step(x: Tensor, h: Tensor, c: Tensor) -> State:
        i, f, g, o = torch.addmm(x, h, weight.T).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        if cell_weight is not None:
            o = torch.addmm(o, c, cell_weight.T)
        return o.sigmoid() * c.tanh(), c

    return step


LARGEST_EXPONENT = 80.0
"""A bound of exponents whose exponential float32 can hold."""


def _check_whole_heads(n: int, heads: int, **others: bool) -> str | None:
    return f"heads={heads} should divide the {n} features" if heads < 1 or n % heads else None


def spread_heads(blocks: Tensor, heads: int) -> Tensor:
    """Return the matrix `[rows, n]` that is zero between heads, from the heads' own columns `[rows, n / heads]`.

    The rows are `[gates, heads, n / heads]`.
    """
    size = blocks.shape[1]
    own = torch.eye(heads, dtype=blocks.dtype, device=blocks.device)
    return (blocks.view(-1, heads, size, 1, size) * own[:, None, :, None]).reshape(-1, heads * size)


@operation(states=("h", "c", "n", "m"), gates=4, traced=3, check=_check_whole_heads)
def slstm(weight: Tensor, exponential_forget: bool = False, heads: int = 1) -> Step:
    """sLSTM: c_t = f' c_{t-1} + i' tanh(z), n_t = f' n_{t-1} + i', h_t = s(o) c_t / n_t, gates in the order i, f, z, o.

    m_t = max(log f + m_{t-1}, i) keeps i' = exp(i - m_t) and f' = exp(log f + m_{t-1} - m_t) at most 1; f is s(.), or
    exp(.) with `exponential_forget`. At the start n is 0, and there alone: then m_t = i, and the first input counts
    whole however small exp(i) is. No output depends on m.

    The weight has the matrices of each gate and head, `[4, heads, d, d]` as `[4n, d]`, where d = n / heads.
    """
    transposed = spread_heads(weight, heads).T

    def step(x: Tensor, h: Tensor, c: Tensor, n: Tensor, m: Tensor) -> State:
        i, f, z, o = torch.addmm(x, h, transposed).chunk(4, dim=-1)
        faded = m + (f if exponential_forget else logsigmoid(f))
        m = torch.where(n == 0, i, torch.maximum(i, faded))
        keep, write = (faded - m).clamp(max=LARGEST_EXPONENT).exp(), (i - m).exp()
        c, n = keep * c + write * z.tanh(), keep * n + write
        return o.sigmoid() * c / n, c, n, m

    return step


def _check_gru(
    n: int,
    candidate_bias: Tensor | None,
    reset_after: bool,
    activation: Activation,
    activation_bias: Tensor | None,
) -> str | None:
    if candidate_bias is not None and (not reset_after or candidate_bias.shape != (n,)):
        return f"candidate_bias should be [{n}], and needs reset_after"
    if activation.kind not in (Kind.TANH, Kind.MODRELU):
        return f"the activation should be tanh or modrelu, not {activation.kind}"
    if activation_bias is not None and (activation.kind is Kind.TANH or activation_bias.shape != (n,)):
        return f"activation_bias should be [{n}], and needs modrelu; tanh's is part of x"
    return None


@operation(gates=3, check=_check_gru)
def gru(
    weight: Tensor,
    candidate_bias: Tensor | None = None,
    reset_after: bool = False,
    activation: Activation = TANH,
    activation_bias: Tensor | None = None,
) -> Step:
    """GRU: h_t = z h_{t-1} + (1 - z) tanh(x^g_t + W_g (r h_{t-1})), gates in the order r, z, g (torch's).

    With `reset_after` the last term is r (W_g h_{t-1} + b), b = `candidate_bias` `[n]`, as in cuDNN. modReLU may
    replace tanh (GORU); `activation_bias` `[n]` is its vector.
    """
    n = weight.shape[1]
    gates_weight, candidate_weight = weight[: 2 * n].T, weight[2 * n :].T

    def step(x: Tensor, h: Tensor) -> State:
        r, z = torch.addmm(x[:, : 2 * n], h, gates_weight).sigmoid().chunk(2, dim=-1)
        if reset_after:
            recurrent = h @ candidate_weight
            mixed = r * (recurrent if candidate_bias is None else recurrent + candidate_bias)
        else:
            mixed = (r * h) @ candidate_weight
        return (z * h + (1 - z) * activation(x[:, 2 * n :] + mixed, activation_bias),)

    return step


@operation(states=("y", "z"), sources=2)
def cornn(weight: Tensor, step_size: float, frequency: float, damping: float) -> Step:
    """Coupled oscillators: z_t = z_{t-1} + dt (tanh(x_t + W [y_{t-1}; z_{t-1}]) - gamma y_{t-1} - eps z_{t-1}),
    y_t = y_{t-1} + dt z_t.

    dt, gamma and eps are `step_size`, `frequency` and `damping`.
    """

    def step(x: Tensor, y: Tensor, z: Tensor) -> State:
        force = torch.addmm(x, torch.cat((y, z), dim=-1), weight.T).tanh()
        z = z + step_size * (force - frequency * y - damping * z)
        return y + step_size * z, z

    return step


@operation(states=("y", "z"), gates=4)
def lem(weight: Tensor, step_size: float) -> Step:
    """Two states with learnt step lengths, a = dt s(gate): z_t = (1 - a) z_{t-1} + a tanh(.), y_t likewise.

    The blocks are in the order z's gate and candidate, y's gate and candidate. The last reads z_t, the others y_{t-1}.
    """
    n = weight.shape[1]
    from_y, from_z = weight[: 3 * n].T, weight[3 * n :].T

    def step(x: Tensor, y: Tensor, z: Tensor) -> State:
        gate_z, candidate_z, gate_y = torch.addmm(x[:, : 3 * n], y, from_y).chunk(3, dim=-1)
        length_z, length_y = step_size * gate_z.sigmoid(), step_size * gate_y.sigmoid()
        z = (1 - length_z) * z + length_z * candidate_z.tanh()
        return (1 - length_y) * y + length_y * torch.addmm(x[:, 3 * n :], z, from_z).tanh(), z

    return step


@operation(rows=2)
def lipschitz(weight: Tensor, step_size: float) -> Step:
    """h_t = h_{t-1} + eps (A h_{t-1} + tanh(W h_{t-1} + x_t)); the weight is A above W."""

    def step(x: Tensor, h: Tensor) -> State:
        linear, mixed = (h @ weight.T).chunk(2, dim=-1)
        return (h + step_size * (linear + (mixed + x).tanh()),)

    return step
