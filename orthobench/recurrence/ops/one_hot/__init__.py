"""PD-SSM's recurrence of complex units: each reads one unit of the state, which the inputs choose."""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.recurrence import plain_tensors
from orthobench.recurrence.call import State, Step
from orthobench.recurrence.operation import operation

_MOST = 1 << 24  # integers up to this are float32 numbers


def _check_dictionary(n: int, dictionary: Tensor, transitions: Tensor) -> str | None:
    if dictionary.dim() != 3 or dictionary.shape[1:] != (n // 2, n // 2) or n % 2:
        return f"dictionary {list(dictionary.shape)} should be [matrices, {n // 2}, {n // 2}]"
    if transitions.dim() != 2 or not transitions.shape[0] or transitions.shape[1] != len(dictionary) + n:
        return f"transitions {list(transitions.shape)} should be [transitions, {len(dictionary) + n}]"
    count = transitions.shape[0]
    return f"{count} transitions are more than {_MOST}" if count > _MOST else None


def _widths(n: int, dictionary: Tensor, transitions: Tensor) -> tuple[int, int]:
    return n, 1


def _state(x: Tensor, weight: Tensor, h: Tensor, dictionary: Tensor, transitions: Tensor) -> Tensor:
    """Return the output, which is the state; as it is declared, a long sequence's matrices are not all kept."""
    return h


def distinct_inputs(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs without repetitions `[U, 1, m]`, and the place of each step's among them `[T, B, 1]`.

    Where there are few repetitions, or where the gradient of each step's input is needed, all inputs are returned.

    Args:
        inputs: `[T, B, m]`.
    """
    rows = inputs.flatten(0, 1)
    if (
        inputs.is_cpu
        and not inputs.requires_grad
        and plain_tensors.are_plain((inputs,))
        and not plain_tensors.in_torch()
    ):
        # Rows with the same product are the same ones in all but rare cases, which the comparison finds. Sorting whole
        # rows would take ten times as long.
        by_feature = torch.linspace(1, 2, rows.shape[1], dtype=rows.dtype, device=rows.device).sqrt()
        keys, places = (rows @ by_feature).unique(return_inverse=True)
        if 2 * len(keys) <= len(rows):
            distinct = rows.new_empty(len(keys), rows.shape[1]).index_copy_(0, places, rows)
            if distinct[places].equal(rows):
                return distinct[:, None], places.to(inputs.dtype).view(*inputs.shape[:2], 1)
    places = torch.arange(rows.shape[0], dtype=inputs.dtype, device=inputs.device)  # len would fix it in an export
    return rows[:, None], places.view(*inputs.shape[:2], 1)


@operation(check=_check_dictionary, widths=_widths, output=_state, forms=None)
def one_hot_recurrence(weight: Tensor, dictionary: Tensor, transitions: Tensor) -> Step:
    """h_t = d_t o (P_t h_{t-1}) + x_t of N complex units, where each row of P_t has a single 1.

    The 1 of a row is at the largest entry of the row of M_t = sum_k s_k A_k. The gradient is that of the softmax of
    each row of M_t in its place (straight-through). A row of `transitions` has s `[matrices]` and then d, the parts of
    a unit next to each other like those of x and h `[2N]`. The weight of a step is the number of its row, because steps
    with the same transition share the cost of it. A is `dictionary` `[matrices, N, N]`.

    Terzić, Menet, Hersche, Hofmann, Rahimi, "Structured Sparse Transition Matrices to Enable State Tracking in
    State-Space Models", NeurIPS 2025.
    """
    count = len(dictionary)
    selection, factors = transitions.index_select(0, weight[:, 0].long()).tensor_split((count,), dim=-1)
    real, imaginary = factors.unflatten(-1, (-1, 2)).unbind(-1)

    def step(x: Tensor, h: Tensor) -> State:
        soft = (selection @ dictionary.flatten(1)).unflatten(-1, dictionary.shape[1:]).softmax(-1)
        hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
        re, im = (((hard - soft).detach() + soft) @ h.unflatten(-1, (-1, 2))).unbind(-1)
        return (torch.stack((real * re - imaginary * im, real * im + imaginary * re), dim=-1).flatten(-2) + x,)

    return step
