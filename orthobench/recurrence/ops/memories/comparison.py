"""The comparison of the C kernels of the decaying memories with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import reference
from orthobench.recurrence.call import Call, Inputs, Projection, Result
from orthobench.recurrence.comparison import normal
from orthobench.recurrence.cpu import agreement, native
from orthobench.recurrence.ops.memories import decaying_memory, rwkv7

_FORMS = ((5, 18, True), (35, 16, False), (3, 70, True), (32, 32, False))  # keys, values, whether outputs are read


def decaying_memory_agrees() -> bool:
    """Return whether the kernels of Mamba-3's memories agree, with whole and partial vectors."""
    return all(
        agreement.form_agrees(decaying_memory, parameters, (), [values, torch.cat((decays, read), dim=-1), start])
        for parameters, read, values, decays, start in _examples()
    )


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
        parameters = {**parameters, "epsilon": 1e-6}
        if not agreement.form_agrees(rwkv7, parameters, names, arguments):
            return False
    return _projected_agrees(parameters, names, arguments)


def _examples() -> Iterator[tuple[dict[str, Any], Tensor, Tensor, Tensor, Tensor]]:
    """Yield parameters, queries with keys, values, decays and a start; 18 steps are two groups."""
    heads, batch, steps = 2, 3, 18
    for keys, values, reads in _FORMS:
        x = normal(steps, batch, heads * ((1 + reads) * keys + values), seed=0) / keys**0.5
        read, written = x.split((x.shape[-1] - heads * values, heads * values), dim=-1)
        decays = -normal(steps, batch, heads, seed=1).sigmoid()
        start = normal(batch, heads * keys * values, seed=2)
        yield {"heads": heads, "key_size": keys, "reads": reads}, read, written, decays, start


def _projected_agrees(parameters: Mapping[str, Any], names: Sequence[str], arguments: Sequence[Tensor]) -> bool:
    """Return whether RWKV-7's kernel agrees if it computes x from 2 inputs, with an addend for the first step."""
    x, *others = arguments
    shapes = [(*x.shape[:2], 2), (x.shape[2], 2), x.shape[1:]]
    projection = [normal(*shape, seed=10 + i) for i, shape in enumerate(shapes)]

    def results(
        run: Callable[[Call], Result], x: Inputs, weight: Tensor, start: Tensor, *vectors: Tensor
    ) -> list[Tensor]:
        call = rwkv7.call(x, weight, (start,), None, **{**parameters, **dict(zip(names, vectors, strict=True))})
        assert run is reference.run or native.makes(call)
        return [*run(call)[1]]

    def in_kernel(u: Tensor, input_weight: Tensor, first: Tensor, *others: Tensor) -> list[Tensor]:
        return results(native.run, Projection(u, input_weight, first=first), *others)

    def defined(u: Tensor, input_weight: Tensor, first: Tensor, *others: Tensor) -> list[Tensor]:
        x = torch.nn.functional.linear(u, input_weight)
        return results(reference.run, torch.cat((x[:1] + first, x[1:])), *others)

    return agreement.agrees(in_kernel, defined, [*projection, *others], inputs=1)
