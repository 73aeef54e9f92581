"""The passes around a recurrence, and the optimisers, in C: for tensors that C cannot read, torch's operations run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

from orthobench.matrices.skew import scaled_cayley, skew
from orthobench.recurrence import project
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.passes.convolution import short_convolution
from orthobench.recurrence.passes.cross_entropy import cross_entropy
from orthobench.recurrence.passes.gated_sum import gated_sum, skip_gelu
from orthobench.recurrence.passes.head_norm import head_norm
from orthobench.recurrence.passes.layer_norm import layer_norm
from orthobench.recurrence.passes.turned_heads import turned_heads
from orthobench.recurrence.projection import add_to_first
from orthobench.training.optimizers import Adam

pytestmark = [
    pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)"),
    pytest.mark.filterwarnings("ignore"),  # of torch's own modes
]
T, B, N = 3, 2, 4
TARGETS = torch.arange(T * B).reshape(T, B) % N
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0])
PASSES: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "project": (project, [(T, B, N), (5, N), (5,)]),
    "layer_norm": (layer_norm, [(T, B, N), (N,), (N,)]),
    "skip_gelu": (skip_gelu, [(T, B, N), (N,), (T, B, N)]),
    "gated_sum": (gated_sum, [(T, B, N), (T, B, 2 * N)]),
    "cross_entropy": (lambda logits: cross_entropy(logits, TARGETS), [(T, B, N)]),
    "short_convolution": (short_convolution, [(T, B, N), (3, N), (2, B, N), (N,)]),
    "head_norm": (lambda y, w, gate: head_norm(y, w, 1e-3, gate), [(T, B, N), (2,), (T, B, N)]),
    "turned_heads": (
        lambda x, w, b, c, s: turned_heads(x, w, b, c, s, 1e-3),
        [(T, B, N), (N,), (2, N), (T, B, 2, 2), (T, B, 2, 2)],
    ),
    "add_to_first": (lambda x, addend: add_to_first(x * 1, addend), [(T, B, N), (B, N)]),
    "scaled_cayley": (lambda upper: scaled_cayley(upper, SIGNS), [(N * (N - 1) // 2,)]),
}
each_pass = pytest.mark.parametrize("name", PASSES)


def inputs_of(name: str, dtype: torch.dtype = torch.float32, strided: bool = False) -> list[Tensor]:
    """Random arguments that need gradients; `strided` ones are not contiguous."""
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in PASSES[name][1]]
    if strided:
        tensors = [torch.stack((each, each), dim=-1)[..., 0] for each in tensors]
    return [each.requires_grad_() for each in tensors]


def run(name: str, arguments: list[Tensor]) -> Tensor:
    return PASSES[name][0](*arguments)


@each_pass
@pytest.mark.parametrize("strided", [False, True])
def test_second_derivatives_are_right_or_refused(strided: bool, name: str) -> None:
    options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}

    def second(dtype: torch.dtype, index: int) -> Tensor:
        arguments = inputs_of(name, dtype, strided)
        loss = run(name, arguments).square().sum()
        gradients = torch.autograd.grad(loss, arguments, create_graph=True, **options)
        penalty = sum((each.square().sum() for each in gradients), torch.zeros(()))
        result: Tensor = torch.autograd.grad(penalty, arguments[index], **options)[0]
        return result

    for index in range(len(PASSES[name][1])):
        try:
            derivative = second(torch.float32, index)
        except RuntimeError as error:
            if "first derivatives only" not in str(error):
                raise
        else:
            torch.testing.assert_close(derivative.double(), second(torch.float64, index), rtol=1e-3, atol=1e-4)


@each_pass
def test_fake_tensors_have_shapes(name: str) -> None:
    arguments = [each.detach() for each in inputs_of(name)]
    expected, mode = run(name, arguments), FakeTensorMode(allow_non_fake_inputs=True)
    fake: list[Tensor] = [mode.from_tensor(each) for each in arguments]
    with mode:
        assert run(name, fake).shape == expected.shape
    assert run(name, fake).shape == expected.shape
    assert run(name, arguments).equal(expected)


@each_pass
def test_negative_bits_are_resolved(name: str) -> None:
    results = []
    for sign in (torch.neg, torch._neg_view):
        arguments = inputs_of(name)
        output = run(name, [sign(each) for each in arguments])
        results.append([output, *torch.autograd.grad(output, arguments, sign(torch.ones_like(output)))])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@each_pass
def test_tangents_are_those_of_a_difference_quotient(name: str) -> None:
    arguments = [each.detach() for each in inputs_of(name)]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(each, torch.ones_like(each)) for each in arguments]
        tangent = forward_ad.unpack_dual(run(name, duals)).tangent
    step = 1e-5
    plus, minus = (run(name, [each.double() + sign * step for each in arguments]) for sign in (1, -1))
    torch.testing.assert_close(tangent.double(), (plus - minus) / (2 * step), rtol=1e-3, atol=1e-4)


def test_memory_that_was_freed_is_refused() -> None:
    x = torch.ones(4)
    x.untyped_storage().resize_(0)
    for take in (call_c.pointer, lambda tensor: call_c.bind("linear", bias=tensor)):
        with pytest.raises(TypeError, match="a C kernel takes tensors in memory"):
            take(x)
    assert call_c.pointer(torch.empty(0)) is None


@pytest.mark.parametrize("place", ["weight", "gradient"])
def test_optimiser_steps_negative_bits_as_torch_does(place: str) -> None:
    weights = []
    for optimizer, sign in ((Adam, torch._neg_view), (torch.optim.Adam, torch.neg)):
        weight = torch.nn.Parameter(sign(torch.arange(1.0, 5.0)) if place == "weight" else torch.ones(4))
        steps = optimizer([weight], lr=0.1)
        for _ in range(3):
            weight.grad = torch.ones(4) if place == "weight" else sign(torch.arange(1.0, 5.0))
            steps.step()
        weights.append(copy.deepcopy(weight.detach()).resolve_neg())
    torch.testing.assert_close(*weights)


@pytest.mark.parametrize("first", ["inference mode", "fake tensors"])
def test_tables_of_indices_do_not_keep_the_mode_of_their_first_use(first: str) -> None:
    size = {"inference mode": 21, "fake tensors": 22}[first]  # used by no other test
    upper = torch.randn(size * (size - 1) // 2, requires_grad=True)
    with torch.inference_mode() if first == "inference mode" else FakeTensorMode(allow_non_fake_inputs=True):
        skew(upper.detach(), size)
    skew(upper, size)[0].sum().backward()
    assert upper.grad is not None
    assert upper.grad.equal((torch.arange(len(upper)) < size - 1).float())  # of the first row
