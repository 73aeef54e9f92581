"""The hand-written backward pass in PyTorch against autograd's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orthobench.recurrence import Activation, Kind, portable, recurrence


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 9), st.integers(0, 1000))
def test_is_the_reference(case: Any, agree: Any, steps: int, batch: int, n: int, seed: int) -> None:
    arguments = case.arguments(steps, batch, n, seed)
    assume(case.margin(arguments) > 1e-5)
    agree(portable, case, arguments, torch.float64, 1e-12)
    agree(portable, case, arguments, torch.float32, case.tolerance)


def test_takes_column_major_weights(case: Any, agree: Any) -> None:
    arguments = case.arguments(4, 3, 6, seed=5)
    arguments[1] = arguments[1].T.contiguous().T
    agree(portable, case, arguments, torch.float64, 1e-12)


def test_leaky_relu_that_turns_its_sign(agree: Any) -> None:
    """What the C kernels do not serve."""
    generator = torch.Generator().manual_seed(0)
    x, weight, h0 = (torch.randn(*shape, generator=generator).double() for shape in ((4, 3, 6), (6, 6), (3, 6)))
    arguments = [x, weight / 3, h0, Activation(Kind.LEAKY_RELU, slope=-0.5), None, None]
    agree(portable, SimpleNamespace(op="recurrence"), arguments, torch.float64, 1e-12)


def test_double_backward_is_refused() -> None:
    x = torch.randn(3, 2, 4, requires_grad=True)
    states = recurrence(x, torch.eye(4), torch.zeros(2, 4), backend="portable")
    (gradient,) = torch.autograd.grad(states.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
