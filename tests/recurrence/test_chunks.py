"""RWKV-7's and Mamba-3's memories in chunks of steps, for CUDA, against the definition in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from orthobench.recurrence import GradientTrace, decaying_memory, kernel_case, kernels, reference, rwkv7
from orthobench.recurrence.kernel_case import normal
from orthobench.recurrence.ops.memories.cuda import RWKV7, Memories

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KERNELS = {decaying_memory: Memories, rwkv7: RWKV7}
SIZES = [  # steps, batch, heads, keys, values: a part of a chunk, a whole one, several and a rest
    (1, 1, 1, 1, 1),
    (5, 2, 2, 3, 5),
    (64, 1, 2, 8, 3),
    (135, 3, 2, 5, 9),
]
Problem = tuple[dict[str, Any], tuple[str, ...], list[Tensor]]


def problem(operation: Any, steps: int, batch: int, heads: int, keys: int, values: int, reads: bool) -> Problem:
    """The parameters, the names of the vectors, and the tensors: x, the weight, the start and the vectors."""
    x = normal(steps, batch, heads * ((1 + reads) * keys + values), seed=0) / keys**0.5
    read, value = x.split((x.shape[-1] - heads * values, heads * values), dim=-1)
    start, parameters = normal(batch, heads * keys * values, seed=2), {"heads": heads, "key_size": keys, "reads": reads}
    if operation is decaying_memory:
        decay = -normal(steps, batch, heads, seed=1).exp() / 20
        return parameters, (), [value, torch.cat((decay, read), dim=-1), start]
    low, features = 7, heads * keys
    x = torch.cat((read, value, normal(steps, batch, 2 * low, seed=3)), dim=-1)
    maps = [normal(features, low, seed=seed) / low**0.5 for seed in (4, 5)]
    vectors = [normal(features, seed=seed) for seed in (6, 7, 8, 9)]
    names = ("rate_weight", "decay_bias", "rate_bias", "key_scale", "key_rate")
    return parameters, names, [x, maps[0], start, maps[1], *vectors]


def errors(operation: Any, problem: Problem, dtype: torch.dtype, traced: bool = False) -> dict[str, float]:
    """The relative distance of each result and gradient from the definition's in float64."""
    parameters, names, arguments = problem
    arguments = [each.to(DEVICE) for each in arguments]
    expected = kernel_case.evaluate(reference.run, operation, parameters, names, arguments, torch.float64, traced)
    kernel = kernels.find(operation, "cuda")
    assert kernel is not None
    actual = kernel_case.evaluate(kernel.run, operation, parameters, names, arguments, dtype, traced)
    assert actual.keys() == expected.keys()
    return {name: kernel_case.distance(actual[name], value) for name, value in expected.items()}


@pytest.mark.parametrize("operation", KERNELS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("traced", [False, True])
def test_chunks_match_the_definition(operation, size, reads, traced):
    """In outputs, final memories, gradients and the norms of the gradients through time."""
    assert kernels.find(operation, "cuda") is KERNELS[operation]
    wrong = {
        name: error
        for name, error in errors(operation, problem(operation, *size, reads), torch.float64, traced).items()
        if not error <= 1e-12
    }
    assert not wrong


@pytest.mark.parametrize("operation", KERNELS)
def test_chunks_in_single_precision_stay_close(operation):
    """Of 200 steps; each number is a sum of at most 64 terms with rounded decays."""
    result = errors(operation, problem(operation, 200, 2, 2, 16, 8, True), torch.float32)
    assert max(result.values()) < 3e-6, result


def test_strongest_decays_of_rwkv7_stay_close_in_single_precision():
    """Every decay is e^(-e^(-1/2)) and every key the same: the quotients are largest, and the system is full."""
    parameters, names, arguments = problem(rwkv7, 200, 2, 2, 16, 8, True)
    x, _, _, _, decay_bias, rate_bias, *_ = arguments
    x[..., 32:64] = x[:1, :1, 32:64]
    decay_bias += 40
    rate_bias += 4
    result = errors(rwkv7, (parameters, names, arguments), torch.float32)
    del result["gradient of decay_bias"], result["gradient of W"]  # 0 to float64's rounding: the decays are saturated
    assert max(result.values()) < 1e-5, result


def test_memory_that_is_forgotten_at_once_keeps_what_follows():
    """A decay of e^(-1000) in a chunk: the weak decays after it keep their digits."""
    parameters, names, arguments = problem(decaying_memory, 100, 1, 1, 4, 3, True)
    arguments[1][..., :1] = -1e-3
    arguments[1][::9, :, :1] = -1000.0
    result = errors(decaying_memory, (parameters, names, arguments), torch.float32)
    assert max(result.values()) < 1e-6, result


@pytest.mark.parametrize("operation", KERNELS)
def test_trace_of_a_loss_of_the_final_memory_alone(operation):
    """The hooks wait neither for outputs that no loss reads nor for a final memory that none reads."""
    parameters, names, arguments = problem(operation, 70, 2, 2, 3, 4, True)
    for choose in (lambda y, end: end.square().sum(), lambda y, end: y[3].square().sum()):
        norms = []
        for run in (reference.run, KERNELS[operation].run):
            x, weight, start, *vectors = [each.clone().requires_grad_() for each in arguments]
            values, trace = parameters | dict(zip(names, vectors, strict=True)), GradientTrace()
            y, (end,) = run(operation.call(x, weight, (start,), trace, **values))
            choose(y, end).backward()
            norms.append(trace.norms["h"])
        torch.testing.assert_close(norms[1], norms[0])
        assert norms[0].any()
