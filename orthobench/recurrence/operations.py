"""The recurrences, each declared once: this is their definition.

T steps, B sequences, n hidden features. Tensors through time are `[T, B, n]`. Weights map columns, so in rows a step
is z_t = x_t + h_{t-1} W^T. The inputs x_t include the input projection and its bias. See `Operation` for the call.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import linear, logsigmoid, softplus

from orthobench.recurrence.activations import RELU, TANH, Activation, Kind
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


_LARGEST_EXPONENT = 80.0
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
        keep, write = (faded - m).clamp(max=_LARGEST_EXPONENT).exp(), (i - m).exp()
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


def _check_pairs(n: int, is_complex: bool) -> str | None:
    return f"complex units need an even number of real features, not {n}" if is_complex and n % 2 else None


@operation(diagonal=True, check=_check_pairs)
def diagonal_recurrence(weight: Tensor, is_complex: bool = False) -> Step:
    """h_t = a_t o h_{t-1} + x_t of independent units: a linear recurrence, such as LRU's.

    The weight is a `[n]`, the same at every step and row, or `[T, B, n]`. With `is_complex` unit j is the features 2j
    (real part) and 2j+1 (imaginary part) of the inputs, the weight and the state.
    """
    if not is_complex:
        return lambda x, h: (weight * h + x,)
    real, imaginary = weight.unflatten(-1, (-1, 2)).unbind(-1)

    def step(x: Tensor, h: Tensor) -> State:
        re, im = h.unflatten(-1, (-1, 2)).unbind(-1)
        product = torch.stack((real * re - imaginary * im, real * im + imaginary * re), dim=-1)
        return (product.flatten(-2) + x,)

    return step


def _check_independent(n: int, activation: Activation) -> str | None:
    if activation.kind not in (Kind.IDENTITY, Kind.RELU, Kind.TANH):
        return f"the activation should be identity, relu or tanh, not {activation.kind}"
    return None


@operation(diagonal=True, check=_check_independent)
def independent_recurrence(weight: Tensor, activation: Activation = RELU) -> Step:
    """h_t = act(x_t + a_t o h_{t-1}) of independent units, such as IndRNN's; x includes the bias.

    The weight is a `[n]`, the same at every step and row, or `[T, B, n]`.
    """

    def step(x: Tensor, h: Tensor) -> State:
        return (activation(x + weight * h),)

    return step


def minimal_terms(gates: tuple[Tensor, ...], positive: bool) -> tuple[Tensor, Tensor]:
    """Return a and g of h_t = a o h_{t-1} + (1 - a) o g. The blocks are z, c of minGRU, or f, i, c of minLSTM."""
    *first, candidate = gates
    if positive:
        candidate = torch.where(candidate >= 0, candidate + 0.5, candidate.sigmoid())
    exponent = -first[0] if len(first) == 1 else logsigmoid(first[0]) - logsigmoid(first[1])
    return exponent.sigmoid(), candidate


@operation(gates=2, diagonal=True)
def min_gru(weight: Tensor, positive: bool = True) -> Step:
    """minGRU: h_t = (1 - z_t) o h_{t-1} + z_t o g(c_t), z = s(.), of independent units.

    The weight is the bias `[2n]` of the inputs' blocks z, c. With `positive` g(c) is c + 1/2 above 0 and s(c) below;
    else it is c.
    """

    def step(x: Tensor, h: Tensor) -> State:
        a, g = minimal_terms((x + weight).chunk(2, dim=-1), positive)
        return (a * h + (1 - a) * g,)

    return step


@operation(gates=3, diagonal=True)
def min_lstm(weight: Tensor, positive: bool = True) -> Step:
    """minLSTM: h_t = f' o h_{t-1} + i' o g(c_t), f' = s(f) / (s(f) + s(i)) and i' = 1 - f', of independent units.

    The weight is the bias `[3n]` of the inputs' blocks f, i, c. With `positive` g is as in `min_gru`.
    """

    def step(x: Tensor, h: Tensor) -> State:
        a, g = minimal_terms((x + weight).chunk(3, dim=-1), positive)
        return (a * h + (1 - a) * g,)

    return step


@operation(states=("y", "z"), diagonal=True, rows=4)
def oscillators(weight: Tensor) -> Step:
    """z_t = a z_{t-1} + b y_{t-1} + c x_t, y_t = y_{t-1} + d z_t of independent units: LinOSS.

    The weight is a, b, c, d one after another, `[4n]`. A step's 2 x 2 matrix of (y, z) has the determinant a.
    """
    a, b, c, d = weight.chunk(4)

    def step(x: Tensor, y: Tensor, z: Tensor) -> State:
        z = a * z + b * y + c * x
        return y + d * z, z

    return step


def _check_heads(
    n: int, heads: int, key_size: int, factors: int, gated: bool, epsilon: float | None, reads: bool
) -> str | None:
    if min(heads, key_size, factors) < 1 or n % (heads * key_size):
        return f"a state of {n} features is not {heads} matrices with {key_size} rows, and {factors} should be positive"
    return None


def _widths(
    n: int, heads: int, key_size: int, factors: int, gated: bool, epsilon: float | None, reads: bool
) -> tuple[int, int]:
    return heads * key_size * (reads + factors) + factors * n // key_size, heads * (factors + gated)


def unit_heads(
    x: Tensor, heads: int, key_size: int, factors: int, epsilon: float | None, reads: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the query `[B, heads, k]`, the keys `[B, factors, heads, k]` and the values `[B, factors, heads, v]`.

    Without `reads` the query is `[B, 0, k]`.
    """
    width = heads * key_size
    read = reads * width
    q, k, v = x.split((read, factors * width, x.shape[-1] - read - factors * width), dim=-1)
    q, k = q.unflatten(-1, (reads * heads, key_size)), k.unflatten(-1, (factors, heads, -1))
    return unit(q, epsilon), unit(k, epsilon), v.unflatten(-1, (factors, heads, -1))


def unit(vectors: Tensor, epsilon: float | None) -> Tensor:
    """Return vectors divided by (|.|^2 + epsilon)^(1/2), or unchanged without epsilon."""
    return vectors if epsilon is None else vectors * (vectors.square().sum(-1, True) + epsilon).rsqrt()


def read_memory(queries: Tensor, memory: Tensor) -> Tensor:
    """Return q^T S of each head `[B, heads * v]`, from queries `[B, heads, k]` and the state `[B, heads * k * v]`."""
    return torch.einsum("bhk,bhkv->bhv", queries, memory.unflatten(-1, (*queries.shape[1:], -1))).flatten(1)


def _query(
    x: Tensor,
    weight: Tensor,
    memory: Tensor,
    heads: int,
    key_size: int,
    factors: int,
    gated: bool,
    epsilon: float | None,
    reads: bool,
) -> Tensor:
    if not reads:
        return x[..., :0]
    return read_memory(unit_heads(x, heads, key_size, factors, epsilon)[0], memory)


@operation(states=("S",), check=_check_heads, widths=_widths, output=_query)
def delta_rule(
    weight: Tensor,
    heads: int,
    key_size: int,
    factors: int = 1,
    gated: bool = False,
    epsilon: float | None = None,
    reads: bool = True,
) -> Step:
    """A memory for each head that the delta rule corrects: with r = `factors` keys k_j and values v_j a step,
    S_t = (I - beta_r k_r k_r^T) ... (I - beta_1 k_1 k_1^T) e^g S_{t-1} + what the values add, read as y_t = S_t^T q_t.

    That is S <- e^g S, then S <- S + beta_j k_j (v_j - S^T k_j)^T for j = 1 ... r. S is `[heads, key_size, values]`.
    x has the query, r keys and r values, `[heads, features]` each. The weight has r betas, `[heads]` each, and with
    `gated` also the logarithm g of the decay. With `epsilon`, query and keys are divided by (|.|^2 + epsilon)^(1/2).
    Without `reads`, x has no query, and the outputs have 0 features: the final memory is the result.

    Yang, Wang, Zhang, Shen, Kim, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length",
    NeurIPS 2024. With r > 1 it is DeltaProduct (Siems et al., NeurIPS 2025).
    """
    betas = weight[..., : factors * heads].unflatten(-1, (factors, heads))

    def step(x: Tensor, memory: Tensor) -> State:
        _, keys, values = unit_heads(x, heads, key_size, factors, epsilon, reads)
        memory = memory.unflatten(-1, (heads, key_size, -1))
        if gated:
            memory = weight[..., factors * heads :, None, None].exp() * memory
        for k, v, beta in zip(keys.unbind(1), values.unbind(1), betas.unbind(1), strict=True):
            error = v - torch.einsum("bhk,bhkv->bhv", k, memory)
            memory = memory + (beta[..., None] * k)[..., None] * error[..., None, :]
        return (memory.flatten(1),)

    return step


def _check_selection(
    n: int, rates: Tensor, step_weight: Tensor, step_bias: Tensor, state_size: int, negative: bool, reads: bool
) -> str | None:
    if state_size < 1 or n % state_size:
        return f"a state of {n} features is not {state_size} units of each feature"
    width = n // state_size
    expected = {"rates": (rates, (n,)), "step_bias": (step_bias, (width,))}
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            return f"{name} {list(tensor.shape)} should be {list(shape)}"
    if step_weight.dim() != 2 or len(step_weight) != width or not step_weight.shape[1]:
        return f"step_weight {list(step_weight.shape)} should be [{width}, rank]"
    return None


def _selection_widths(
    n: int, rates: Tensor, step_weight: Tensor, step_bias: Tensor, state_size: int, negative: bool, reads: bool
) -> tuple[int, int]:
    return n // state_size, step_weight.shape[1] + 2 * state_size


def selected(
    coefficients: Tensor,
    rates: Tensor,
    step_weight: Tensor,
    step_bias: Tensor,
    state_size: int,
    negative: bool,
    reads: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return a `[..., N, D]` and Delta `[..., 1, D]` of `selective_scan`, from coefficients `[..., rank + 2N]`."""
    rank = step_weight.shape[1]
    delta = softplus(linear(coefficients[..., :rank], step_weight, step_bias)).unsqueeze(-2)
    a = (delta * rates.unflatten(0, (state_size, -1))).exp()
    return (2 * a - 1 if negative else a), delta


def _read_selected(
    x: Tensor, weight: Tensor, h: Tensor, state_size: int, reads: bool, **others: Tensor | bool
) -> Tensor:
    if not reads:
        return x[..., :0]
    y: Tensor = (h.unflatten(-1, (state_size, -1)) * weight[..., -state_size:, None]).sum(-2)
    return y


@operation(check=_check_selection, widths=_selection_widths, output=_read_selected)
def selective_scan(
    weight: Tensor,
    rates: Tensor,
    step_weight: Tensor,
    step_bias: Tensor,
    state_size: int,
    negative: bool = False,
    reads: bool = True,
) -> Step:
    """h_t = a_t o h_{t-1} + Delta_t B_t x_t, read as y_t = C_t h_t: Mamba's selective scan (S6).

    Each of the D features of x has N = `state_size` units. A step's weight is rank numbers r_t, then B_t and C_t `[N]`.
    The weights may also be P x_t of a matrix P `[rank + 2N, D]`, which the kernel for the CPU makes by itself.
    Without `reads` the outputs have 0 features: the final state is the result.
    Delta_t is softplus(W r_t + b) `[D]`. W is `step_weight` `[D, rank]`, and b is `step_bias` `[D]`. The factor a_t is
    exp(Delta_t A), or 2 exp(Delta_t A) - 1 with `negative`. A is `rates` `[N * D]`. The state is `[N * D]` too, the
    first unit of every feature first.

    A. Gu, T. Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", COLM 2024, algorithm 2.
    """
    a, delta = selected(weight, rates, step_weight, step_bias, state_size, negative)
    b = weight[..., -2 * state_size : -state_size, None]

    def step(x: Tensor, h: Tensor) -> State:
        return (a.flatten(-2) * h + (b * (delta * x.unsqueeze(-2))).flatten(-2),)

    return step


def memory_size(n: int, heads: int) -> int:
    """Return d of a state of n features, which are C `[d, d]` and n `[d]` of each head, and m of each."""
    return math.isqrt(max(0, n // max(1, heads) - 1))


def _check_memories(n: int, heads: int, exponential_forget: bool) -> str | None:
    size = memory_size(n, heads)
    if heads < 1 or size < 1 or n != heads * (size * (size + 1) + 1):
        return f"a state of {n} features is not C, n and m of {heads} heads"
    return None


def _memory_widths(n: int, heads: int, exponential_forget: bool) -> tuple[int, int]:
    return 4 * heads * memory_size(n, heads), 2 * heads


def split_memories(state: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Return [C; n] `[B, heads, d + 1, d]` and m `[B, heads]` of a state `[B, features]`."""
    memory, m = state.split((state.shape[-1] - heads, heads), dim=-1)
    size = memory_size(state.shape[-1], heads)
    return memory.unflatten(-1, (heads, size + 1, size)), m


def normalised(read: Tensor, m: Tensor) -> Tensor:
    """Return C q / max(|n^T q|, 1) from [C q; n^T q] `[..., d + 1]`, divided by exp(m), and m `[..., 1]`."""
    values, total = read[..., :-1], read[..., -1:]
    return values / torch.maximum(total.abs(), (-m).clamp(max=_LARGEST_EXPONENT).exp())


def _read_memories(x: Tensor, weight: Tensor, state: Tensor, heads: int, exponential_forget: bool) -> Tensor:
    memory, m = split_memories(state, heads)
    q, _, _, o = x.unflatten(-1, (4, heads, -1)).unbind(1)
    h: Tensor = o.sigmoid() * normalised((memory @ q[..., None]).squeeze(-1), m[..., None])
    return h.flatten(1)


@operation(states=("C",), check=_check_memories, widths=_memory_widths, output=_read_memories)
def mlstm(weight: Tensor, heads: int, exponential_forget: bool = False) -> Step:
    """mLSTM: C_t = f' C_{t-1} + i' v_t k_t^T, n_t = f' n_{t-1} + i' k_t, h_t = s(o_t) C_t q_t / max(|n_t^T q_t|, 1).

    x has q, sqrt(d) k, v and o, `[heads, d]` each. The weight has i and f of each step, `[heads]` each. i' is exp(i),
    and f' is s(f), or exp(f) with `exponential_forget`. The state has C and n of each head, `[heads, d + 1, d]`, then m
    `[heads]`. C and n are divided by exp(m_t), m_t = max(log f' + m_{t-1}, i_t), and 1 becomes exp(-m_t).
    """
    i, f = weight.chunk(2, dim=-1)
    log_f = f if exponential_forget else logsigmoid(f)

    def step(x: Tensor, state: Tensor) -> State:
        memory, m = split_memories(state, heads)
        _, k, v, _ = x.unflatten(-1, (4, heads, -1)).unbind(1)
        keys = k / math.sqrt(k.shape[-1])
        faded = log_f + m
        m = torch.maximum(faded, i)
        keep, write = ((each - m).exp()[..., None, None] for each in (faded, i))
        values = torch.cat((v, torch.ones_like(v[..., :1])), dim=-1)
        memory = keep * memory + write * (values[..., None] * keys[..., None, :])
        return (torch.cat((memory.flatten(1), m), dim=-1),)

    return step
