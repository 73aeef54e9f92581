"""Runs that train together: the numbers of each, the number of launches, and the threads that take turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from support.interpreter import INTERPRETED, ON_GPU, run_interpreted
from torch import Tensor

from orthobench.recurrence import (
    MODRELU,
    TANH,
    Activation,
    GradientTrace,
    Kind,
    cuda,
    meeting,
    operations,
    recurrence,
    reference,
)
from orthobench.recurrence.meeting import Meeting

DEVICE = "cuda" if ON_GPU else "cpu"
STEPS, BATCH = 4, 3
COMPLEX = Activation(Kind.COMPLEX_MODRELU, epsilon=0.01)
CASES: dict[str, tuple[Any, int, tuple[Any, ...]]] = {
    "row": (operations.recurrence, 18, (TANH, "n")),
    "row of complex units": (operations.recurrence, 18, (COMPLEX, "n/2")),
    "row with steps": (operations.recurrence, 20, (MODRELU, "n", 0.3)),
    "gated row": (operations.gated_recurrence, 18, (0.1,)),
    "step": (operations.recurrence, 258, (TANH, "n")),
    "step of complex units": (operations.recurrence, 258, (COMPLEX, "n/2", 0.1)),
    "gated step": (operations.gated_recurrence, 260, (0.1,)),
    "lstm": (operations.lstm, 20, ()),
    "gru": (operations.gru, 20, ("n", True)),
    "gru, reset before": (operations.gru, 20, (None, False)),
    "diagonal": (operations.diagonal_recurrence, 20, ()),
}
WITHOUT_KERNELS: dict[str, tuple[Any, int, tuple[Any, ...]]] = {
    "cornn": (operations.cornn, 20, (0.3, 2.7, 1.3)),
    "lem": (operations.lem, 20, (0.7,)),
    "lipschitz": (operations.lipschitz, 20, (0.3,)),
}


def train(run: Callable[..., Any], case: tuple[Any, int, tuple[Any, ...]], seed: int, final: bool) -> list[Tensor]:
    """The outputs of one seed's problem, and the gradients of a loss by each of its tensors."""
    operation, n, parameters = case
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(shape, generator=generator)).to(DEVICE).requires_grad_()

    x = normal(STEPS, BATCH, operation.gates * n)
    weight = normal(n) if operation.diagonal else normal(operation.rows * n, operation.sources * n, scale=n**-0.5)
    state = tuple(normal(BATCH, n) for _ in operation.states)
    lengths = {"n": n, "n/2": n // 2}
    values = [normal(lengths[p], scale=0.3) if isinstance(p, str) else p for p in parameters]
    outputs, last = run(operation.call(x, weight, state, None, *values))
    loss = sum(each.square().sum() for each in last)
    (loss if final else loss + (outputs * torch.linspace(-1, 1, n, device=DEVICE)).sum()).backward()
    leaves = [x, weight, *state, *(value for value in values if isinstance(value, Tensor))]
    return [outputs.detach(), *(each.detach() for each in last), *(leaf.grad for leaf in leaves)]


def meet(functions: list[Callable[[], Any]]) -> tuple[list[Any], int]:
    """The results of functions that run in a meeting, in their order, and the number of common launches."""
    together: Meeting[Any] = Meeting()
    results = dict(together.run(functions))
    return [results[number] for number in range(len(functions))], together.launches


@pytest.mark.gpu
@pytest.mark.skipif(not (ON_GPU or INTERPRETED), reason="no GPU: covered by test_in_the_interpreter")
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_cuda_kernels_give_each_run_the_bits_that_it_has_alone(case: str, final: bool) -> None:
    alone = [train(cuda.run, CASES[case], seed, final) for seed in range(3)]
    results, launches = meet([partial(train, cuda.run, CASES[case], seed, final) for seed in range(3)])
    for actual, expected in zip(results, alone, strict=True):
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e, rtol=0, atol=0)
    assert launches == (0 if case == "diagonal" else 2), "one launch forward, and one backward"


@pytest.mark.skipif(ON_GPU or INTERPRETED, reason="the kernels' tests run in this process")
def test_in_the_interpreter() -> None:
    run_interpreted(__file__, "gpu")


@pytest.mark.skipif(INTERPRETED, reason="tested in the parent process")
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("case", CASES | WITHOUT_KERNELS)
def test_the_reference_batches_its_products(case: str, final: bool) -> None:
    what = (CASES | WITHOUT_KERNELS)[case]
    alone = [train(reference.run, what, seed, final) for seed in range(3)]
    results, launches = meet([partial(train, reference.run, what, seed, final) for seed in range(3)])
    for actual, expected in zip(results, alone, strict=True):
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-5)
    assert launches == 2
