"""The comparison of the C kernel of PD-SSM's recurrence with the reference."""

from __future__ import annotations

from typing import Any

import torch

from orthobench.recurrence.cpu import agreement
from orthobench.recurrence.kernel_case import normal
from orthobench.recurrence.ops.one_hot import one_hot_recurrence


def one_hot_recurrence_agrees() -> bool:
    """Return whether the kernel agrees, with whole and partial vectors, and transitions of one step or of many."""
    steps, names, no_parameters = 12, ("dictionary", "transitions"), dict[str, Any]()
    for units, matrices, batch, distinct in ((18, 3, 6, 72), (32, 1, 3, 36), (21, 5, 4, 5)):
        x, start = normal(steps, batch, 2 * units, seed=0), normal(batch, 2 * units, seed=1)
        tensors = normal(matrices, units, units, seed=3), normal(distinct, matrices + 2 * units, seed=2) / 2
        places = (torch.arange(steps * batch, device="cpu") % distinct).double().view(steps, batch, 1)
        form = one_hot_recurrence, no_parameters, names, [x, places, start, *tensors]
        if not agreement.form_agrees(*form) or not agreement.few_inputs_agree(*form):
            return False
    return True
