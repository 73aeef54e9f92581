"""The output map of a recurrence's states, whose gradient the backward loop makes, against float64 and autograd."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from orthobench.recurrence import (
    MODRELU,
    TANH,
    Activation,
    GradientTrace,
    Kind,
    Projection,
    project,
    read,
    reading,
    recurrence,
    use_backend,
)
from orthobench.recurrence.cpu import native

pytestmark = [pytest.mark.skipif(native.missing() is not None, reason="no C kernels"), pytest.mark.grid]


def leaves_of(n: int, batch: int, m: int, p: int) -> list[Tensor]:
    """U, its bias, W, h_0, V, c."""
    generator = torch.Generator().manual_seed(n + batch)
    sizes = (n, m), (n,), (n, n), (batch, n), (p, n), (p,)
    return [torch.randn(size, generator=generator, dtype=torch.float64) * 0.4 / size[-1] ** 0.5 for size in sizes]


def results(
    dtype: torch.dtype, steps: int, sizes: tuple[int, ...], uses: str = "", in_loop: bool = False, **settings: Any
) -> list[Tensor]:
    """y, then the gradients of all leaves; float64 is the definition.

    `uses` names other uses of the states. With `in_loop` the loop makes y.
    """
    _, batch, m, p = sizes
    generator = torch.Generator().manual_seed(steps)
    u = torch.randn(steps, batch, m, generator=generator, dtype=torch.float64).to(dtype)
    way = torch.randn(steps, batch, p, generator=generator, dtype=torch.float64).to(dtype)
    leaves = [leaf.to(dtype).requires_grad_() for leaf in leaves_of(*sizes)]
    input_weight, input_bias, weight, state, output_weight, bias = leaves
    exact = dtype is torch.float64
    x = torch.nn.functional.linear(u, input_weight, input_bias) if exact else Projection(u, input_weight, input_bias)
    with use_backend("reference" if exact else "cpu"):
        with reading(output_weight, bias) if in_loop else nullcontext():
            states, (final,) = recurrence(x, weight, (state,), **settings)
        y = torch.nn.functional.linear(states, output_weight, bias) if exact else read(states, output_weight, bias)
    assert exact or type(y.grad_fn).__name__ == "_ReadBackward"
    loss = (y * way).sum()
    loss = loss + states.square().sum() if "states" in uses else loss
    loss = loss + final.sum() if "final" in uses else loss
    return [y.detach(), *torch.autograd.grad(loss, leaves)]


CASES = [
    (1, (5, 1, 1, 1)),
    (3, (38, 17, 5, 7)),
    (9, (16, 32, 2, 16)),
    (70, (33, 20, 3, 9)),
    (40, (170, 64, 1, 10)),
    (7, (420, 9, 4, 50)),  # its weight gradients do not fit the cache
    (4, (800, 15, 3, 33)),  # the panels of W are fetched ahead
]


@pytest.mark.usefixtures("restored_threads")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("in_loop", [False, True])
@pytest.mark.parametrize(("steps", "sizes"), CASES)
def test_value_and_gradients(
    steps: int, sizes: tuple[int, ...], in_loop: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    if in_loop:
        monkeypatch.setattr(native, "linear", pytest.fail)
    actual = results(torch.float32, steps, sizes, in_loop=in_loop, activation=TANH)
    for own, exact in zip(actual, results(torch.float64, steps, sizes, activation=TANH), strict=True):
        torch.testing.assert_close(own.double(), exact, rtol=2e-5, atol=2e-5 * float(exact.abs().max()))


@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize(("steps", "sizes"), CASES)
def test_lesser_machines(steps: int, sizes: tuple[int, ...]) -> None:
    """Without AVX-512, or without vector instructions; rows of y that fill vectors are written around the caches."""
    actual = results(torch.float32, steps, sizes, in_loop=True, activation=TANH)
    for own, exact in zip(actual, results(torch.float64, steps, sizes, activation=TANH), strict=True):
        torch.testing.assert_close(own.double(), exact, rtol=2e-5, atol=2e-5 * float(exact.abs().max()))


@pytest.mark.parametrize(
    "settings",
    [
        {"activation": TANH, "step_size": 0.1},
        {"activation": Activation(Kind.COMPLEX_MODRELU_SMOOTH, epsilon=0.01), "bias": torch.full((19,), 0.1)},
    ],
    ids=["euler", "complex"],
)
def test_other_forms_of_the_recurrence(settings: dict[str, Any]) -> None:
    sizes = (38, 21, 2, 6)
    exact = {name: value.double() if isinstance(value, Tensor) else value for name, value in settings.items()}
    expected = results(torch.float64, 20, sizes, **exact)
    for own, true in zip(results(torch.float32, 20, sizes, in_loop=True, **settings), expected, strict=True):
        torch.testing.assert_close(own.double(), true, rtol=2e-5, atol=2e-5 * float(true.abs().max()))


@pytest.mark.parametrize("uses", ["states", "final", "states final"])
def test_other_uses_of_the_states_have_their_gradients_too(uses: str) -> None:
    sizes = (38, 21, 2, 6)
    expected = results(torch.float64, 20, sizes, uses, activation=TANH)
    for own, true in zip(results(torch.float32, 20, sizes, uses, activation=TANH), expected, strict=True):
        torch.testing.assert_close(own.double(), true, rtol=2e-5, atol=2e-5 * float(true.abs().max()))


@pytest.mark.usefixtures("restored_threads")
def test_no_number_depends_on_the_threads_or_on_what_makes_y() -> None:
    """Of modReLU, whose kink would show a difference."""
    for sizes in ((64, 50, 2, 9), (420, 9, 4, 50)):
        alike = []
        for threads, in_loop in ((1, False), (2, False), (1, True), (2, True)):
            torch.set_num_threads(threads)
            settings = {"in_loop": in_loop, "activation": MODRELU, "bias": torch.zeros(sizes[0])}
            alike.append(results(torch.float32, 30, sizes, **settings))
        for first, *others in zip(*alike, strict=True):
            assert all(torch.equal(first, other) for other in others)


def test_twice_backward_is_refused_and_frozen_parameters_have_no_gradient() -> None:
    u, weight, state = torch.randn(5, 3, 2), torch.eye(4), torch.zeros(3, 4)
    input_weight, output_weight = torch.randn(4, 2), torch.randn(6, 4, requires_grad=True)
    states, _ = recurrence(Projection(u, input_weight.requires_grad_()), weight, (state,), activation=TANH)
    y = read(states, output_weight, torch.zeros(6))
    y.sum().backward()
    assert weight.grad is None
    assert input_weight.grad is not None
    torch.testing.assert_close(output_weight.grad, states.detach().sum((0, 1)).expand(6, 4))
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_what_the_loop_does_not_read_is_projected() -> None:
    u, weight, state = torch.randn(5, 3, 2), torch.eye(4).requires_grad_(), torch.zeros(3, 4)
    projection, output_weight, bias = Projection(u, torch.randn(4, 2)), torch.randn(6, 4), torch.randn(6)
    states, (final,) = recurrence(projection, weight, (state,), activation=TANH)
    traced, _ = recurrence(projection, weight, (state,), GradientTrace(), activation=TANH)
    plain, _ = recurrence(torch.randn(5, 3, 4), weight, (state,), activation=TANH)
    for features in (final, traced, plain, states * 1, states.detach(), states.double()):
        kind = features.dtype
        y = read(features, output_weight.to(kind), bias.to(kind))
        assert "_Read" not in type(y.grad_fn).__name__
        torch.testing.assert_close(y, torch.nn.functional.linear(features, output_weight.to(kind), bias.to(kind)))
    with torch.no_grad():
        assert read(states, output_weight, bias).grad_fn is None


def test_y_of_other_tensors_is_made_anew() -> None:
    """V or c may be other tensors, or may have changed since the loop made y; and y is given away once."""
    weight, bias = torch.randn(6, 4), torch.randn(6)

    def change(tensor: Tensor) -> Tensor:
        return tensor.mul_(2)

    def other(tensor: Tensor) -> Tensor:
        return tensor * 2

    for touch in (change, other):
        for index in (0, 1):
            maps = [weight.clone(), bias.clone()]
            with reading(*maps):
                states = recurrence(
                    Projection(torch.randn(5, 3, 2), torch.randn(4, 2)),
                    torch.eye(4).requires_grad_(),
                    (torch.zeros(3, 4),),
                    activation=TANH,
                )[0]
            maps[index] = touch(maps[index])
            expected = torch.nn.functional.linear(states, *maps)
            first, second = read(states, *maps), read(states, *maps)
            torch.testing.assert_close(first, expected)
            first.detach().zero_()
            torch.testing.assert_close(second, expected)
            torch.testing.assert_close(read(states, *maps), expected)


def test_y_is_made_where_it_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only outside a context, with as many columns as units, and with gradients."""
    packed_rows = []
    pack, u, state = native.pack, torch.randn(5, 3, 2), torch.zeros(3, 4)
    monkeypatch.setattr(
        native, "pack", lambda weight, gates=1: (packed_rows.append(len(weight)), pack(weight, gates))[1]
    )

    def run(trace: GradientTrace | None = None) -> int:
        packed_rows.clear()
        recurrence(Projection(u, torch.randn(4, 2)), torch.eye(4).requires_grad_(), (state,), trace, activation=TANH)
        return packed_rows.count(6)

    with reading(torch.randn(6, 4), torch.zeros(6)):
        assert run() == 1
        assert run(GradientTrace()) == 0
        with torch.no_grad():
            assert run() == 0
    assert run() == 0
    for size, kind in ((6, 5), torch.float32), ((6, 4), torch.float64), ((0, 4), torch.float32):
        with reading(torch.randn(size, dtype=kind), torch.zeros(size[0], dtype=kind)):
            assert run() == 0


def test_the_first_of_several_readers_has_a_tensor_of_its_own() -> None:
    weight, bias = torch.randn(6, 4), torch.randn(6)
    with reading(weight, bias):
        projection = Projection(torch.randn(5, 3, 2), torch.randn(4, 2))
        states, _ = recurrence(projection, torch.eye(4).requires_grad_(), (torch.zeros(3, 4),), activation=TANH)
    first, second = read(states, weight, bias), read(states, weight, bias)
    assert torch.equal(first, second)
    first.detach().zero_()
    assert second.abs().min() > 0


def test_a_wrong_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    u, weight, state = torch.randn(5, 3, 2), torch.eye(4).requires_grad_(), torch.zeros(3, 4)
    states, _ = recurrence(Projection(u, torch.randn(4, 2)), weight, (state,), activation=TANH)
    monkeypatch.setattr(native, "_failures", lambda: frozenset({"readout"}))
    assert "_Read" not in type(read(states, torch.randn(6, 4), torch.zeros(6)).grad_fn).__name__
    assert torch.equal(
        read(states, torch.ones(6, 4), torch.zeros(6)), project(states, torch.ones(6, 4), torch.zeros(6))
    )
