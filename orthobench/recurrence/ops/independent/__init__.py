"""The recurrence of independent units with an activation, as in IndRNN."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from orthobench.recurrence.call import IDENTITY, RELU, TANH, Activation, Form, Kind, State, Step
from orthobench.recurrence.operation import operation


def _check_independent(n: int, activation: Activation) -> str | None:
    if activation.kind not in (Kind.IDENTITY, Kind.RELU, Kind.TANH):
        return f"the activation should be identity, relu or tanh, not {activation.kind}"
    return None


def _forms(n: int) -> Iterator[Form]:
    for activation in (IDENTITY, RELU, TANH):
        yield Form({"activation": activation})


@operation(diagonal=True, check=_check_independent, forms=_forms)
def independent_recurrence(weight: Tensor, activation: Activation = RELU) -> Step:
    """h_t = act(x_t + a_t o h_{t-1}) of independent units, such as IndRNN's; x includes the bias.

    The weight is a `[n]`, the same at every step and row, or `[T, B, n]`.
    """

    def step(x: Tensor, h: Tensor) -> State:
        return (activation(x + weight * h),)

    return step
