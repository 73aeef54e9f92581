"""The selective scan's kernel that makes x from a convolution, and its weights from x, against the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import linear

from orthobench.recurrence import Convolution, GradientTrace, Projection, kernels, reference, selective_scan
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.ops.selective.cuda import SelectiveScan
from orthobench.recurrence.passes.convolution import in_pytorch

pytestmark = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
Run = Callable[[Call], Result]


def results_of(
    run: Run, dtype: torch.dtype, sizes: dict[str, Any], inputs: int, taps: int, has_bias: bool, maps: bool
) -> dict[str, Tensor]:
    """Outputs, final state, norms, and the gradients by everything that is not an input of a projection."""
    steps, batch, width, size, rank = (sizes[name] for name in ("steps", "batch", "width", "size", "rank"))
    numbers = rank + 2 * size
    generator = torch.Generator().manual_seed(sizes["seed"])

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    leaves = {
        "weight": normal(numbers, width) if maps else normal(steps, batch, numbers),
        "start": normal(batch, size * width),
        "rates": (-normal(size * width).detach().exp()).requires_grad_(),
        "step_weight": normal(width, rank),
        "step_bias": normal(width),
        "taps": normal(taps, width),
        "before": normal(taps - 1, batch, width),
    }
    source: Any = normal(steps, batch, inputs or width)
    if inputs:
        leaves["U"], source = normal(width, inputs), source.detach()
    else:
        leaves["x"] = source
    if has_bias:
        leaves["bias"] = normal(width)
    weight, bias = leaves["weight"], leaves.get("bias")
    x: Any = Convolution(Projection(source, leaves["U"]) if inputs else source, leaves["taps"], leaves["before"], bias)
    if run is reference.run:
        x = in_pytorch(linear(source, leaves["U"]) if inputs else source, leaves["taps"], leaves["before"], bias)
        weight = linear(x, weight) if maps else weight
    trace = GradientTrace()
    call = selective_scan.call(
        x, weight, (leaves["start"],), trace,
        leaves["rates"], leaves["step_weight"], leaves["step_bias"], size, sizes["negative"], sizes["reads"],
    )  # fmt: skip
    if run is cpu.run:
        assert cpu.makes(call)
    y, (final,) = run(call)
    assert y.shape == (steps, batch, width if sizes["reads"] else 0)
    results = {"y": y, "final": final} if sizes["reads"] else {"final": final}
    ways = [torch.randn(result.shape, generator=generator).to(dtype) for result in results.values()]
    gradients = torch.autograd.grad([*results.values()], [*leaves.values()], ways, allow_unused=not sizes["reads"])
    named = {
        name: torch.zeros_like(leaves[name]) if g is None else g for name, g in zip(leaves, gradients, strict=True)
    }
    values = {name: result.detach() for name, result in results.items()}
    return values | {f"gradient of {name}": each for name, each in named.items()} | {"norms": trace.norms["h"]}


def assert_agrees(sizes: dict[str, Any], inputs: int, taps: int, has_bias: bool, maps: bool) -> None:
    form = (sizes, inputs, taps, has_bias, maps)
    actual, expected = results_of(cpu.run, torch.float32, *form), results_of(reference.run, torch.float64, *form)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        scale = float(value.norm()) + 0.1 * value.numel() ** 0.5
        assert float((actual[name].double() - value).norm()) <= 5e-5 * scale, name


@settings(max_examples=60, deadline=None)
@given(
    inputs=st.sampled_from([0, 1, 2, 8]),
    taps=st.sampled_from([2, 4, 7, 8]),
    has_bias=st.booleans(),
    maps=st.booleans(),
    steps=st.sampled_from([1, 2, 3, 8, 16, 17, 40]),
    batch=st.integers(1, 13),
    width=st.integers(1, 40),
    size=st.sampled_from([1, 5, 16]),
    rank=st.integers(1, 9),
    negative=st.booleans(),
    reads=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_kernel_computes_the_inputs(inputs: int, taps: int, has_bias: bool, maps: bool, **sizes: Any) -> None:
    """In value, gradient and trace: whole chunks and a rest, sequences shorter than the convolution too."""
    assert_agrees(sizes, inputs, taps, has_bias, maps)


SIZES = {"width": 37, "size": 5, "rank": 3, "negative": True, "reads": True, "seed": 3}


@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize(("inputs", "taps", "maps"), [(0, 4, True), (2, 3, False), (1, 4, True)])
def test_kernel_computes_the_inputs_on_narrower_vectors(inputs: int, taps: int, maps: bool) -> None:
    assert_agrees({**SIZES, "steps": 19, "batch": 4}, inputs, taps, True, maps)


@pytest.mark.parametrize("inputs", [0, 1])
def test_thread_count_does_not_change_the_inputs(inputs: int, restored_threads: None) -> None:
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        form = ({**SIZES, "steps": 70, "batch": 9}, inputs, 4, True, True)
        results.append(results_of(cpu.run, torch.float32, *form))
    for result in results[1:]:
        assert all(torch.equal(value, results[0][name]) for name, value in result.items())


def test_unsupported_inputs_are_computed_beforehand() -> None:
    """Too many taps or inputs, a bias of the projection, and inputs that need a gradient."""
    generator = torch.Generator().manual_seed(4)
    width, size, rank = 6, 2, 1
    forms = ((9, 4, False, False), (2, 9, False, False), (2, 4, True, False), (2, 4, False, True))
    for inputs, taps, has_bias, needs_gradient in forms:
        shapes = [(12, 2, inputs), (width, inputs), (width,), (taps, width), (taps - 1, 2, width), (width,)]
        shapes += [(rank + 2 * size, width), (2, size * width), (width, rank), (width,)]
        u, weight, bias, *filters, selection, start, step_weight, step_bias = (
            torch.randn(*shape, generator=generator) for shape in shapes
        )
        others = ((start,), None, -torch.ones(size * width), step_weight, step_bias, size)
        source = Projection(u.requires_grad_(needs_gradient), weight, bias if has_bias else None)
        x = Convolution(source, *filters)
        assert not cpu.makes(selective_scan.call(x, selection, *others))
        actual, _ = selective_scan(x, selection, *others)
        inputs_of_scan = in_pytorch(linear(u, weight, source.bias), *filters)
        call = selective_scan.call(inputs_of_scan, linear(inputs_of_scan, selection), *others)
        torch.testing.assert_close(actual, reference.run(call)[0], rtol=1e-4, atol=1e-4)


def test_chunks_without_readings_match() -> None:
    """The kernel for CUDA returns outputs of 0 features, and its backward pass does without their gradient."""
    generator = torch.Generator().manual_seed(5)
    steps, batch, width, size = 70, 2, 3, 2
    shapes = [(steps, batch, width), (steps, batch, 1 + 2 * size), (batch, size * width), (size * width,), (width, 1)]
    tensors = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in [*shapes, (width,)]]
    tensors[3] = -tensors[3].exp()
    gradients = []
    for reads in (True, False):
        x, weight, start, *vectors = leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        rest: list[Any] = [*vectors, size, False, reads]
        call = selective_scan.call(x, weight, (start,), None, *rest)
        y, (final,) = kernels.run(SelectiveScan, call)
        assert y.shape[-1] == width * reads
        gradients.append(torch.autograd.grad(final.square().sum(), leaves))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_incompatible_bias_is_refused() -> None:
    x = Convolution(torch.zeros(2, 1, 6), torch.zeros(4, 6), torch.zeros(3, 1, 6), torch.zeros(5))
    others = (-torch.ones(12), torch.zeros(6, 1), torch.zeros(6), 2)
    with pytest.raises(ValueError, match=r"the bias \[5\] of the convolution should be \[6\]"):
        selective_scan(x, torch.zeros(2, 1, 5), (torch.zeros(1, 12),), None, *others)


def one_step(bias: Tensor, rate: float, b: float, start: float, x: Tensor | Convolution) -> Tensor:
    """h after a step of one row: exp(Delta A) h_0 + Delta B x, Delta = softplus(bias)."""
    width, zero = len(bias), torch.zeros(1, 1, 1)
    weight, state = torch.tensor([[[0.0, b, 0.0]]]), torch.full((1, width), start)
    call = selective_scan.call(
        x, weight, (state,), None, torch.full((width,), rate), zero.expand(width, 1, 1)[..., 0], bias, 1, False, False
    )
    _, (h,) = cpu.run(call)
    return h[0].double()


def test_functions_are_exact_to_rounding() -> None:
    """softplus, exp and SiLU over the range of float32, each from a step that has it alone."""
    z = torch.linspace(-80, 80, 1003)
    exact, unit_x = torch.log1p(z.double().exp()), torch.ones(1, 1, len(z))
    bound = 4e-7 * (1 + z.abs().double())
    assert ((one_step(z, -1e-30, 1.0, 0.0, unit_x) / exact - 1).abs() < bound).all()
    decay = one_step(z, -0.9, 0.0, 1.0, unit_x)
    assert ((decay / (-0.9 * exact).exp() - 1).abs() < bound).all()
    unit = torch.full((len(z),), 0.54132485)  # its softplus is 1
    copied = torch.tensor([[0.0], [1.0]]).expand(2, len(z))
    x = one_step(unit, -1e-30, 1.0, 0.0, Convolution(z.expand(1, 1, -1), copied, torch.zeros(1, 1, len(z)), None))
    assert ((x / (z.double() * z.double().sigmoid()) - 1).abs()[z != 0] < bound[z != 0]).all()
