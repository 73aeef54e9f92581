"""The input projection is torch's linear."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthobench.recurrence import project
from orthobench.recurrence.cpu import call_c

in_c = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")


@in_c
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 40), st.integers(1, 60), st.booleans(), st.booleans())
def test_projection_equals_torch_linear(
    steps: int, batch: int, m: int, n: int, has_bias: bool, batch_first: bool
) -> None:
    results = []
    torch.manual_seed(0)
    inputs, weight, way = torch.randn(steps, batch, m), torch.randn(n, m), torch.randn(steps, batch, n)
    bias = torch.randn(n) if has_bias else None
    if batch_first:
        inputs = inputs.transpose(0, 1).contiguous().transpose(0, 1)
    cases: list[tuple[Any, torch.dtype]] = [(project, torch.float32), (torch.nn.functional.linear, torch.float64)]
    for function, dtype in cases:
        tensors = [t.detach().to(dtype).requires_grad_() for t in (inputs, weight, bias) if t is not None]
        x = function(*tensors)
        assert function is not project or "Project" in type(x.grad_fn).__name__  # by the kernel, not by torch
        x.backward(way.to(dtype))
        results.append([x.detach(), *(t.grad for t in tensors)])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-4)


@in_c
@pytest.mark.usefixtures("restored_threads", "runs_in_c")
@pytest.mark.parametrize(("rows", "m", "n"), [(1600, 96, 96), (600, 70, 96), (600, 33, 9), (600, 9, 130)])
def test_rows_in_many_blocks_match(rows: int, m: int, n: int) -> None:
    """The first results have more than a million numbers in whole vectors, and are written around the caches."""
    torch.manual_seed(0)
    inputs, weight, bias, way = torch.randn(rows, 7, m), torch.randn(n, m), torch.randn(n), torch.randn(rows, 7, n)
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        leaf = inputs.clone().requires_grad_()
        x = project(leaf, weight, bias)
        x.backward(way)
        assert leaf.grad is not None
        results.append((x.detach(), leaf.grad))
    exact = (inputs.double() @ weight.double().T + bias, way.double() @ weight.double())
    for alone, shared, expected in zip(*results, exact, strict=True):
        torch.testing.assert_close(alone, shared, rtol=0, atol=0)
        torch.testing.assert_close(alone.double(), expected, rtol=1e-5, atol=1e-4)


def test_batch_first_with_one_sample_is_accepted() -> None:
    """The stride of an axis of length 1 is arbitrary."""
    weight = torch.randn(5, 4, requires_grad=True)
    inputs, way = torch.randn(1, 30, 4).transpose(0, 1), torch.randn(1, 30, 5).transpose(0, 1)
    project(inputs, weight).backward(way)
    torch.testing.assert_close(weight.grad, way[:, 0].T @ inputs[:, 0])


def test_only_requested_gradients_are_computed() -> None:
    inputs, weight = torch.randn(3, 2, 4, requires_grad=True), torch.randn(5, 4)
    project(inputs, weight).sum().backward()
    torch.testing.assert_close(inputs.grad, weight.sum(0).expand(3, 2, 4))
    with torch.no_grad():
        assert not project(inputs, weight).requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_types_use_torch(dtype: torch.dtype) -> None:
    inputs, weight = torch.randn(3, 2, 4).to(dtype), torch.randn(5, 4).to(dtype)
    assert torch.equal(project(inputs, weight), torch.nn.functional.linear(inputs, weight))


@in_c
def test_missing_kernels_fall_back_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, weight = torch.randn(3, 2, 4), torch.randn(5, 4, requires_grad=True)
    assert "Project" in type(project(inputs, weight).grad_fn).__name__
    monkeypatch.setattr(call_c, "missing", lambda: "not built")
    assert "Project" not in type(project(inputs, weight).grad_fn).__name__
