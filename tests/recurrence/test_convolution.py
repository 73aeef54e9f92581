"""The short convolution in C is its equation, in value and in every gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from orthobench.recurrence import short_convolution


def equation(x: Tensor, weight: Tensor, before: Tensor, bias: Tensor | None = None) -> Tensor:
    """torch's convolution, with a group for each feature, and SiLU."""
    padded = torch.cat((before, x)).permute(1, 2, 0)
    z = torch.nn.functional.conv1d(padded, weight.T[:, None], bias, groups=weight.shape[1]).permute(2, 0, 1)
    return z * torch.sigmoid(z)


def results(function: Callable[..., Tensor], dtype: torch.dtype, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    """The value, and the gradients of a random loss by every argument."""
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]
    y = function(*leaves)
    way = torch.randn(y.shape, generator=generator)
    return [y.detach(), *torch.autograd.grad(y, leaves, way.to(dtype))]


def agree(steps: int, batch: int, width: int, taps: int, has_bias: bool) -> None:
    shapes = [(steps, batch, width), (taps, width), (taps - 1, batch, width), *([(width,)] if has_bias else [])]
    exact = results(equation, torch.float64, shapes)
    for actual, expected in zip(results(short_convolution, torch.float32, shapes), exact, strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


SIZES = [(1, 1, 1), (2, 3, 5), (33, 2, 16), (70, 5, 37), (200, 1, 130)]


@pytest.mark.usefixtures("restored_threads", "runs_in_c")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("taps", [2, 4, 8])
@pytest.mark.parametrize(("steps", "batch", "width"), SIZES)
def test_convolution_matches_its_equation(
    steps: int, batch: int, width: int, taps: int, has_bias: bool, count: int
) -> None:
    torch.set_num_threads(count)
    agree(steps, batch, width, taps, has_bias)


@pytest.mark.usefixtures("lesser_machine", "runs_in_c")
@pytest.mark.parametrize(("steps", "batch", "width"), SIZES)
def test_convolution_matches_on_narrower_vectors(steps: int, batch: int, width: int) -> None:
    agree(steps, batch, width, 4, True)


def test_more_taps_than_the_kernel_supports_use_torch() -> None:
    agree(12, 2, 5, 9, True)
