"""The passes next to the recurrences take any strides, as torch does, and no shapes or types that do not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from orthobench.recurrence import (
    Projection,
    cross_entropy,
    gated_scan,
    gated_sum,
    head_norm,
    layer_norm,
    lstm,
    passes,
    project,
    reading,
    recurrence,
    short_convolution,
    skip_gelu,
    turned_heads,
    use_backend,
)
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.projection import matrix_product


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def mapped(u: Tensor, U: Tensor, V: Tensor, c: Tensor) -> Tensor:
    """Return an output map of a recurrence, which its loop computes."""
    with reading(V, c) as read:
        h, _ = recurrence(Projection(u.detach(), U), normal(4, 4, seed=9).to(u.dtype), (normal(2, 4).to(u.dtype),))
    return read(h)


def scan(skip: Tensor, gate: Projection) -> Tensor:
    """Return the outputs of a gated scan of 5 features over 4 steps of 2 rows."""
    shapes = (4, 2, 5), (8, 5), (2, 15), (15,), (5, 2), (5,)
    x, weight, state, rates, *step = (normal(*shape).to(skip.dtype) for shape in shapes)
    parameters = {"rates": -rates.exp(), "step_weight": step[0], "step_bias": step[1], "state_size": 3}
    return gated_scan(x, weight, (state,), None, skip, gate, **parameters)[0]


def turned(cosine: Tensor, sine: Tensor) -> Tensor:
    """Return two heads of 3 features, turned."""
    return turned_heads(u, normal(3), normal(2, 3), cosine, sine, 0.1)


u = normal(4, 2, 3)
WRONG: dict[str, Callable[[], Tensor]] = {
    "project, more columns": lambda: project(u, normal(5, 4)),
    "project, fewer columns": lambda: project(u, normal(5, 2)),
    "project, bias": lambda: project(u, normal(5, 3), normal(3)),
    "project, type of the bias": lambda: project(u, normal(5, 3), normal(5).double()),
    "product": lambda: matrix_product(normal(3, 4), normal(5, 2)),
    "reading, columns": lambda: mapped(u, normal(4, 3), normal(7, 5), normal(7)),
    "reading, bias": lambda: mapped(u, normal(4, 3).requires_grad_(), normal(7, 4), normal(6)),
    "layer_norm, longer": lambda: layer_norm(u, normal(4), normal(4)),
    "layer_norm, shorter": lambda: layer_norm(u, normal(2), normal(2)),
    "skip_gelu, batch": lambda: skip_gelu(u, normal(3), normal(3, 2, 3)),
    "skip_gelu, skip": lambda: skip_gelu(u, normal(2), u),
    "gated_sum, no gates": lambda: gated_sum(normal(4, 2, 4), normal(4, 2, 4)),
    "gated_sum, batch": lambda: gated_sum(u, normal(2, 2, 6)),
    "short_convolution, too little before": lambda: short_convolution(u, normal(4, 3), normal(1, 2, 3)),
    "short_convolution, too much before": lambda: short_convolution(u, normal(3, 3), normal(4, 2, 3)),
    "short_convolution, features": lambda: short_convolution(u, normal(4, 2), normal(3, 2, 3)),
    "head_norm, heads": lambda: head_norm(u, normal(2), 1e-5),
    "head_norm, gate": lambda: head_norm(normal(4, 2, 6), normal(3), 1e-5, normal(4, 2, 5)),
    "head_norm, gate's rows": lambda: head_norm(normal(4, 2, 6), normal(3), 1e-5, Projection(u, normal(5, 3))),
    "head_norm, gate's columns": lambda: head_norm(normal(4, 2, 6), normal(3), 1e-5, Projection(u, normal(6, 2))),
    "turned_heads, heads": lambda: turned(normal(4, 2, 5, 1), normal(4, 2, 5, 1)),
    "turned_heads, pairs": lambda: turned(normal(4, 2, 2, 2), normal(4, 2, 2, 2)),
    "turned_heads, sine": lambda: turned(normal(4, 2, 2, 1), normal(4, 2, 5, 1)),
    "gated_scan, skip": lambda: scan(normal(4), Projection(u, normal(5, 3))),
    "gated_scan, gate's rows": lambda: scan(normal(5), Projection(u, normal(6, 3))),
    "gated_scan, gate's columns": lambda: scan(normal(5), Projection(u, normal(5, 2))),
    "gated_scan, gate's batch": lambda: scan(normal(5), Projection(normal(4, 3, 3), normal(5, 3))),
    "cross_entropy, too few targets": lambda: cross_entropy(normal(4, 5), torch.arange(3)),
    "cross_entropy, other order": lambda: cross_entropy(normal(4, 2, 5), torch.zeros(2, 4, dtype=torch.int64)),
    "cross_entropy, int32": lambda: cross_entropy(normal(4, 5), torch.arange(4, dtype=torch.int32)),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_incompatible_arguments_are_refused_as_by_torch(call: Callable[[], Tensor]) -> None:
    errors = []
    for backend in ("reference", "auto"):
        with use_backend(backend), pytest.raises((RuntimeError, ValueError)) as caught:
            call()
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: project(u, normal(5, 3), normal(1)), lambda: functional.linear(u, normal(5, 3)) + normal(1)),
        (lambda: skip_gelu(u, normal(3), normal(1, 2, 3)), lambda: functional.gelu(u + normal(3) * normal(1, 2, 3))),
        (lambda: skip_gelu(u, normal(3), normal(3)), lambda: functional.gelu(u + normal(3) * normal(3))),
        (lambda: gated_sum(u, normal(1, 2, 6)), lambda: u + functional.glu(normal(1, 2, 6))),
        (lambda: gated_sum(normal(3), normal(4, 2, 6)), lambda: normal(3) + functional.glu(normal(4, 2, 6))),
    ],
)
def test_broadcast_arguments_match_torch(call: Callable[[], Tensor], expected: Callable[[], Tensor]) -> None:
    torch.testing.assert_close(call(), expected())


# ---------------------------------------------------------------------- strides


def strided(values: Tensor) -> Tensor:
    """Return the values in every second element of memory."""
    memory = torch.full((*values.shape, 2), torch.nan)
    memory[..., 1] = values
    return memory[..., 1]


def misaligned(values: Tensor) -> Tensor:
    """Return the values one element after an aligned address."""
    memory = torch.full((values.numel() + 1,), torch.nan)
    memory[1:] = values.flatten()
    return memory[1:].view(values.shape)


def transposed(values: Tensor) -> Tensor:
    """Return the values in memory with the first axis last."""
    return values.movedim(0, -1).contiguous().movedim(-1, 0)


def expanded(values: Tensor) -> Tensor:
    """Return the first value for all, all axes with a stride of 0."""
    return values.flatten()[0].clone().expand(values.shape)


PASSES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "project": (project, functional.linear, [(4, 2, 3), (5, 3), (5,)]),
    "project of one input": (project, functional.linear, [(4, 2, 1), (5, 1), (5,)]),
    "reading": (mapped, mapped, [(4, 2, 3), (4, 3), (7, 4), (7,)]),
    "layer_norm": (
        layer_norm,
        lambda x, weight, bias: functional.layer_norm(x, weight.shape, weight, bias),
        [(4, 2, 19), (19,), (19,)],
    ),
    "skip_gelu": (skip_gelu, lambda x, skip, v: functional.gelu(x + skip * v), [(4, 2, 19), (19,), (4, 2, 19)]),
    "gated_sum": (gated_sum, lambda x, values: x + functional.glu(values), [(4, 2, 19), (4, 2, 38)]),
    "short_convolution": (short_convolution, passes.convolution.in_pytorch, [(9, 2, 5), (3, 5), (2, 2, 5), (5,)]),
    "head_norm": (
        lambda y, weight, gate: head_norm(y, weight, 0.1, gate),
        lambda y, weight, gate: passes.head_norm.in_pytorch(y, weight, 0.1, gate),
        [(4, 2, 6), (3,), (4, 2, 6)],
    ),
    "head_norm with a projection": (
        lambda y, weight, u, U: head_norm(y, weight, 0.1, Projection(u.detach(), U)),
        lambda y, weight, u, U: passes.head_norm.in_pytorch(y, weight, 0.1, Projection(u.detach(), U)),
        [(4, 2, 6), (3,), (4, 2, 2), (6, 2)],
    ),
    "turned_heads": (
        lambda x, weight, bias, cosine, sine: turned_heads(x, weight, bias, cosine, sine, 0.1),
        lambda x, weight, bias, cosine, sine: passes.turned_heads.in_pytorch(x, weight, bias, cosine, sine, 0.1),
        [(4, 2, 7), (7,), (3, 7), (4, 2, 3, 2), (4, 2, 3, 2)],
    ),
    "gated_scan": (
        lambda skip, u, U, c: scan(skip, Projection(u, U, c)),
        lambda skip, u, U, c: scan(skip, Projection(u, U, c)),
        [(5,), (4, 2, 3), (5, 3), (5,)],
    ),
    "cross_entropy": (
        lambda logits: cross_entropy(logits, torch.arange(8).view(4, 2)),
        lambda logits: functional.cross_entropy(logits.flatten(0, 1), torch.arange(8)),
        [(4, 2, 9)],
    ),
    "lstm with a projection": (
        lambda u, U, b: lstm(Projection(u, U, b), normal(16, 4).to(u.dtype), 2 * (normal(2, 4).to(u.dtype),))[0],
        lambda u, U, b: lstm(functional.linear(u, U, b), normal(16, 4).to(u.dtype), 2 * (normal(2, 4).to(u.dtype),))[0],
        [(4, 2, 3), (16, 3), (16,)],
    ),
}


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("layout", [strided, misaligned, transposed, expanded])
def test_any_strides_of_any_argument_are_accepted(name: str, layout: Callable[[Tensor], Tensor]) -> None:
    function, definition, shapes = PASSES[name]
    for which in range(len(shapes)):
        arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        arguments[which] = layout(arguments[which])
        results = []
        for run, dtype in ((function, torch.float32), (definition, torch.float64)):
            leaves = [each.detach().to(dtype).requires_grad_() for each in arguments]
            values = run(*leaves)
            way = normal(*values.shape, seed=20)
            if dtype is torch.float32:
                assert [leaf.stride() for leaf in leaves] == [each.stride() for each in arguments]
                way = way if layout is expanded or not way.dim() else layout(way)
            gradients = torch.autograd.grad(values, leaves, way.to(dtype), allow_unused=True)
            results.append([values.detach(), *(each for each in gradients if each is not None)])
        for actual, expected in zip(*results, strict=True):
            torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PASSES)
def test_second_derivatives_of_a_sum_are_refused(name: str) -> None:
    function, _, shapes = PASSES[name]
    leaves = [normal(*shape).requires_grad_() for shape in shapes]
    plain = torch.autograd.grad(function(*leaves).sum(), leaves, allow_unused=True)
    gradients = torch.autograd.grad(function(*leaves).sum(), leaves, create_graph=True, allow_unused=True)
    assert all(mine is other or torch.equal(mine, other) for mine, other in zip(gradients, plain, strict=True))
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.stack([each.square().sum() for each in gradients if each is not None]).sum().backward()


@pytest.mark.parametrize("tensor", [normal(3).double(), normal(3, 2)[:, 0], torch.arange(3), normal(3).to("meta")])
def test_kernel_reads_only_its_own_memory(tensor: Tensor) -> None:
    with pytest.raises(TypeError, match=r"takes contiguous torch.float32 on the CPU, not"):
        call_c.pointer(tensor)
