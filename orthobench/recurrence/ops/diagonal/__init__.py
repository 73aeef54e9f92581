"""The linear recurrence of independent units."""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.recurrence.call import Form, State, Step
from orthobench.recurrence.operation import operation


def _check_pairs(n: int, is_complex: bool) -> str | None:
    return f"complex units need an even number of real features, not {n}" if is_complex and n % 2 else None


@operation(diagonal=True, check=_check_pairs, forms=lambda n: [Form(), Form({"is_complex": True})])
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
