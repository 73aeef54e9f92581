"""The comparison of C kernels with the reference: it sees a wrong value or gradient of each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from orthobench.recurrence import kernels
from orthobench.recurrence.cpu import c_comparisons, call_c, dense, matrix_products, optimiser
from orthobench.recurrence.kernels import Gradients
from orthobench.recurrence.ops import operations

pytestmark = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler")

INDEPENDENT = {"diagonal_recurrence", "independent_recurrence", "min_gru", "min_lstm", "oscillators"}
"""Operations of independent units, whose weights are numbers and no matrix."""

KERNELS = {each.name: kernel for each in operations() if (kernel := kernels.find(each, "cpu"))}
PARTS = ["output", "weight", "x", "state"]


def plant(kernel: Any, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a kernel return a wrong output, or a wrong gradient of its weight (else its vectors), inputs or state."""
    forward, backward = kernel.forward, kernel.backward

    def wrong_forward(x: torch.Tensor, arguments: Any, keep: bool) -> Any:
        (first, *others), *rest = forward(x, arguments, keep)
        return (first * 1.001 if part == "output" else first, *others), *rest

    def wrong_backward(arguments: Any, tape: Any) -> Gradients:
        gradients = backward(arguments, tape)
        match part:
            case "weight" if gradients.weight is None:
                wrong = {name: None if each is None else each * 1.001 for name, each in gradients.parameters.items()}
                return replace(gradients, parameters=wrong)
            case "weight":
                return replace(gradients, weight=gradients.weight * 1.001)
            case "x":
                return replace(gradients, x=None if gradients.x is None else gradients.x * torch.nan)
            case "state":
                return replace(gradients, state=tuple(state * 1.001 for state in gradients.state))
        return gradients

    monkeypatch.setattr(kernel, "forward", staticmethod(wrong_forward))
    monkeypatch.setattr(kernel, "backward", staticmethod(wrong_backward))


@pytest.mark.parametrize("part", PARTS)
def test_comparison_detects_each_wrong_value_and_gradient(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels are wrong at once, so that one round of comparisons tells of each."""
    for kernel in set(KERNELS.values()):
        plant(kernel, part, monkeypatch)
    failed = {name for name, agrees in c_comparisons.comparisons().items() if not agrees()}
    assert failed == KERNELS.keys() | ({"readout"} if part != "x" else set())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KERNELS))
@pytest.mark.parametrize("part", PARTS)
def test_wrong_kernel_fails_no_other_comparison(name: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KERNELS[name]
    plant(kernel, part, monkeypatch)
    failed = {key for key, agrees in c_comparisons.comparisons().items() if not agrees()}
    readers = {"readout"} if kernel.reads and part != "x" else set()
    same = {key for key, each in KERNELS.items() if each is kernel}
    assert failed == same | readers


def test_comparison_covers_every_c_kernel() -> None:
    others = {
        "project",
        "readout",
        "cross_entropy",
        "head_norm",
        "layer_norm",
        "optimiser",
        "pointwise",
        "turned_heads",
    }
    assert c_comparisons.comparisons().keys() == KERNELS.keys() | others | {"scaled_cayley", "short_convolution"}


def test_comparison_detects_wrong_gradients_of_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    total = call_c.total
    monkeypatch.setattr(call_c, "total", lambda rows: total(rows) * (1.001 if rows.dim() == 2 else 1))
    failed = {name for name, agrees in c_comparisons.comparisons().items() if not agrees()}
    assert failed == {"recurrence", "gru", "rwkv7", "selective_scan", "short_convolution"} | INDEPENDENT


def test_comparison_detects_wrong_sums_over_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    run = call_c.run_rows

    def wrong(*arguments: Any, **fields: Any) -> dict[str, torch.Tensor]:
        return {name: 1.001 * each for name, each in run(*arguments, **fields).items()}

    monkeypatch.setattr(call_c, "run_rows", wrong)
    failed = {name for name, agrees in c_comparisons.comparisons().items() if not agrees()}
    assert failed == {"head_norm", "layer_norm", "pointwise", "turned_heads"}


def test_comparison_detects_a_wrong_weight_product(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = matrix_products.joined_sums
    monkeypatch.setattr(matrix_products, "joined_sums", lambda *parts: joined(*parts) * 1.001)
    failed = {name for name, agrees in c_comparisons.comparisons().items() if not agrees()}
    others = {
        "cross_entropy",
        "decaying_memory",
        "delta_rule",
        "head_norm",
        "layer_norm",
        "one_hot_recurrence",
        "optimiser",
        "pointwise",
        "rwkv7",
        "scaled_cayley",
        "selective_scan",
        "short_convolution",
        "turned_heads",
    }
    assert failed == set(c_comparisons.comparisons()) - INDEPENDENT - others


def test_comparison_detects_wrong_products_of_a_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = matrix_products.linear
    monkeypatch.setattr(matrix_products, "linear", lambda *arguments: linear(*arguments).mul_(1.001))
    assert {name for name, agrees in c_comparisons.comparisons().items() if not agrees()} == {"project"}


def test_comparison_detects_wrong_gradients_of_a_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = dense._named

    def wrong(*args: Any) -> Any:
        weight, by_name = gradients(*args)
        return weight, {name: None if value is None else value * 1.001 for name, value in by_name.items()}

    monkeypatch.setattr(dense, "_named", wrong)
    failed = {name for name, agrees in c_comparisons.comparisons().items() if not agrees()}
    assert failed == {"recurrence", "lstm", "gru", "lem", "readout"}


@pytest.mark.parametrize("number", ["second", "divisor", "outside", "scale"])
def test_comparison_detects_steps_of_an_optimiser_that_round_otherwise(
    number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = optimiser.SteppedWeights.step

    def rounded_otherwise(self: Any, gradients: Any, numbers: Any) -> None:
        step(self, gradients, {**numbers, number: numbers[number] * (1 + 2**-23)})

    monkeypatch.setattr(optimiser.SteppedWeights, "step", rounded_otherwise)
    assert not c_comparisons.comparisons()["optimiser"]()


def test_kernel_that_reports_an_error_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise MemoryError("lstm_forward")

    monkeypatch.setattr(KERNELS["lstm"], "forward", staticmethod(fail))
    assert not c_comparisons.comparisons()["lstm"]()


def test_comparison_agrees_in_every_mode_and_uses_no_global_random_numbers() -> None:
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            assert all(agrees() for agrees in c_comparisons.comparisons().values())
    assert torch.equal(torch.randn(3), expected)


def test_missing_projection_falls_back_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from orthobench.recurrence import project

    monkeypatch.setattr(call_c, "missing", lambda: "not built")
    inputs, weight = torch.randn(3, 2, 4), torch.randn(5, 4, requires_grad=True)
    assert "Project" not in type(project(inputs, weight).grad_fn).__name__
    monkeypatch.setattr(call_c, "missing", lambda: None)
    assert "Project" in type(project(inputs, weight).grad_fn).__name__
