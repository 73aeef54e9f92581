"""The comparison of the C kernels of the decaying memories with the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cpu import agreement
from orthobench.recurrence.kernel_case import normal
from orthobench.recurrence.ops.memories import decaying_memory, rwkv7

_FORMS = ((5, 18, True), (35, 16, False), (3, 70, True), (32, 33, False))  # keys, values, whether outputs are read


def decaying_memory_agrees() -> bool:
    """Return whether the kernels of Mamba-3's memories agree, with whole and partial vectors."""
    for parameters, read, values, decays, start in _examples():
        form = decaying_memory, parameters, (), [values, torch.cat((decays, read), dim=-1), start]
        if not agreement.form_agrees(*form) or not (parameters["reads"] or agreement.few_inputs_agree(*form)):
            return False
    return True


def rwkv7_agrees() -> bool:
    """Return whether the kernels of RWKV-7's memories agree, with whole and partial vectors."""
    low = 18
    names = ("rate_weight", "decay_bias", "rate_bias", "key_scale", "key_rate")
    for parameters, read, values, _, start in _examples():
        features = parameters["heads"] * parameters["key_size"]
        x = torch.cat((read, values, normal(*read.shape[:2], 2 * low, seed=3)), dim=-1)
        decay_weight, rate_weight = (normal(features, low, seed=seed) / low**0.5 for seed in (4, 5))
        vectors = [normal(features, seed=seed) for seed in (6, 7, 8, 9)]
        arguments = [x, decay_weight, start, rate_weight, *vectors]
        # Without reading, about half of the keys are shorter than epsilon, so that both branches are compared.
        parameters = {**parameters, "epsilon": 1e-12 if parameters["reads"] else 1.0}
        if not agreement.form_agrees(rwkv7, parameters, names, arguments):
            return False
    return agreement.few_inputs_agree(rwkv7, parameters, names, arguments, has_first=True)


def _examples() -> Iterator[tuple[dict[str, Any], Tensor, Tensor, Tensor, Tensor]]:
    """Yield parameters, queries with keys, values, decays and a start; 34 steps are several chunks."""
    heads, batch, steps = 2, 3, 34
    for keys, values, reads in _FORMS:
        x = normal(steps, batch, heads * ((1 + reads) * keys + values), seed=0) / keys**0.5
        read, written = x.split((x.shape[-1] - heads * values, heads * values), dim=-1)
        decays = -normal(steps, batch, heads, seed=1).sigmoid() / 8  # so that the start is not forgotten
        start = normal(batch, heads * keys * values, seed=2)
        yield {"heads": heads, "key_size": keys, "reads": reads}, read, written, decays, start
