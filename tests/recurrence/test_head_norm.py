"""The normalisation of heads against a literal transcription in float64, and its gradients by finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.models import silu
from torch import Tensor

from orthobench.recurrence import Projection, head_norm
from orthobench.recurrence.cpu import call_c

pytestmark = pytest.mark.grid

in_c = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
SIZES = [(1, 1, 1, 1), (3, 2, 1, 16), (5, 3, 2, 3), (9, 2, 3, 21), (7, 5, 4, 32), (2, 1, 2, 130)]
GATES = ["absent", "read", 1, 3, 9, "of gradient"]


def arguments(sizes: tuple[int, ...], gate: str | int) -> dict[str, Tensor]:
    """y, the weight, and the gate or its inputs and weight; float32."""
    steps, batch, heads, size = sizes
    generator = torch.Generator().manual_seed(steps)
    shapes: dict[str, tuple[int, ...]] = {"y": (steps, batch, heads * size), "weight": (size,)}
    if gate == "read":
        shapes["g"] = shapes["y"]
    elif gate != "absent":
        inputs = 2 if gate == "of gradient" else int(gate)
        shapes |= {"u": (steps, batch, inputs), "G": (heads * size, inputs)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def normalised(tensors: dict[str, Tensor]) -> Tensor:
    gate = tensors.get("g")
    return head_norm(
        tensors["y"], tensors["weight"], 0.1, Projection(tensors["u"], tensors["G"]) if "u" in tensors else gate
    )


def transcribed(tensors: dict[str, Any]) -> np.ndarray:
    """Each head of each row on its own, in float64."""
    y, weight = (tensors[name].double().numpy() for name in ("y", "weight"))
    h, size = np.zeros_like(y), len(weight)
    for row in np.ndindex(*y.shape[:2]):
        g = tensors["g"][row].double().numpy() if "g" in tensors else None
        if "u" in tensors:
            g = tensors["G"].double().numpy() @ tensors["u"][row].double().numpy()
        for start in range(0, y.shape[-1], size):
            head = y[row][start : start + size]
            value = head / np.sqrt(np.mean(head**2) + 0.1) * weight
            h[row][start : start + size] = value if g is None else value * silu(g[start : start + size])
    return h


def of_gradients(tensors: dict[str, Tensor], gate: str | int, way: Tensor) -> dict[str, Tensor]:
    """h, and the gradients of <way, h> by every tensor but inputs that need none."""
    leaves = {
        name: tensor.to(way.dtype).requires_grad_(name != "u" or gate == "of gradient")
        for name, tensor in tensors.items()
    }
    h = normalised(leaves)
    trained = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    return {"h": h.detach(), **dict(zip(trained, torch.autograd.grad(h, [*trained.values()], way), strict=True))}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("sizes", SIZES)
def test_head_norm_matches_its_equation(sizes: tuple[int, ...], gate: str | int) -> None:
    tensors = arguments(sizes, gate)
    expected = transcribed(tensors)
    np.testing.assert_allclose(normalised(tensors).numpy(), expected, rtol=2e-6, atol=2e-6)
    wide = {name: tensor.double() for name, tensor in tensors.items()}
    np.testing.assert_allclose(normalised(wide).numpy(), expected, rtol=1e-12, atol=1e-12)


def agree(sizes: tuple[int, ...], gate: str | int) -> None:
    """Fail unless the kernel gives values and gradients of the definition in float64."""
    tensors = arguments(sizes, gate)
    way = torch.randn(tensors["y"].shape, generator=torch.Generator().manual_seed(1))
    expected = of_gradients(tensors, gate, way.double())
    for name, actual in of_gradients(tensors, gate, way).items():
        truth = expected[name]
        assert float((actual.double() - truth).norm()) <= 2e-6 * (float(truth.norm()) + truth.numel() ** 0.5), name


@pytest.mark.usefixtures("restored_threads", "runs_in_c")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("sizes", SIZES)
def test_kernels_match_the_reference(sizes: tuple[int, ...], gate: str | int, count: int) -> None:
    torch.set_num_threads(count)
    agree(sizes, gate)


@pytest.mark.usefixtures("lesser_machine", "runs_in_c")
@pytest.mark.parametrize("gate", GATES)
def test_kernels_match_on_narrower_vectors(gate: str | int) -> None:
    agree((9, 2, 3, 21), gate)


@pytest.mark.parametrize("gate", GATES)
def test_gradients_of_the_reference_match_finite_differences(gate: str | int) -> None:
    tensors = {name: tensor.double() for name, tensor in arguments((2, 2, 2, 3), gate).items()}
    leaves = [tensor.requires_grad_(name != "u" or gate == "of gradient") for name, tensor in tensors.items()]
    assert torch.autograd.gradcheck(lambda *values: normalised(dict(zip(tensors, values, strict=True))), leaves)


@in_c
@pytest.mark.parametrize("gate", GATES)
def test_thread_count_changes_no_number(gate: str | int, restored_threads: None) -> None:
    tensors, results = arguments((70, 7, 3, 20), gate), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(of_gradients(tensors, gate, torch.ones(tensors["y"].shape)))
    for result in results[1:]:
        assert all(torch.equal(value, results[0][name]) for name, value in result.items())
