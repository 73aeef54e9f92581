"""dL/dW, and dL/dU and dL/db of a projection, at sizes that leave remainders of every block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.definition import cast
from torch import Tensor

from orthobench.recurrence import (
    MODRELU,
    TANH,
    Kind,
    Projection,
    gru,
    kernels,
    recurrence,
    reference,
    slstm,
    timing,
    use_backend,
)
from orthobench.recurrence.call import Form
from orthobench.recurrence.cpu import call_c, dense, matrix_products
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.ops import operations

pytestmark = [
    pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)"),
    pytest.mark.grid,
]

# Steps, batch, features, inputs: single ones, no multiples of 16, several groups of rows, several chunks of steps,
# groups larger than a block of rows, and sums larger than the cache.
SIZES = [
    (1, 1, 1, 1),
    (1, 5, 17, 3),
    (7, 1, 33, 2),
    (70, 37, 40, 1),
    (300, 3, 19, 5),
    (2, 1100, 6, 2),
    (40, 20, 47, 40),
    (5, 9, 400, 7),
    (19, 131, 24, 1),
]


FORMS: dict[str, tuple[Any, Callable[[int], Form]]] = {
    f"{operation.name}-{k}": (operation, lambda n, forms=operation.forms, k=k: list(forms(n))[k])
    for operation in operations()
    if getattr(kernels.find(operation, "cpu"), "makes", None) is dense.makes
    for k, form in enumerate(operation.forms(2) if operation.forms else ())
    if form.parameters.get("activation", TANH).kind is Kind.TANH
} | {
    "gru-after-modrelu": (gru, lambda n: Form({"reset_after": True, "activation": MODRELU})),
    "slstm": (slstm, lambda n: Form()),
}
"""The forms of each operation that projects its inputs in the loop, by n; with modReLU the one that a model uses."""
each_form = pytest.mark.parametrize("form", FORMS)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("steps", "batch", "n", "m"), SIZES)
def test_product_matches_float64(steps: int, batch: int, n: int, m: int) -> None:
    dz, states, initial, u = (
        normal(*shape, seed=seed)
        for seed, shape in enumerate([(steps, batch, 2 * n), (steps, batch, n), (batch, n), (steps, batch, m)])
    )
    before = torch.cat((initial[None], states[:-1]))
    expected = dz.flatten(0, 1).T @ torch.cat((before, u), dim=-1).flatten(0, 1)
    single = cast((dz, states, initial, u), torch.float32)
    actual = matrix_products.outer_sums(*single)
    assert actual.shape == (2 * n, matrix_products.padded(n + m))
    torch.testing.assert_close(actual[:, : n + m].double(), expected, rtol=1e-5, atol=1e-5 * (steps * batch) ** 0.5)
    strided = single[0][..., n:]
    alone = matrix_products.weight_gradient(strided, single[1], single[2])
    torch.testing.assert_close(alone.double(), expected[n:, :n], rtol=1e-5, atol=1e-5 * (steps * batch) ** 0.5)


def projected(operation: Any, gates: int, steps: int, batch: int, n: int, m: int, has_bias: bool) -> list[Tensor]:
    """u, U, W, the initial states, and b if it is wanted."""
    states = [normal(batch, n, seed=10 + i) for i in range(len(operation.states))]
    if operation is slstm:
        states[2] = states[2].abs() + 0.5  # by which h is divided
    weights = [normal(gates * n, m, seed=1) / m**0.5, 0.5 * normal(gates * n, n, seed=2) / n**0.5]
    return [normal(steps, batch, m, seed=0), *weights, *states, *([normal(gates * n, seed=3)] if has_bias else [])]


def outcome(form: str, tensors: list[Tensor], backend: str, trained: tuple[int, ...]) -> dict[str, Tensor]:
    """The outputs and the gradients of the tensors with these numbers."""
    tensors = [tensor.clone().requires_grad_(i in trained) for i, tensor in enumerate(tensors)]
    u, input_weight, weight, *rest = tensors
    operation, form_of = FORMS[form]
    declared = form_of(weight.shape[1])
    vectors = {name: normal(size, seed=40 + i).to(weight) for i, (name, size) in enumerate(declared.vectors.items())}
    width = len(operation.states)
    bias = rest[width] if len(rest) > width else None
    with use_backend(backend):
        outputs, final = operation(
            Projection(u, input_weight, bias), weight, tuple(rest[:width]), **declared.parameters, **vectors
        )
    results = (outputs, *final)
    ways = [normal(*result.shape, seed=20 + i).to(result) for i, result in enumerate(results)]
    torch.autograd.backward(results, ways)
    gradients = {f"gradient {i}": tensor.grad for i, tensor in enumerate(tensors) if tensor.grad is not None}
    return {"outputs": outputs.detach(), **gradients}


@pytest.mark.parametrize("has_bias", [False, True])
@each_form
@pytest.mark.parametrize(("steps", "batch", "n", "m"), SIZES)
def test_projection_equals_its_product(form: str, steps: int, batch: int, n: int, m: int, has_bias: bool) -> None:
    operation = FORMS[form][0]
    tensors = projected(operation, operation.gates, steps, batch, n, m, has_bias)
    trained = tuple(range(1, len(tensors)))
    expected = outcome(form, tensors, "reference", trained)
    actual = outcome(form, cast(tensors, torch.float32), "cpu", trained)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        error = float((actual[name] - value).norm() / (value.norm() + 0.1 * value.numel() ** 0.5))
        assert error < 5e-6 + 6e-8 * steps, name  # each step of the Euler form rounds a gradient by half a unit


@each_form
@pytest.mark.parametrize("trained", [(0, 1, 2), (2,), (1,), (3,)])
def test_each_gradient_alone_matches(form: str, trained: tuple[int, ...]) -> None:
    """With the inputs' own gradient (as of an embedding), with W alone, with U alone, with h_0 alone."""
    operation = FORMS[form][0]
    tensors = projected(operation, operation.gates, 9, 12, 20, 3, True)
    expected = outcome(form, tensors, "reference", trained)
    actual = outcome(form, cast(tensors, torch.float32), "cpu", trained)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name].double(), value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("steps", "batch", "n"), [(70, 37, 40), (70, 6, 190), (3, 19, 400), (17, 131, 24)])
def test_thread_count_changes_no_sum(steps: int, batch: int, n: int) -> None:
    before = torch.get_num_threads()
    tensors = cast(projected(recurrence, 1, steps, batch, n, 2, True), torch.float32)
    try:
        results = []
        for count in (1, 2, 3, 5, 2):
            torch.set_num_threads(count)
            results.append(outcome("recurrence-4", tensors, "cpu", (1, 2, 3, 4)))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(result[name], value) for name, value in results[0].items())


def test_number_of_row_groups_depends_on_the_batch_alone() -> None:
    assert [call_c.row_groups(batch) for batch in (1, 2, 3, 6, 12, 20, 24, 50, 128, 5000)] == [
        1,
        1,
        1,
        2,
        4,
        4,
        8,
        8,
        8,
        8,
    ]


def test_time_of_the_sums_is_a_separate_part() -> None:
    tensors = cast(projected(recurrence, 1, 50, 12, 40, 2, False), torch.float32)
    with timing.record_times() as seconds:
        outcome("recurrence-4", tensors, "cpu", (1, 2))
    assert seconds.keys() == {"forward", "backward", "weight gradient"}
    assert all(spent > 0 for spent in seconds.values())


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4, 2, 3), (5, 4), None), r"do not fit: \[4, 2, 3\], \[5, 4\]"),
        (((4, 2, 3), (5, 3), (4,)), r"do not fit: .*\[4\]"),
        (((4, 2, 3), (6, 3), None), r"x \[4, 2, 6\] should be \[4, 2, 5\]"),
    ],
)
def test_incompatible_projection_is_refused(shapes: Any, message: str) -> None:
    parts: list[Any] = [None if shape is None else torch.zeros(shape) for shape in shapes]
    projection = Projection(*parts)
    with pytest.raises(ValueError, match=message):
        recurrence(projection, torch.zeros(5, 5), (torch.zeros(2, 5),), None, TANH)
    with pytest.raises(ValueError, match="float64"):
        recurrence(
            Projection(torch.zeros(4, 2, 3), torch.zeros(5, 3).double()), torch.zeros(5, 5), (torch.zeros(2, 5),)
        )


def test_reference_computes_a_projection() -> None:
    u, input_weight = torch.randn(3, 2, 4), torch.randn(5, 4)
    with use_backend("reference"):
        actual, _ = recurrence(Projection(u, input_weight), torch.eye(5), (torch.zeros(2, 5),))
    expected, _ = reference.run(recurrence.call(u @ input_weight.T, torch.eye(5), (torch.zeros(2, 5),)))
    torch.testing.assert_close(actual, expected)
    assert not cpu.makes(recurrence.call(u @ input_weight.T, torch.eye(5), (torch.zeros(2, 5),)))
