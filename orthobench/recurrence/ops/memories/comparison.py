"""The comparison of the C kernels of the decaying memories with the reference."""

from __future__ import annotations

import torch

from orthobench.recurrence.comparison import normal
from orthobench.recurrence.cpu import agreement
from orthobench.recurrence.ops.memories import decaying_memory, rwkv7

_FORMS = ((5, 18, True), (35, 16, False), (3, 70, True))  # keys, values, whether outputs are read


def agrees() -> bool:
    """Return whether the kernels agree, with whole and partial vectors; 18 steps are two groups."""
    heads, batch, steps, low = 2, 3, 18, 18
    for keys, values, reads in _FORMS:
        parameters = {"heads": heads, "key_size": keys, "reads": reads}
        x = normal(steps, batch, heads * ((1 + reads) * keys + values), seed=0) / keys**0.5
        start = normal(batch, heads * keys * values, seed=2)
        rates = normal(steps, batch, 2 * low, seed=3)
        read, values_read = x.split((x.shape[-1] - heads * values, heads * values), dim=-1)
        decays = torch.cat((-normal(steps, batch, heads, seed=1).sigmoid(), read), dim=-1)
        maps = [normal(heads * keys, low, seed=seed) / low**0.5 for seed in (6, 7)]
        biases = [normal(heads * keys, seed=seed) for seed in (8, 9)]
        scales = [1 + 0.5 * normal(heads * keys, seed=seed) for seed in (4, 5)]
        if not agreement.form_agrees(decaying_memory, parameters, (), [values_read, decays, start]):
            return False
        names = ("decay_weight", "rate_weight", "decay_bias", "rate_bias", "key_scale", "key_rate")
        vectors = [*maps, *biases, *scales]
        if not agreement.form_agrees(rwkv7, parameters | {"epsilon": 1e-6}, names, [x, rates, start, *vectors]):
            return False
    return True
