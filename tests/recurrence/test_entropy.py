"""The cross-entropy is torch's, in value and gradient."""

from __future__ import annotations

import math

import pytest
import torch

from orthobench.recurrence import cross_entropy, use_backend
from orthobench.recurrence.cpu import call_c

pytestmark = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")


def outcome(logits: torch.Tensor, targets: torch.Tensor, weight: float) -> list[torch.Tensor]:
    leaf = logits.clone().requires_grad_()
    loss = cross_entropy(leaf, targets)
    (weight * loss).backward()
    assert leaf.grad is not None
    return [loss.detach().double(), leaf.grad.double()]


# Rows and classes: single ones, remainders of a vector of rows, and several parts of the sum.
@pytest.mark.usefixtures("runs_in_c")
@pytest.mark.parametrize(("shape", "weight"), [((1, 1), 1.0), ((5, 3, 9), 1.0), ((33, 50), 0.5), ((700, 20, 10), 1.0)])
def test_cross_entropy_matches_float64(shape: tuple[int, ...], weight: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(shape, generator=generator)
    targets = torch.randint(shape[-1], shape[:-1], generator=generator)
    with use_backend("cpu"):
        actual = outcome(logits, targets, weight)
    expected = outcome(logits.double(), targets, weight)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-6, atol=3e-7 / math.prod(shape[:-1]))


def test_large_and_invalid_logits_match() -> None:
    """Large logits do not overflow, an impossible target has infinite loss, and NaN stays."""
    targets = torch.tensor([0])
    assert cross_entropy(torch.tensor([[1e4, -1e4]]), targets) == 0
    assert cross_entropy(torch.tensor([[-1e4, 1e4]]), targets) == 2e4
    assert cross_entropy(torch.tensor([[-math.inf, 0.0]]), targets) == math.inf
    for bad in ([math.nan, 0.0], [0.0, math.nan], [0.0, math.inf]):
        assert not cross_entropy(torch.tensor([bad]), targets).isfinite()


def test_thread_count_changes_no_bit(restored_threads: None) -> None:
    logits = torch.randn(30_000, 10, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(30_000) % 10
    results = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        results.append(outcome(logits, targets, 1.0))
    for loss, gradient in results[1:]:
        assert torch.equal(loss, results[0][0])
        assert torch.equal(gradient, results[0][1])


@pytest.mark.parametrize("target", [-1, 3])
def test_target_outside_the_classes_is_refused(target: int) -> None:
    with pytest.raises(IndexError, match="outside"):
        cross_entropy(torch.zeros(4, 3), torch.tensor([0, 1, target, 2]))


def test_backward_pass_may_be_repeated() -> None:
    leaf = torch.zeros(4, 3, requires_grad=True)
    loss = cross_entropy(leaf, torch.zeros(4, dtype=torch.int64))
    for _ in range(2):
        (gradient,) = torch.autograd.grad(loss, leaf, retain_graph=True)
        torch.testing.assert_close(gradient, torch.tensor([[-2.0, 1.0, 1.0]]).expand(4, 3) / 12)
