"""The layer normalisation is torch's."""

from __future__ import annotations

import math

import pytest
import torch

from orthobench.recurrence import layer_norm


@pytest.mark.usefixtures("restored_threads", "runs_in_c")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("shape", [(1, 1), (3, 2, 1), (5, 17), (70, 3, 16), (4, 130), (1500, 3, 30)])
def test_layer_norm_equals_torch(shape: tuple[int, ...], count: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(count)
    check(shape)


def test_no_rows_equal_torch() -> None:
    check((0, 5))


@pytest.mark.usefixtures("runs_in_c")
def test_results_written_around_the_caches_match() -> None:
    """More than a million numbers, in rows of whole vectors."""
    torch.manual_seed(0)
    check((15, 70, 1024))


def check(shape: tuple[int, ...]) -> None:
    """Compare values and gradients with torch's, in float32 and float64."""
    width = shape[-1]
    arguments = 3 + torch.randn(shape), torch.randn(width), torch.randn(width)
    way, results = torch.randn(shape), []
    for dtype in (torch.float32, torch.float64):
        leaves = [argument.to(dtype).requires_grad_() for argument in arguments]
        y = layer_norm(*leaves)
        results.append((y.detach(), *torch.autograd.grad(y, leaves, way.to(dtype))))
    leaves = [argument.double().requires_grad_() for argument in arguments]
    y = torch.nn.functional.layer_norm(leaves[0], (width,), leaves[1], leaves[2])
    expected = (y.detach(), *torch.autograd.grad(y, leaves, way.double()))
    rows = math.prod(shape[:-1])
    for narrow, wide, exact in zip(*results, expected, strict=True):
        # A sum over rows grows like their root, and so do the roundings of its steps, up to 2^-24 of the sum each.
        atol = 2e-5 if exact.ndim > 1 else max(2e-5, 4 * rows * 2**-24)
        torch.testing.assert_close(narrow.double(), exact, rtol=1e-5, atol=atol)
        torch.testing.assert_close(wide, exact)
