"""PD-SSM's Triton kernels against the definition in float64, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.interpreter import INTERPRETED, ON_GPU, run_interpreted
from torch import Tensor

from orthobench.bench.models import step_on_noise
from orthobench.models.pd_ssm import PDSSM
from orthobench.recurrence import kernel_case, one_hot_recurrence, operation, reference
from orthobench.recurrence.cuda import launch, self_test
from orthobench.recurrence.kernel_case import normal
from orthobench.recurrence.ops.one_hot.cuda import MOST_UNITS, OneHot
from orthobench.task import Batch

DEVICE = "cuda" if ON_GPU else "cpu"
NAMES = ("dictionary", "transitions")

runs_kernels = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (ON_GPU or INTERPRETED), reason="no GPU: covered by test_in_the_interpreter"),
]


def with_marks(function: Any) -> Any:
    for mark in runs_kernels:
        function = mark(function)
    return function


def problem(units: int, count: int, batch: int, steps: int) -> list[Tensor]:
    parameters = {"dictionary": torch.empty(count, units, units), "transitions": torch.empty(1, count + 2 * units)}
    return [each.to(DEVICE) for each in OneHot.problem(parameters, 2 * units, batch, steps)]


def errors(arguments: list[Tensor], traced: bool) -> dict[str, float]:
    results = [
        kernel_case.evaluate(run, one_hot_recurrence, {}, NAMES, arguments, dtype, traced)
        for run, dtype in ((OneHot.run, torch.float32), (reference.run, torch.float64))
    ]
    assert results[0].keys() == results[1].keys()
    return {name: kernel_case.distance(results[0][name], value) for name, value in results[1].items()}


@with_marks
@pytest.mark.parametrize("size", [(1, 1, 1, 1), (5, 3, 2, 4), (18, 8, 3, 6), (33, 5, 2, 17)])
@pytest.mark.parametrize("traced", [False, True])
def test_kernels_match_the_definition(size: tuple[int, int, int, int], traced: bool) -> None:
    """Units, matrices, rows and steps: less than a tile, a whole one, and more; two steps share a transition."""
    wrong = {name: error for name, error in errors(problem(*size), traced).items() if not error <= 1e-6}
    assert not wrong


@with_marks
def test_units_that_all_read_the_same_one() -> None:
    """Its gradient is the sum of theirs, and the other units' is their own part only."""
    x, places, start, dictionary, transitions = problem(20, 2, 2, 5)
    dictionary = dictionary * 0 + normal(2, 20, 20, seed=8).to(DEVICE) / 8
    dictionary[:, :, 7] += 3
    wrong = {
        name: error
        for name, error in errors([x, places, start, dictionary, transitions], False).items()
        if not error <= 1e-6
    }
    assert not wrong


@with_marks
def test_gradients_of_a_models_step_match_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parameter's relative error in float32 is rounding; on a wrong path it would be about 1."""
    gradients = []
    for back_end, dtype in (("cuda", torch.float32), ("reference", torch.float64)):
        monkeypatch.setattr(operation, "choose", lambda call, name=back_end: name)
        step = step_on_noise(PDSSM, torch.device(DEVICE), 10, 6)
        step.model.load_state_dict(step_on_noise(PDSSM, torch.device("cpu"), 10, 6).model.state_dict())
        step.model.to(dtype)
        step.batch = Batch(step.batch.inputs[:, :3].to(dtype), step.batch.targets[:3])
        step.train()
        gradients.append({name: each.grad for name, each in step.model.named_parameters() if each.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() >= {"dictionary", "selection_weight", "input_weight"}
    errors = {n: float((gradients[0][n] - each).norm() / each.norm()) for n, each in gradients[1].items()}
    assert max(errors.values()) < 2e-6, errors


@with_marks
def test_self_test_passes_and_sees_a_wrong_place(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [each.float() for each in problem(12, 4, 3, 6)]
    x, places, start, *tensors = arguments
    call = one_hot_recurrence.call(x, places, (start,), None, *tensors)
    assert self_test.measure(OneHot.run, call) is None
    forward = OneHot.forward

    def shifted(x: Tensor, arguments: Any, keep: bool) -> Any:
        states, (places,) = forward(x, arguments, keep)
        return states, ((places + 1) % 12,)

    monkeypatch.setattr(OneHot, "forward", staticmethod(shifted))
    assert "gradient" in str(self_test.measure(OneHot.run, call))


@pytest.mark.slow
@pytest.mark.skipif(ON_GPU or INTERPRETED, reason="the kernels' tests run in this process")
def test_in_the_interpreter() -> None:
    run_interpreted(__file__, "gpu")


def test_too_many_units_are_refused_with_the_reason() -> None:
    parameters = {"dictionary": torch.empty(1, MOST_UNITS + 1, MOST_UNITS + 1)}
    assert "257 units are more than 256" in str(OneHot.unsupported(parameters))
    assert issubclass(OneHot, launch.TritonKernel)
