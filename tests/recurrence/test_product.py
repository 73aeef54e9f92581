"""A product of matrices is that of float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from orthobench.recurrence import use_backend
from orthobench.recurrence.cpu import matrix_products
from orthobench.recurrence.projection import matrix_product


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _transposed(tensor: Tensor) -> Tensor:
    return tensor.T.contiguous().T


def _part_of_larger(tensor: Tensor) -> Tensor:
    larger = torch.full([size + 3 for size in tensor.shape], torch.nan, dtype=tensor.dtype)
    larger[1:-2, 2:-1] = tensor
    return larger[1:-2, 2:-1]


LAYOUTS = [_same, _transposed, _part_of_larger]


@pytest.mark.usefixtures("runs_in_c")
@pytest.mark.parametrize("right_layout", LAYOUTS)
@pytest.mark.parametrize("left_layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 40, 7), (70, 33, 130)])
def test_product_matches_float64(
    shape: tuple[int, int, int],
    left_layout: Callable[[Tensor], Tensor],
    right_layout: Callable[[Tensor], Tensor],
) -> None:
    rows, depth, columns = shape
    generator = torch.Generator().manual_seed(rows)
    left, right = torch.randn(rows, depth, generator=generator), torch.randn(depth, columns, generator=generator)
    actual = matrix_product(left_layout(left), right_layout(right))
    torch.testing.assert_close(actual.double(), left.double() @ right.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_other_types_use_torchs_product(dtype: torch.dtype) -> None:
    left, right = torch.randn(4, 5, dtype=dtype), torch.randn(5, 6, dtype=dtype)
    assert torch.equal(matrix_product(left, right), left @ right)


def test_product_has_no_derivative() -> None:
    left, right = torch.randn(4, 5, requires_grad=True), torch.randn(5, 6)
    assert not matrix_product(left, right).requires_grad
    assert not matrix_product(left.double(), right.double()).requires_grad


def test_reference_needs_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_products, "linear", None)
    left, right = torch.randn(4, 5), torch.randn(5, 6)
    with use_backend("reference"):
        assert torch.equal(matrix_product(left, right), left @ right)
