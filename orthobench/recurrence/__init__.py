"""Recurrence through time: the one hot operation.

Notation, here and in every back end: T steps, B sequences, n hidden features; tensors through time are `[T, B, n]`;
weights map columns, so a step is z_t = x_t + h_{t-1} W^T in rows. `reference` is the definition; this page is the
interface. Inputs x_t carry the input projection and its bias.
"""

from __future__ import annotations

from torch import Tensor

from orthobench.recurrence import dispatch, reference
from orthobench.recurrence.activations import IDENTITY, LEAKY_RELU, MODRELU, RELU, TANH, Activation, Kind
from orthobench.recurrence.applied import Multiply, applied_recurrence
from orthobench.recurrence.diagonal import diagonal_recurrence
from orthobench.recurrence.dispatch import BACKENDS, last_used, set_backend, use_backend
from orthobench.recurrence.projection import project
from orthobench.recurrence.trace import GradientTrace

__all__ = [
    "BACKENDS",
    "IDENTITY",
    "LEAKY_RELU",
    "MODRELU",
    "RELU",
    "TANH",
    "Activation",
    "GradientTrace",
    "Kind",
    "Multiply",
    "applied_recurrence",
    "cornn",
    "diagonal_recurrence",
    "gated_recurrence",
    "gru",
    "last_used",
    "lem",
    "lipschitz",
    "lstm",
    "project",
    "recurrence",
    "set_backend",
    "use_backend",
]


def recurrence(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    activation: Activation = TANH,
    bias: Tensor | None = None,
    step_size: float | None = None,
    trace: GradientTrace | None = None,
    last: bool = False,
    backend: str | None = None,
) -> Tensor:
    """h_t = act(x_t + W h_{t-1}; b), or with a step size eps the Euler form h_t = h_{t-1} + eps act(...).

    Args:
        x: projected inputs `[T, B, n]`, T and B at least 1.
        weight: W `[n, n]`.
        h0: `[B, n]`.
        activation: what follows the sum.
        bias: the activation's vector b, `[activation.bias_size(n)]`.
        step_size: eps of the Euler form (AntisymmetricRNN).
        trace: receives ||dL/dh_t|| in the backward pass.
        last: return h_T alone. Faster than taking it from all states, whose gradient would be nearly all zeros.
        backend: one of `BACKENDS` or "auto"; by default what `use_backend` or `set_backend` says, else "auto".

    Returns:
        All states h_1..h_T, `[T, B, n]`, or with `last` h_T, `[B, n]`.

    Raises:
        ValueError: shapes, types or devices that do not fit, or a back end that cannot serve the call.
    """
    n = _check(x, weight, h0, bias, gates=1, name="recurrence")
    if activation.is_complex and n % 2:
        raise ValueError(f"recurrence: a complex activation needs an even number of real features, not {n}")
    if bias is not None and bias.shape != (activation.bias_size(n),):
        raise ValueError(f"recurrence: bias {list(bias.shape)} should be [{activation.bias_size(n)}]")
    arguments = (h0, activation, bias, step_size, trace)
    states: Tensor = dispatch.call("recurrence", backend, last, x, weight, *arguments, activation=activation)
    return states


def gated_recurrence(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    step_size: float,
    trace: GradientTrace | None = None,
    last: bool = False,
    backend: str | None = None,
) -> Tensor:
    """h_t = h_{t-1} + eps sigmoid(W h_{t-1} + g_t) o tanh(W h_{t-1} + x_t): the gated AntisymmetricRNN.

    x is `[T, B, 2n]`, the candidate's inputs x_t first and the gate's g_t after them; the rest as in `recurrence`.
    """
    _check(x, weight, h0, gates=2, rows=1, name="gated_recurrence")
    states: Tensor = dispatch.call("gated_recurrence", backend, last, x, weight, h0, step_size, trace)
    return states


def lstm(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    c0: Tensor,
    trace: GradientTrace | None = None,
    last: bool = False,
    backend: str | None = None,
    cell_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """LSTM without peepholes: c_t = s(f) c_{t-1} + s(i) tanh(g), h_t = s(o) tanh(c_t).

    x is `[T, B, 4n]` and W `[4n, n]`, gates in the order i, f, g, o (torch's). Returns h and c, each `[T, B, n]`;
    a trace receives both states. With P = `cell_weight` `[n, n]`, h_t = s(o + P c_t) tanh(c_t), by the definition
    alone: no other back end has it.
    """
    _check(x, weight, h0, c0, gates=4, name="lstm")
    _check_second("lstm", h0, c0, "c0")
    if cell_weight is not None:
        h, c = reference.lstm(x, weight, h0, c0, trace, cell_weight)
        return (h[-1], c[-1]) if last else (h, c)
    h, c = dispatch.call("lstm", backend, last, x, weight, h0, c0, trace)
    return h, c


def gru(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    candidate_bias: Tensor | None = None,
    reset_after: bool = False,
    activation: Activation = TANH,
    activation_bias: Tensor | None = None,
    trace: GradientTrace | None = None,
    last: bool = False,
    backend: str | None = None,
) -> Tensor:
    """GRU: h_t = z h_{t-1} + (1 - z) tanh(x^g_t + W_g (r h_{t-1})), gates r, z, g in this order (torch's).

    x is `[T, B, 3n]`, W `[3n, n]`. With `reset_after` the last term is r (W_g h_{t-1} + b), b = `candidate_bias` `[n]`,
    as cuDNN has it; without it b does not exist. In the place of tanh the activation may be modReLU (GORU), with
    `activation_bias` `[n]`.
    """
    n = _check(x, weight, h0, candidate_bias, activation_bias, gates=3, name="gru")
    if candidate_bias is not None and (not reset_after or candidate_bias.shape != (n,)):
        raise ValueError(f"gru: candidate_bias should be [{n}], and needs reset_after")
    if activation.kind not in (Kind.TANH, Kind.MODRELU):
        raise ValueError(f"gru: the activation should be tanh or modrelu, not {activation.kind}")
    if activation_bias is not None and (activation.kind is Kind.TANH or activation_bias.shape != (n,)):
        raise ValueError(f"gru: activation_bias should be [{n}], and needs modrelu; tanh's is part of x")
    arguments = (h0, candidate_bias, reset_after, activation, activation_bias, trace)
    states: Tensor = dispatch.call("gru", backend, last, x, weight, *arguments, activation=activation)
    return states


def cornn(
    x: Tensor,
    weight: Tensor,
    y0: Tensor,
    z0: Tensor,
    step_size: float,
    frequency: float,
    damping: float,
    trace: GradientTrace | None = None,
    last: bool = False,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Coupled oscillators: z_t = z_{t-1} + dt (tanh(x_t + W [y_{t-1}; z_{t-1}]) - gamma y_{t-1} - eps z_{t-1}),
    y_t = y_{t-1} + dt z_t.

    W is `[n, 2n]`; dt, gamma and eps are `step_size`, `frequency` and `damping`. Returns y and z, each `[T, B, n]`; a
    trace receives both, y as "h"; the rest as in `recurrence`.
    """
    _check(x, weight, y0, z0, gates=1, sources=2, name="cornn", state="y0")
    _check_second("cornn", y0, z0)
    y, z = dispatch.call("cornn", backend, last, x, weight, y0, z0, step_size, frequency, damping, trace)
    return y, z


def lem(
    x: Tensor,
    weight: Tensor,
    y0: Tensor,
    z0: Tensor,
    step_size: float,
    trace: GradientTrace | None = None,
    last: bool = False,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Two states with learnt step lengths, a = dt s(gate): z_t = (1 - a) z_{t-1} + a tanh(.), y_t likewise.

    x is `[T, B, 4n]` and W `[4n, n]`, in the order z's gate and candidate, y's gate and candidate. The last of these
    reads z_t, the others y_{t-1}. Returns y and z, each `[T, B, n]`; a trace receives both, y as "h".
    """
    _check(x, weight, y0, z0, gates=4, name="lem", state="y0")
    _check_second("lem", y0, z0)
    y, z = dispatch.call("lem", backend, last, x, weight, y0, z0, step_size, trace)
    return y, z


def lipschitz(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    step_size: float,
    trace: GradientTrace | None = None,
    last: bool = False,
    backend: str | None = None,
) -> Tensor:
    """h_t = h_{t-1} + eps (A h_{t-1} + tanh(W h_{t-1} + x_t)); the weight is `[2n, n]`, A above W.

    The rest as in `recurrence`.
    """
    _check(x, weight, h0, gates=1, rows=2, name="lipschitz")
    states: Tensor = dispatch.call("lipschitz", backend, last, x, weight, h0, step_size, trace)
    return states


def _check(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    *extras: Tensor | None,
    gates: int,
    name: str,
    rows: int | None = None,
    sources: int = 1,
    state: str = "h0",
) -> int:
    if x.dim() != 3 or 0 in x.shape:
        raise ValueError(f"{name}: x {list(x.shape)} should be [time, batch, features], none of them 0")
    n = h0.shape[-1]
    expected = {
        "x": (x.shape, (*x.shape[:2], gates * n)),
        "weight": (weight.shape, ((rows or gates) * n, sources * n)),
        state: (h0.shape, (x.shape[1], n)),
    }
    for what, (actual, wanted) in expected.items():
        if tuple(actual) != wanted:
            raise ValueError(f"{name}: {what} {list(actual)} should be {list(wanted)}")
    for tensor in (weight, h0, *extras):
        if tensor is not None and (tensor.dtype, tensor.device) != (x.dtype, x.device):
            raise ValueError(f"{name}: {tensor.dtype} on {tensor.device} beside x, {x.dtype} on {x.device}")
    return n


def _check_second(name: str, first: Tensor, second: Tensor, state: str = "z0") -> None:
    if second.shape != first.shape:
        raise ValueError(f"{name}: {state} {list(second.shape)} should be {list(first.shape)}")
