"""The kernels of each operation agree with the reference, in every form that the operation declares."""

from __future__ import annotations

import pytest
import torch

from orthobench.recurrence import Projection, backends, kernel_case, reference, use_backend
from orthobench.recurrence.call import Form
from orthobench.recurrence.kernel_case import normal
from orthobench.recurrence.operation import Operation, run
from orthobench.recurrence.ops import operations
from orthobench.testing.kernels import DEVICES, TOLERANCE

STEPS, BATCH, FEATURES = 3, 17, 38  # a full tile of rows and a panel of columns, each with a remainder
FORMS = [
    pytest.param(operation, form, id=f"{operation.name}-{i}")
    for operation in operations()
    for i, form in enumerate(operation.forms(FEATURES) if operation.forms is not None else ())
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("traced", [False, True], ids=["", "traced"])
@pytest.mark.parametrize(("operation", "form"), FORMS)
def test_form_agrees(operation: Operation[...], form: Form, traced: bool, device: str) -> None:
    """Outputs, final states, gradients, and with a trace the norms of gradients through time."""
    names = tuple(form.vectors)
    parameters = {**form.parameters, **{name: torch.empty(length) for name, length in form.vectors.items()}}
    arguments = kernel_case.problem(operation, parameters, FEATURES, BATCH, STEPS)
    case = operation, form.parameters, names
    expected = kernel_case.evaluate(reference.run, *case, arguments, torch.float64, traced)
    moved = [argument.to(device) for argument in arguments]
    backends.forget_used()
    actual = kernel_case.evaluate(run, *case, moved, torch.float32, traced)
    assert device != "cpu" or backends.last_used() == {"cpu"}
    errors = {name: kernel_case.distance(actual[name].cpu(), value) for name, value in expected.items()}
    assert {name: error for name, error in errors.items() if not error <= TOLERANCE} == {}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("operation", "form"), FORMS)
def test_form_with_projected_inputs_agrees(operation: Operation[...], form: Form, device: str) -> None:
    """The loop of a kernel may compute its inputs as a projection U u + b, and the gradients of U and b."""
    width = operation.gates * FEATURES
    parameters = {**form.parameters, **{name: torch.empty(length) for name, length in form.vectors.items()}}
    _, *others = kernel_case.problem(operation, parameters, FEATURES, BATCH, STEPS)
    case = normal(STEPS, BATCH, 5, seed=30), normal(width, 5, seed=31), normal(width, seed=32), *others
    states = len(operation.states)
    results = []
    for dtype, place, back_end in ((torch.float32, device, "auto"), (torch.float64, "cpu", "reference")):
        leaves = [each.to(place, dtype).requires_grad_() for each in case]
        u, input_weight, bias, weight, *rest = leaves
        vectors = dict(zip(form.vectors, rest[states:], strict=True))
        with use_backend(back_end):
            x = Projection(u, input_weight, bias)
            outputs, final = operation(x, weight, tuple(rest[:states]), None, **form.parameters, **vectors)
        values = [outputs, *final]
        ways = [normal(*value.shape, seed=20 + i).to(value) for i, value in enumerate(values)]
        gradients = torch.autograd.grad(values, leaves, ways, allow_unused=True, materialize_grads=True)
        results.append([each.detach().double().cpu() for each in (*values, *gradients)])
    errors = [kernel_case.distance(actual, expected) for actual, expected in zip(*results, strict=True)]
    assert [error for error in errors if not error <= TOLERANCE] == []
