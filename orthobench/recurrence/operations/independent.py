"""The recurrences of independent units: a unit's next state depends on its own state alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from orthobench.recurrence.activations import RELU, Activation, Kind
from orthobench.recurrence.call import State
from orthobench.recurrence.operation import Step, operation


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
