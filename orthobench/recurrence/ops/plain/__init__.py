"""Recurrences with one state and one product W h per step: plain, gated and Lipschitz.

W maps columns, so a step on rows is z_t = x_t + h_{t-1} W^T. The inputs x_t include the input projection and its bias.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from orthobench.recurrence.call import LEAKY_RELU, TANH, Activation, Form, Kind, State, Step, Weight
from orthobench.recurrence.operation import operation


def check_activation(n: int, activation: Activation, bias: Tensor | None, step_size: float | None = None) -> str | None:
    """Return the reason why n and the bias do not fit the activation, or None."""
    if activation.is_complex and n % 2:
        return f"a complex activation needs an even number of real features, not {n}"
    if bias is not None and bias.shape != (activation.bias_size(n),):
        return f"bias {list(bias.shape)} should be [{activation.bias_size(n)}]"
    return None


def _forms(n: int) -> Iterator[Form]:
    for kind in Kind:
        activation = LEAKY_RELU if kind is Kind.LEAKY_RELU else Activation(kind, epsilon=0.01)
        for step_size in (None, 0.1):
            for vectors in ({}, {"bias": activation.bias_size(n)}):
                yield Form({"activation": activation, "step_size": step_size}, vectors)


@operation(check=check_activation, forms=_forms)
def recurrence(
    weight: Weight, activation: Activation = TANH, bias: Tensor | None = None, step_size: float | None = None
) -> Step:
    """h_t = act(x_t + W h_{t-1}; b), or with a step size eps the Euler form h_t = h_{t-1} + eps act(...).

    W is a matrix `[n, n]`, or a function that applies it if its structure makes this cheaper than forming the matrix.
    `bias` is the activation's vector b, `[activation.bias_size(n)]`.
    """

    def step(x: Tensor, h: Tensor) -> State:
        z = torch.addmm(x, h, weight.T) if isinstance(weight, Tensor) else x + weight(h)
        update = activation(z, bias)
        return (update if step_size is None else h + step_size * update,)

    return step


@operation(gates=2, rows=1, forms=lambda n: [Form({"step_size": 0.3})])
def gated_recurrence(weight: Tensor, step_size: float) -> Step:
    """h_t = h_{t-1} + eps sigmoid(W h_{t-1} + g_t) o tanh(W h_{t-1} + x_t): the gated AntisymmetricRNN.

    x is `[T, B, 2n]`: the candidate's inputs x_t, then the gate's g_t.
    """

    def step(x: Tensor, h: Tensor) -> State:
        candidate, gate = x.chunk(2, dim=-1)
        mixed = h @ weight.T
        return (h + step_size * (mixed + gate).sigmoid() * (mixed + candidate).tanh(),)

    return step


@operation(rows=2, forms=lambda n: [Form({"step_size": 0.3})])
def lipschitz(weight: Tensor, step_size: float) -> Step:
    """h_t = h_{t-1} + eps (A h_{t-1} + tanh(W h_{t-1} + x_t)); the weight is A above W."""

    def step(x: Tensor, h: Tensor) -> State:
        linear, mixed = (h @ weight.T).chunk(2, dim=-1)
        return (h + step_size * (linear + (mixed + x).tanh()),)

    return step
