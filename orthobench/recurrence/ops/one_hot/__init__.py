"""PD-SSM's recurrence of complex units: each reads one unit of the state, which the inputs choose."""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.recurrence.call import State, Step
from orthobench.recurrence.operation import operation


def _check_dictionary(n: int, dictionary: Tensor) -> str | None:
    if dictionary.dim() != 3 or dictionary.shape[1:] != (n // 2, n // 2) or n % 2:
        return f"dictionary {list(dictionary.shape)} should be [matrices, {n // 2}, {n // 2}]"
    return None


def _widths(n: int, dictionary: Tensor) -> tuple[int, int]:
    return n, len(dictionary) + n


def _state(x: Tensor, weight: Tensor, h: Tensor, dictionary: Tensor) -> Tensor:
    """Return the output, which is the state; as it is declared, a long sequence's matrices are not all kept."""
    return h


@operation(check=_check_dictionary, widths=_widths, output=_state, forms=None)
def one_hot_recurrence(weight: Tensor, dictionary: Tensor) -> Step:
    """h_t = d_t o (P_t h_{t-1}) + x_t of N complex units, where each row of P_t has a single 1.

    The 1 of a row is at the largest entry of the row of M_t = sum_k s_k A_k. The gradient is that of the softmax of
    each row of M_t in its place (straight-through). The weight has s `[matrices]` and then d, the parts of a unit next
    to each other like those of x and h `[2N]`. A is `dictionary` `[matrices, N, N]`.

    Terzić, Menet, Hersche, Hofmann, Rahimi, "Structured Sparse Transition Matrices to Enable State Tracking in
    State-Space Models", NeurIPS 2025.
    """
    count = len(dictionary)
    selection, factors = weight.split((count, weight.shape[-1] - count), dim=-1)
    real, imaginary = factors.unflatten(-1, (-1, 2)).unbind(-1)

    def step(x: Tensor, h: Tensor) -> State:
        soft = (selection @ dictionary.flatten(1)).unflatten(-1, dictionary.shape[1:]).softmax(-1)
        hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
        re, im = (((hard - soft).detach() + soft) @ h.unflatten(-1, (-1, 2))).unbind(-1)
        return (torch.stack((real * re - imaginary * im, real * im + imaginary * re), dim=-1).flatten(-2) + x,)

    return step
