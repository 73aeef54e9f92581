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

from orthobench.recurrence import MODRELU, TANH, Activation, Kind, kernels, operations, recurrence, reference
from orthobench.recurrence.backends import forget_used, last_used, use_backend
from orthobench.recurrence.cuda import backend as cuda
from orthobench.recurrence.meeting import Meeting

DEVICE = "cuda" if ON_GPU else "cpu"
STEPS, BATCH = 3, 2
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
@pytest.mark.parametrize("form", CASES)
def test_the_cuda_kernels_give_each_run_the_bits_that_it_has_alone(form: str, final: bool) -> None:
    alone = [train(cuda.run, CASES[form], seed, final) for seed in range(2)]
    results, launches = meet([partial(train, cuda.run, CASES[form], seed, final) for seed in range(2)])
    for actual, expected in zip(results, alone, strict=True):
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e, rtol=0, atol=0)
    assert launches == (0 if form == "diagonal" else 2), "one launch forward, and one backward"


@pytest.mark.slow
@pytest.mark.skipif(ON_GPU or INTERPRETED, reason="the kernels' tests run in this process")
def test_in_the_interpreter() -> None:
    run_interpreted(__file__, "gpu")


@pytest.mark.skipif(INTERPRETED, reason="tested in the parent process")
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("form", CASES | WITHOUT_KERNELS)
def test_the_reference_batches_its_products(form: str, final: bool) -> None:
    what = (CASES | WITHOUT_KERNELS)[form]
    alone = [train(reference.run, what, seed, final) for seed in range(2)]
    results, launches = meet([partial(train, reference.run, what, seed, final) for seed in range(2)])
    for actual, expected in zip(results, alone, strict=True):
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-5)
    assert launches == 2


class Doubled:
    """A kernel of any operation with one state, x -> 2 x; with runs it does what `fault` says."""

    takes_runs, fault = True, ""

    @staticmethod
    def forward(x: Tensor, arguments: Any, keep: bool) -> Any:
        if x.dim() == 4 and Doubled.fault == "raises":
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return ((2 + (x.dim() == 4 and Doubled.fault == "lies")) * x,), ()

    @staticmethod
    def backward(arguments: Any, tape: Any) -> Any:
        raise NotImplementedError


@pytest.mark.skipif(INTERPRETED, reason="tested in the parent process")
@pytest.mark.parametrize(("fault", "launches"), [("", 2), ("raises", 0), ("lies", 0)])
def test_a_common_launch_that_fails_or_differs_is_made_for_each_run(
    fault: str, launches: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Doubled, "fault", fault)

    def twice(seed: int) -> list[Tensor]:
        x = torch.full((2, 1, 3), float(seed))
        call = recurrence.call(x, torch.eye(3), (torch.zeros(1, 3),))
        return [kernels.run(Doubled, call)[0] for _ in range(2)]

    results, count = meet([partial(twice, seed) for seed in range(3)])
    assert [[float(each.max()) for each in result] for result in results] == [[2.0 * s] * 2 for s in range(3)]
    assert count == launches
    assert len(caplog.records) == (1 if fault else 0), "one warning, and no second trial"


@pytest.mark.skipif(INTERPRETED, reason="tested in the parent process")
def test_runs_with_other_shapes_have_their_own_launches_and_catch_up() -> None:
    """The first makes three other calls before those of the second and the third, which wait for it."""
    order: list[str] = []

    def call(name: str, rows: int) -> None:
        order.append(name)
        kernels.run(Doubled, recurrence.call(torch.ones(2, rows, 3), torch.eye(3), (torch.zeros(rows, 3),)))

    def late() -> None:
        for _ in range(3):
            call("late", 5)
        call("late common", 1)

    def early() -> None:
        call("early", 1)
        order.append("after")

    _, launches = meet([early, late, early])
    assert launches == 1
    assert order == ["early", "late", "early", "late", "late", "late common", "after", "after"]


@pytest.mark.skipif(INTERPRETED, reason="tested in the parent process")
def test_each_thread_has_its_own_random_stream_and_its_own_record_of_back_ends() -> None:
    def draw(seed: int, backend: str) -> tuple[list[float], set[str]]:
        torch.manual_seed(seed)
        forget_used()
        drawn = []
        for _ in range(3):
            x = torch.ones(2, 1, 3)
            with use_backend(backend):
                recurrence(x, torch.eye(3), (torch.zeros(1, 3),))
            drawn.append(float(torch.rand(())))
        return drawn, last_used()

    jobs = [(1, "reference"), (2, "cpu"), (3, "reference")]
    expected = [draw(*job) for job in jobs]
    results, _ = meet([partial(draw, *job) for job in jobs])
    assert results == expected


@pytest.mark.skipif(INTERPRETED, reason="tested in the parent process")
def test_an_exception_is_raised_and_ends_the_others() -> None:
    ended: list[type[BaseException]] = []

    def waits() -> None:
        try:
            while True:
                kernels.run(Doubled, recurrence.call(torch.ones(2, 1, 3), torch.eye(3), (torch.zeros(1, 3),)))
        except BaseException as error:
            ended.append(type(error))
            raise

    def fails() -> None:
        raise ValueError("of one run")

    with pytest.raises(ValueError, match="of one run"):
        list(Meeting[None]().run([waits, waits, fails]))
    assert ended == [KeyboardInterrupt] * 2
    assert not any(thread.name == "a run of a group" for thread in threading.enumerate())
