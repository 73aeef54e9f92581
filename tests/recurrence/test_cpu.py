"""The C kernels against the definition."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.definition import cast
from support.gradients import gradient
from torch import Tensor

from orthobench.recurrence import (
    LEAKY_RELU,
    MODRELU,
    RELU,
    TANH,
    Activation,
    GradientTrace,
    Kind,
    gated_recurrence,
    independent_recurrence,
    kernels,
    lstm,
    recurrence,
    reference,
    slstm,
    workspace,
)
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.cpu.dense import DenseKernel
from orthobench.recurrence.ops import operations

pytestmark = [
    pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)"),
    pytest.mark.grid,
]


def on_cpu(operation: Any, x: Tensor, weight: Tensor, state: tuple[Tensor, ...], *parameters: Any) -> Any:
    """The outputs and the final state by the C kernels."""
    return cpu.run(operation.call(x, weight, state, None, *parameters))


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 8), st.integers(1, 33), st.integers(1, 70), st.integers(0, 1000))
def test_kernels_match_the_reference(case: Any, agree: Any, steps: int, batch: int, n: int, seed: int) -> None:
    arguments = case.arguments(steps, batch, n, seed)
    assume(case.margin(arguments) > 1e-5)
    agree(cpu, case, arguments, torch.float32, case.tolerance)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 170])
def test_sizes_around_the_vector_width_match(case: Any, agree: Any, n: int) -> None:
    seeds = (seed for seed in range(100) if case.margin(case.arguments(3, 15, n, seed)) > 1e-6)
    agree(cpu, case, case.arguments(3, 15, n, next(seeds)), torch.float32, case.tolerance)


def test_rows_of_a_second_block_match(case: Any, agree: Any) -> None:
    """The loops run blocks of rows one after another, here the last of them with fewer rows."""
    seeds = (seed for seed in range(100) if case.margin(case.arguments(3, 131, 18, seed)) > 1e-6)
    agree(cpu, case, case.arguments(3, 131, 18, next(seeds)), torch.float32, case.tolerance)


@pytest.mark.usefixtures("lesser_machine")
def test_kernels_match_on_narrower_vectors(case: Any, agree: Any) -> None:
    assert call_c.kernels().vector_length() < 16
    for seed, (steps, batch, n) in enumerate([(1, 1, 1), (4, 7, 8), (5, 20, 21)]):
        seeds = (s for s in range(seed, 100) if case.margin(case.arguments(steps, batch, n, s)) > 1e-5)
        agree(cpu, case, case.arguments(steps, batch, n, next(seeds)), torch.float32, case.tolerance)


@pytest.mark.slow
@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("n", [16, 33])
def test_sizes_beyond_the_caches_match(case: Any, agree: Any, n: int) -> None:
    seeds = (seed for seed in range(100) if case.margin(case.arguments(4, 15, n, seed)) > 1e-6)
    agree(cpu, case, case.arguments(4, 15, n, next(seeds)), torch.float32, case.tolerance)


@pytest.mark.parametrize("name", ["lstm", "diagonal"])
def test_results_that_no_cache_holds_match(case_named: Any, agree: Any, name: str) -> None:
    """Over a million numbers of each step's results, which whole vectors write around the caches."""
    case = case_named(name)
    agree(cpu, case, case.arguments(8, 4200 // case.gates, 32, 0), torch.float32, case.tolerance)


def test_any_strides_are_accepted(case: Any, agree: Any) -> None:
    """torch.linalg.solve returns W column by column; a batch-first x is a transposed view."""
    seeds = (seed for seed in range(100) if case.margin(case.arguments(4, 3, 18, seed)) > 1e-5)
    arguments = case.arguments(4, 3, 18, next(seeds))
    arguments[0] = arguments[0].transpose(0, 1).contiguous().transpose(0, 1)
    arguments[1] = arguments[1].transpose(0, -1).contiguous().transpose(0, -1)
    arguments[2] = arguments[2].T.contiguous().T
    agree(cpu, case, arguments, torch.float32, case.tolerance)


def test_gradients_with_any_strides_or_absent_are_accepted() -> None:
    x, weight = torch.randn(3, 2, 5, requires_grad=True), torch.randn(5, 5)
    on_cpu(recurrence, x, weight, (torch.zeros(2, 5),))[0].sum().backward()
    copy = x.detach().clone().requires_grad_()
    reference.run(recurrence.call(copy, weight, (torch.zeros(2, 5),)))[0].sum().backward()
    torch.testing.assert_close(x.grad, copy.grad)
    x, weight = torch.randn(3, 2, 20, requires_grad=True), torch.randn(20, 5)
    zeros = (torch.zeros(2, 5), torch.zeros(2, 5))
    _, (_, c) = on_cpu(lstm, x, weight, zeros)
    (only_c,) = torch.autograd.grad(c.square().sum(), x)
    _, (_, c) = reference.run(lstm.call(x, weight, zeros))
    torch.testing.assert_close(only_c, torch.autograd.grad(c.square().sum(), x)[0])


def test_final_state_equals_the_last_output(case: Any, call: Any) -> None:
    """In value, in every gradient and in the trace, bit for bit, whichever of the two a loss reads."""
    if case.has_memory:
        pytest.skip("the outputs are read from the state")
    seeds = (seed for seed in range(100) if case.margin(case.arguments(4, 3, 18, seed)) > 1e-5)
    arguments = cast(case.arguments(4, 3, 18, next(seeds)), torch.float32)
    way = torch.randn(3, 18, generator=torch.Generator().manual_seed(0))
    results = []
    for read_final in (True, False):
        inputs = [a.detach().clone().requires_grad_() if isinstance(a, Tensor) else a for a in arguments]
        outputs, (final, *_) = cpu.run(call(case, inputs, trace := GradientTrace()))
        read = final if read_final else outputs[-1]
        read.backward(way)
        gradients = [a.grad for a in inputs if isinstance(a, Tensor)]
        results.append([read.detach(), *(g for g in gradients if g is not None), *trace.norms.values()])
    for from_final, from_outputs in zip(*results, strict=True):
        assert torch.equal(from_final, from_outputs)


def test_states_without_gradients_are_the_same(case: Any, evaluate: Any, call: Any) -> None:
    arguments = cast(case.arguments(4, 3, 18, 0), torch.float32)
    with torch.no_grad():
        outputs, final = cpu.run(call(case, arguments))
    expected = evaluate(cpu, case, arguments)
    for i, output in enumerate((outputs, *final)):
        assert torch.equal(output, expected[f"output {i}"])


@pytest.mark.usefixtures("restored_threads")
@pytest.mark.parametrize(("steps", "batch", "n"), [(70, 37, 40), (3, 19, 400), (9, 131, 24)])
def test_thread_count_changes_no_number(case: Any, evaluate: Any, steps: int, batch: int, n: int) -> None:
    arguments = cast(case.arguments(steps, batch, n, 0), torch.float32)
    results = []
    for count in (1, 2, 3, 2):
        torch.set_num_threads(count)
        results.append(evaluate(cpu, case, arguments))
    for result in results[1:]:
        for name, value in result.items():
            assert torch.equal(value.nan_to_num(7.0), results[0][name].nan_to_num(7.0)), name


# ---------------------------------------------------------------------- long sequences


def frozen(h: Tensor, x: Tensor, weight: Tensor, h0: Tensor, activation: Activation, bias: Tensor) -> Tensor:
    """The recurrence with every unit on the side of the kink where the states h have it: smooth in all arguments."""
    steps, state = [], h0
    for x_t, side in zip(x.unbind(0), h.unbind(0), strict=True):
        z = torch.addmm(x_t, state, weight.T)
        match activation.kind:
            case Kind.MODRELU:
                state = torch.where(side != 0, z + side.sign() * bias, 0.0)
            case Kind.RELU:
                state = torch.where(side > 0, z + bias, 0.0)
            case _:
                state = (z + bias) * torch.where(side < 0, activation.slope, 1.0)
        steps.append(state)
    return torch.stack(steps)


def orthogonal(n: int) -> Tensor:
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0].contiguous()


@pytest.mark.parametrize("activation", [MODRELU, RELU, LEAKY_RELU], ids=lambda activation: activation.kind)
def test_norm_does_not_drift_with_frozen_kinks(activation: Activation) -> None:
    torch.manual_seed(0)
    steps, batch, n = 2020, 3, 45
    x, weight, h0 = torch.randn(steps, batch, n) * 0.1, orthogonal(n).float(), torch.zeros(batch, n)
    bias = torch.randn(n) * 0.02
    inputs = [a.requires_grad_() for a in (x, weight, bias)]
    h, _ = on_cpu(recurrence, x, weight, (h0,), activation, bias)
    way = torch.randn_like(h)
    h.backward(way)
    wide = [a.detach().double().requires_grad_() for a in inputs]
    expected = frozen(h.detach(), wide[0], wide[1], h0.double(), activation, wide[2])
    expected.backward(way.double())
    pairs = [(h.detach(), expected.detach()), *((gradient(a), gradient(b)) for a, b in zip(inputs, wide, strict=True))]
    for actual, exact in pairs:
        assert float((actual.double() - exact).norm() / exact.norm()) < 2e-5


@pytest.mark.parametrize("step_size", [None, 0.05])
def test_norm_does_not_drift_in_smooth_recurrences(step_size: float | None, agree: Any, case_of: Any) -> None:
    torch.manual_seed(1)
    case = case_of("tanh-euler" if step_size else "tanh")
    steps, batch, n = 2020, 2, 30
    weight = orthogonal(n)
    weight = weight - weight.T - torch.eye(n) if step_size else 0.999 * weight
    x = 0.1 * torch.randn(steps, batch, n, dtype=torch.float64)
    h0 = torch.zeros(batch, n, dtype=torch.float64)
    agree(cpu, case, [x, weight, h0, TANH, None, step_size], torch.float32, 1e-4)


@pytest.fixture
def case_of() -> Any:
    from types import SimpleNamespace

    return lambda name: SimpleNamespace(name=name, op="recurrence")


# ---------------------------------------------------------------------- what is not a number, and denormals


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_propagate(case: Any, call: Any, value: float) -> None:
    if case.has_memory and value == value:
        pytest.skip("the corrections of a chunk are taken from each other, infinity from infinity")
    arguments = cast(case.arguments(4, 3, 18, 0), torch.float32)
    arguments[0][1, 1, 5] = value
    with torch.no_grad():
        (actual, _), (expected, _) = (module.run(call(case, arguments)) for module in (cpu, reference))
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=1e-4, atol=1e-4)
    if value != value:
        assert actual[1, 1].isnan().any()
        assert not actual[:, 0].isnan().any()


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_infinity_anywhere_matches_the_reference(case: Any, call: Any, value: float) -> None:
    """In each block of x and of the weight, and in each state."""
    if case.has_memory:
        pytest.skip("the corrections of a chunk are taken from each other, infinity from infinity")
    arguments = cast(case.arguments(4, 3, 18, 0), torch.float32)
    for index, argument in enumerate(arguments):
        if not isinstance(argument, Tensor):
            continue
        for at in {7 % argument.numel(), argument.numel() * 2 // 3, argument.numel() - 2}:
            spoiled = list(arguments)
            spoiled[index] = argument.clone()
            spoiled[index].view(-1)[at] = value
            with torch.no_grad():
                (actual, states), (expected, ends) = (module.run(call(case, spoiled)) for module in (cpu, reference))
            torch.testing.assert_close(actual, expected, equal_nan=True, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(states, ends, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_infinite_state_has_the_gradients_of_the_reference(evaluate: Any, case_named: Any) -> None:
    """The gates of LEM go on multiplying, where a difference from the state would be NaN."""
    for index in (2, 3):
        arguments = cast(case_named("lem").arguments(4, 3, 18, 0), torch.float32)
        arguments[index][1, 5] = torch.inf
        actual, expected = (evaluate(module, case_named("lem"), arguments) for module in (cpu, reference))
        for name, exact in expected.items():
            assert torch.equal(actual[name].isfinite(), exact.isfinite()), name


def test_nan_propagates_to_the_gradients(case: Any, evaluate: Any) -> None:
    for where in (0, 1, 2):
        arguments = cast(case.arguments(4, 3, 18, 0), torch.float32)
        arguments[where].view(-1)[7] = torch.nan
        assert evaluate(cpu, case, arguments)["gradient 1"].isnan().any()


def test_denormals_are_flushed_only_inside_kernels() -> None:
    x = torch.full((3, 2, 4), 1e-40)
    states, _ = on_cpu(recurrence, x, torch.zeros(4, 4), (torch.zeros(2, 4),))
    assert not states.any()
    assert float(torch.tensor(1e-40) * 1.0) != 0


def test_functions_are_accurate() -> None:
    """Through the kernels: tanh, and the sigmoid as the LSTM's forget gate."""
    z = torch.cat((torch.linspace(-30, 30, 40001), torch.logspace(-30, 1, 2000), torch.tensor([-200.0, 200.0, 0.0])))
    n = len(z)
    tanh = on_cpu(recurrence, z.view(n, 1, 1), torch.zeros(1, 1), (torch.zeros(1, 1),))[0].flatten()
    exact = z.double().tanh()
    relative = ((tanh - exact) / exact.where(exact != 0, 1.0)).abs()
    assert float(relative.max()) < 2.2e-7
    assert float(relative[z.abs() > 2].max()) < 4e-8
    assert float(tanh.abs().max()) == 1
    gates = torch.zeros(1, n, 4)
    gates[0, :, 0], gates[0, :, 2], gates[0, :, 1] = z, 20.0, -200.0
    _, (_, c) = on_cpu(lstm, gates, torch.zeros(4, 1), (torch.zeros(n, 1), torch.zeros(n, 1)))
    exact = z.double().sigmoid()
    normal = exact > 1e-37
    assert float(((c.flatten() - exact) / exact)[normal].abs().max()) < 4e-7


SATURATING = {
    f"{operation.name}-{k}": (operation, form.parameters)
    for operation in operations()
    if operation is independent_recurrence or issubclass(kernels.find(operation, "cpu") or object, DenseKernel)
    for k, form in enumerate(operation.forms(1) if operation.forms else ())
    if form.parameters.get("activation", TANH).kind is Kind.TANH and not form.vectors and "heads" not in form.parameters
} | {"slstm": (slstm, {})}
"""The forms of dense cells whose functions are tanh and the sigmoid, and of independent units with tanh."""


def slopes(name: str, block: int | None, z: Tensor, run: Any, dtype: torch.dtype) -> Tensor:
    """The gradient of one step's results by z, without a product. z is a block of x; None: the LSTM's cell."""
    operation, parameters = SATURATING[name]
    given = list(operation.bind(None, **parameters).values())
    n = len(z)
    x, state = z.new_full((1, n, operation.gates), 0.7), [z.new_full((n, 1), 0.5) for _ in operation.states]
    if block is None:
        state[1][:, 0], x[..., 0], x[..., 1] = z, -200.0, 200.0  # nothing is written, and all is kept
    else:
        x[0, :, block] = z
    shape = (1,) if operation.diagonal else (operation.rows, operation.sources)
    leaves = [each.to(dtype).requires_grad_() for each in (x, *state)]
    y, final = run(operation, leaves[0], x.new_zeros(shape).to(dtype), tuple(leaves[1:]), *given)
    loss = y.sum() + sum(each.sum() for each in final[1 : 1 if block is None else 3])
    (gradient,) = torch.autograd.grad(loss, leaves[2] if block is None else leaves[0])
    return gradient[:, 0].double() if block is None else gradient[0, :, block].double()


def defined(operation: Any, x: Tensor, weight: Tensor, state: tuple[Tensor, ...], *parameters: Any) -> Any:
    return reference.run(operation.call(x, weight, state, None, *parameters))


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("lstm-0", None),
        *((name, block) for name, (operation, _) in SATURATING.items() for block in range(operation.gates)),
    ],
)
def test_derivatives_are_as_accurate_as_torch(name: str, block: int | None) -> None:
    """Of tanh and of the sigmoid where they saturate and 1 - a^2 cancels: at worst, and on average over many numbers.

    An average apart from torch's would add up over a sequence.
    """
    for low in (0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0):
        z = torch.linspace(low, low + 1, 20001)[1:]
        z = torch.cat((z, -z))
        exact = slopes(name, block, z, defined, torch.float64)
        actual, in_torch = (slopes(name, block, z, run, torch.float32) for run in (on_cpu, defined))
        own, others = ((each - exact) / exact.abs().clamp(min=1e-7) for each in (actual, in_torch))
        worst = float(others.abs().max())
        assert float(own.abs().max()) <= 1.5 * worst + 5e-7, low
        assert float((own - others).mean().abs()) <= 0.02 * worst + 2e-7, low  # one factor's rounding is 1e-7


@pytest.mark.usefixtures("lesser_machine")
def test_functions_are_as_accurate_on_narrower_vectors() -> None:
    test_functions_are_accurate()
    for block in (None, 0, 2):
        test_derivatives_are_as_accurate_as_torch("lstm-0", block)


def test_long_saturated_sequence_is_as_accurate_as_torch() -> None:
    """The derivatives of thousands of saturated steps, times large states, are added up in dL/dW."""
    generator = torch.Generator().manual_seed(0)
    steps, batch, n = 2319, 27, 2
    x = 7 + 0.5 * torch.randn(steps, batch, 2 * n, generator=generator)
    x[..., n:] += 13  # the gates are open, so that their derivative is not much larger
    weight, start = torch.tensor([[-0.01, 0.02], [-0.02, -0.01]]), torch.zeros(batch, n)
    gradients = []
    for run, dtype in ((on_cpu, torch.float32), (defined, torch.float32), (defined, torch.float64)):
        leaf = weight.to(dtype).requires_grad_()
        states, _ = run(gated_recurrence, x.to(dtype), leaf, (start.to(dtype),), 0.01)
        gradients.append(torch.autograd.grad(states.sum(), leaf)[0].double())
    actual, in_torch, exact = gradients
    error, others = (float((each - exact).norm() / exact.norm()) for each in (actual, in_torch))
    assert error <= 1.5 * others, (error, others)


# ---------------------------------------------------------------------- memory


@pytest.mark.slow
@pytest.mark.usefixtures("restored_threads")
def test_memory_does_not_grow() -> None:
    torch.set_num_threads(1)  # a thousand parallel sections would mostly wait on a busy machine
    weight = torch.randn(40, 40, requires_grad=True)
    process = psutil.Process()

    def step(i: int) -> None:
        x = torch.randn(60 + i % 7, 40 if i % 2 else 200, 40, requires_grad=True)
        recurrence(x, weight, (torch.zeros(x.shape[1], 40),), None, MODRELU)[0][-1].sum().backward()
        weight.grad = None

    for i in range(100):
        step(i)
    gc.collect()
    before = process.memory_info().rss
    for i in range(1000):
        step(i)
    gc.collect()
    assert process.memory_info().rss - before < 30e6


def test_memory_in_use_is_never_reused() -> None:
    pool = workspace.Workspace()
    first = pool.take(1000, 1000).fill_(1)
    view, address = first[10:], first.data_ptr()
    del first
    second = pool.take(1000, 1000).fill_(2)
    assert second.data_ptr() != address
    assert bool((view == 1).all())
    del view
    assert pool.take(1000, 1000).data_ptr() == address


def test_large_unused_memory_is_freed(monkeypatch: Any) -> None:
    """What is little together stays, and what is in use keeps its numbers."""
    pool = workspace.Workspace()
    used, unused = pool.take(1000, 1000).fill_(1), pool.take(1000, 1000).fill_(2)
    address = unused.data_ptr()
    del unused
    pool.release()
    unused = pool.take(1000, 1000)
    assert unused.data_ptr() == address
    del unused
    monkeypatch.setattr(workspace, "_LITTLE", 3 * 10**6)
    pool.release()
    assert sum(buffer.nbytes for _, buffer in pool._free) == 0
    assert bool((used == 1).all())


def test_states_survive_later_calls() -> None:
    x, weight, h0 = torch.randn(200, 20, 80, requires_grad=True), torch.randn(80, 80) / 9, torch.zeros(20, 80)
    first, _ = on_cpu(recurrence, x, weight, (h0,))
    copy = first.detach().clone()
    (gradient,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
    for _ in range(3):
        on_cpu(recurrence, torch.randn(200, 20, 80, requires_grad=True), weight, (h0,))[0].sum().backward()
    assert torch.equal(first, copy)
    assert torch.equal(gradient, torch.autograd.grad(first.sum(), x)[0])


@pytest.mark.parametrize("loss", [Tensor.sum, lambda states: states.square().sum()])
def test_double_backward_is_refused(loss: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(3, 2, 4, requires_grad=True)
    states, _ = on_cpu(recurrence, x, torch.eye(4), (torch.zeros(2, 4),))
    (gradient,) = torch.autograd.grad(loss(states), x, create_graph=True)
    expected = torch.autograd.grad(loss(on_cpu(recurrence, x, torch.eye(4), (torch.zeros(2, 4),))[0]), x)[0]
    assert torch.equal(gradient, expected)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        gradient.square().sum().backward()


def test_changed_state_is_detected() -> None:
    x = torch.randn(3, 2, 4, requires_grad=True)
    states, _ = on_cpu(recurrence, x, torch.eye(4), (torch.zeros(2, 4),))
    loss = states.sum()
    states.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_kernels_work_after_a_fork() -> None:
    # Large enough for our threads, too small for torch's own, which do not survive a fork.
    x, weight, h0 = torch.randn(16, 20, 100), torch.eye(100), torch.zeros(20, 100)
    recurrence(x, weight, (h0,))
    child = os.fork()
    if not child:
        finished = threading.Event()
        threading.Timer(20, lambda: finished.is_set() or os._exit(1)).start()
        recurrence(x, weight, (h0,))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
