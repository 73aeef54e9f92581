"""The output map of a recurrence, which its loop computes in value and gradient, against float64 and autograd."""

from __future__ import annotations

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
    reading,
    recurrence,
    unread,
    use_backend,
)
from orthobench.recurrence.cpu import call_c, matrix_products

pytestmark = [pytest.mark.skipif(call_c.missing() is not None, reason="no C kernels"), pytest.mark.grid]


def leaves_of(n: int, batch: int, m: int, p: int) -> list[Tensor]:
    """U, its bias, W, h_0, V, c."""
    generator = torch.Generator().manual_seed(n + batch)
    sizes = (n, m), (n,), (n, n), (batch, n), (p, n), (p,)
    return [torch.randn(size, generator=generator, dtype=torch.float64) * 0.4 / size[-1] ** 0.5 for size in sizes]


def results(
    dtype: torch.dtype, steps: int, sizes: tuple[int, ...], uses: str = "y", in_loop: bool = True, **settings: Any
) -> list[Tensor]:
    """Return y, then the gradients of all leaves; float64 is the definition.

    `uses` names what the loss depends on: y, all states, or the final one. Without `in_loop` y is a product of its own.
    """
    _, batch, m, p = sizes
    generator = torch.Generator().manual_seed(steps)
    u = torch.randn(steps, batch, m, generator=generator, dtype=torch.float64).to(dtype)
    way = torch.randn(steps, batch, p, generator=generator, dtype=torch.float64).to(dtype)
    leaves = [leaf.to(dtype).requires_grad_() for leaf in leaves_of(*sizes)]
    input_weight, input_bias, weight, state, output_weight, bias = leaves
    exact = dtype is torch.float64
    x = torch.nn.functional.linear(u, input_weight, input_bias) if exact else Projection(u, input_weight, input_bias)
    with use_backend("reference" if exact else "cpu"), reading(output_weight, bias, in_loop=in_loop) as read:
        states, (final,) = recurrence(x, weight, (state,), **settings)
        y = torch.nn.functional.linear(states, output_weight, bias) if exact else read(states)
    assert exact or (y.grad_fn is states.grad_fn) is in_loop
    losses = {"y": (y * way).sum(), "states": states.square().sum(), "final": final.sum()}
    loss = torch.stack([losses[use] for use in uses.split()]).sum()
    return [y.detach(), *torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)]


def assert_agreement(steps: int, sizes: tuple[int, ...], exact: dict[str, Any] | None = None, **settings: Any) -> None:
    """Compare float32 with float64; `exact` are the settings in float64, if they differ."""
    expected = results(torch.float64, steps, sizes, **(exact or settings))
    for own, true in zip(results(torch.float32, steps, sizes, **settings), expected, strict=True):
        torch.testing.assert_close(own.double(), true, rtol=2e-5, atol=2e-5 * float(true.abs().max()))


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
@pytest.mark.parametrize(("steps", "sizes"), CASES)
def test_value_and_gradients_match(
    steps: int, sizes: tuple[int, ...], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    monkeypatch.setattr(matrix_products, "linear", pytest.fail)
    assert_agreement(steps, sizes, activation=TANH)


@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize(("steps", "sizes"), CASES)
def test_values_match_on_narrower_vectors(steps: int, sizes: tuple[int, ...]) -> None:
    """Without AVX-512, or without vector instructions; rows of y that fill vectors are written around the caches."""
    assert_agreement(steps, sizes, activation=TANH)


@pytest.mark.parametrize(
    "settings",
    [
        {"activation": TANH, "step_size": 0.1},
        {"activation": Activation(Kind.COMPLEX_MODRELU_SMOOTH, epsilon=0.01), "bias": torch.full((19,), 0.1)},
    ],
    ids=["euler", "complex"],
)
def test_other_settings_of_the_recurrence_match(settings: dict[str, Any]) -> None:
    exact = {name: value.double() if isinstance(value, Tensor) else value for name, value in settings.items()}
    assert_agreement(20, (38, 21, 2, 6), exact, **settings)


@pytest.mark.parametrize("uses", ["y states", "y final", "y states final", "states", "final"])
@pytest.mark.parametrize("sizes", [(38, 21, 2, 6), (420, 9, 4, 50)])
def test_other_uses_of_the_states_have_gradients_too(uses: str, sizes: tuple[int, ...]) -> None:
    assert_agreement(20, sizes, uses=uses, activation=TANH)


@pytest.mark.usefixtures("restored_threads")
def test_thread_count_changes_no_number() -> None:
    """Of modReLU, whose kink would show a difference; y is the same as from a product of its own."""
    for sizes in ((64, 50, 2, 9), (420, 9, 4, 50)):
        alike = []
        settings: dict[str, Any] = {"activation": MODRELU, "bias": torch.zeros(sizes[0])}
        for threads in (1, 2):
            torch.set_num_threads(threads)
            alike.append(results(torch.float32, 30, sizes, **settings))
        for first, second in zip(*alike, strict=True):
            assert torch.equal(first, second)
        assert torch.equal(alike[0][0], results(torch.float32, 30, sizes, in_loop=False, **settings)[0])


def small() -> tuple[Projection, tuple[Tensor]]:
    """Return inputs of 5 steps of 3 rows for 4 units, and their initial state."""
    return Projection(torch.randn(5, 3, 2), torch.randn(4, 2)), (torch.zeros(3, 4),)


def test_second_backward_is_refused_and_frozen_parameters_have_no_gradient() -> None:
    u, weight, state = torch.randn(5, 3, 2), torch.eye(4), torch.zeros(3, 4)
    input_weight, output_weight = torch.randn(4, 2), torch.randn(6, 4, requires_grad=True)
    with reading(output_weight, torch.zeros(6)) as read:
        states, _ = recurrence(Projection(u, input_weight.requires_grad_()), weight, (state,), activation=TANH)
    y = read(states)
    y.sum().backward()
    assert weight.grad is None
    assert input_weight.grad is not None
    torch.testing.assert_close(output_weight.grad, states.detach().sum((0, 1)).expand(6, 4))
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_other_features_are_mapped_by_a_product() -> None:
    (x, start), weight = small(), torch.eye(4).requires_grad_()
    output_weight, bias = torch.randn(6, 4), torch.randn(6)
    with reading(output_weight, bias) as read:
        plain, _ = recurrence(torch.randn(5, 3, 4), weight, start, activation=TANH)
        traced, _ = recurrence(x, weight, start, GradientTrace(), activation=TANH)
        states, (final,) = recurrence(x, weight, start, activation=TANH)
    for features in (final, traced, plain, states * 1, states.detach()):
        assert read(features).grad_fn is not states.grad_fn
        torch.testing.assert_close(read(features), torch.nn.functional.linear(features, output_weight, bias))
    assert read(states).grad_fn is states.grad_fn


def test_y_is_computed_where_it_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only inside a block, with as many columns as units, without a trace, and with gradients."""
    packed_rows = []
    pack, (x, start) = matrix_products.pack, small()

    def noting(weight: Tensor, gates: int = 1) -> Any:
        packed_rows.append(len(weight))
        return pack(weight, gates)

    monkeypatch.setattr(matrix_products, "pack", noting)

    def run(trace: GradientTrace | None = None) -> int:
        packed_rows.clear()
        recurrence(x, torch.eye(4).requires_grad_(), start, trace, activation=TANH)
        return packed_rows.count(6)

    with reading(torch.randn(6, 4), torch.zeros(6)):
        assert run() == 1
        assert run(GradientTrace()) == 0
        with torch.no_grad():
            assert run() == 0
        with unread():
            assert run() == 0
    assert run() == 0
    for size, kind in ((6, 5), torch.float32), ((6, 4), torch.float64), ((0, 4), torch.float32):
        with reading(torch.randn(size, dtype=kind), torch.zeros(size[0], dtype=kind)):
            assert run() == 0


def test_missing_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    (x, start), weight = small(), torch.eye(4).requires_grad_()
    monkeypatch.setattr(call_c, "missing", lambda: "not built")
    with reading(torch.ones(6, 4), torch.zeros(6)) as read:
        states, _ = recurrence(x, weight, start, activation=TANH)
    assert read(states).grad_fn is not states.grad_fn
    torch.testing.assert_close(read(states), states.sum(-1, keepdim=True).expand(5, 3, 6))
