"""The rows of the report on a GPU, the most telling first: whether the kernels are right, then how fast they are.

Times are medians of CUDA-event timings in milliseconds, with the 10th and the 90th percentile. "graph" rows replay a
captured CUDA graph. A recurrence's row is its forward pass, backward pass and weight gradient, on random data. A
model's row is its whole training step.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from orthobench.bench.constraints import CONSTRAINTS
from orthobench.bench.models import step_on_noise
from orthobench.bench.suite import ConstraintStep
from orthobench.diagnosis.gpu_report import Row
from orthobench.plugins import Catalog
from orthobench.recurrence import (
    MODRELU,
    TANH,
    Activation,
    cuda,
    cuda_launch,
    gru,
    lstm,
    recurrence,
    reference,
    self_test,
    verdicts,
)
from orthobench.recurrence.call import Call
from orthobench.recurrence.cuda_launch import RowPlan, StepPlan
from orthobench.recurrence.meeting import Meeting

Run = Callable[[], Any]
Values = Mapping[str, Any]
FIRST_MODELS = (("scornn", 170), ("scornn", 512), ("lstm", 128), ("gru", 128), ("rnn", 360), ("exprnn", 170))
STEP_PLANS = (
    StepPlan(16, 32),
    StepPlan(16, 32, depth=128),
    StepPlan(16, 64),
    StepPlan(32, 32),
    StepPlan(32, 64, warps=8),
    StepPlan(64, 64, warps=8),
)


@dataclass(frozen=True)
class Device:
    """A device and how to measure on it.

    Attributes:
        timed: runs a function several times and returns its times.
        captured: returns a function that replays the given one from a CUDA graph.
        kernels: the back end with the kernels.
        runs: returns the kernels that can serve a call, by name.
    """

    torch_device: torch.device
    timed: Callable[[Run], Values]
    captured: Callable[[Run], Run]
    kernels: Any = cuda
    runs: Callable[[Call], Mapping[str, self_test.Run]] = cuda.runs


@dataclass(frozen=True)
class Sizes:
    """The sizes of the report: steps, sequences, and numbers of features for row kernels and for step kernels."""

    steps: int = 784
    batch: int = 128
    row: tuple[int, ...] = (170, 60, 116, 190, 232)
    step: tuple[int, ...] = (512, 360, 1030)
    gated: tuple[int, ...] = (128, 256)
    model_steps: int = 784


def rows(torch_device: torch.device) -> Iterator[Row]:
    """Yield the rows of a CUDA device."""
    return rows_on(Device(torch_device, timed, captured), Sizes())


def rows_on(device: Device, sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of a device in the order of their worth."""
    yield from _self_tests(device)
    yield from _models(device, FIRST_MODELS, sizes)
    for n in (*sizes.row[:1], *sizes.step[:1]):
        yield from _recurrences(device, n, sizes)
    for n in sizes.gated:
        yield from _gated(device, n, sizes)
    yield from _machine(device, sizes)
    for n in (*sizes.row[1:], *sizes.step[1:]):
        yield from _recurrences(device, n, sizes)
    yield from _groups(device, sizes)
    for n in sizes.row:
        yield from _row_plans(device, n, sizes)
    for n in sizes.step:
        yield from _step_plans(device, n, sizes)
    others = sorted(entry.name for entry in Catalog() if entry.kind == "model")
    yield from _models(device, [(name, 128) for name in others if (name, 128) not in FIRST_MODELS], sizes)


def timed(run: Run, repeats: int = 10, seconds: float = 8.0) -> Values:
    """Return the times of a function on the GPU, in milliseconds, and the host's time until it has launched all."""
    run()
    torch.cuda.synchronize()
    times, host = [], []
    end_of_time = time.monotonic() + seconds
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before = time.perf_counter()
        start.record()
        run()
        end.record()
        host.append(1000 * (time.perf_counter() - before))
        end.synchronize()
        times.append(start.elapsed_time(end))
        if time.monotonic() > end_of_time:
            break
    times.sort()
    low, high = times[len(times) // 10], times[-1 - len(times) // 10]
    return {
        "ms": statistics.median(times),
        "low": low,
        "high": high,
        "host_ms": statistics.median(host),
        "n": len(times),
    }


def captured(run: Run) -> Run:
    """Return a function that replays the given one from a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def _self_tests(device: Device) -> Iterator[Row]:
    """Yield a row for each form and each class of sizes: errors of values and gradients, drift of the norm."""
    seen = set()
    for call in self_test.examples(device.torch_device):
        for name, run in device.runs(call).items():
            for form in self_test.forms(call, name):
                if form in seen:
                    continue
                seen.add(form)

                def measure(call: Call = call, form: self_test.Form = form, run: self_test.Run = run) -> Values:
                    before = time.monotonic()
                    verdict = verdicts.judge(call, form, run, True)
                    return {**verdicts.as_record(verdict), "seconds": time.monotonic() - before}

                yield Row(f"self-test {form}", measure)


def _models(device: Device, models: Any, sizes: Sizes) -> Iterator[Row]:
    for name, n in models:

        def measure(name: str = name, n: int = n) -> Values:
            (entry,) = (entry for entry in Catalog() if entry.kind == "model" and entry.name == name)
            step = step_on_noise(entry.load(), device.torch_device, n, sizes.model_steps)
            return device.timed(step)

        yield Row(f"training step of {name}, n={n}, B=50", measure)


def _groups(device: Device, sizes: Sizes) -> Iterator[Row]:
    """Yield ten training steps of runs that train together, for some numbers of runs: `sweep --gpu-batch`."""
    for runs in (1, 2, 4, 8):

        def measure(runs: int = runs) -> Values:
            (entry,) = (entry for entry in Catalog() if entry.kind == "model" and entry.name == "scornn")
            steps = [step_on_noise(entry.load(), device.torch_device, 170, sizes.model_steps) for _ in range(runs)]
            functions = [functools.partial(_ten_times, step) for step in steps]
            together: Meeting[None] = Meeting()
            values = device.timed(lambda: list(together.run(functions)))
            return {**values, "common_launches": together.launches}

        yield Row(f"training together: ten steps of {runs} scornn, n=170, B=50", measure)


def _ten_times(step: Run) -> None:
    for _ in range(10):
        step()


def _problem(device: Device, n: int, sizes: Sizes, gates: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Draw x `[T, B, gates n]`, W `[gates n, n]` of orthogonal blocks, h_0."""
    generator = torch.Generator().manual_seed(0)
    blocks = [torch.linalg.qr(torch.randn(n, n, generator=generator)).Q for _ in range(gates)]
    x = 0.5 * torch.randn(sizes.steps, sizes.batch, gates * n, generator=generator)
    weight, h0 = torch.cat(blocks).contiguous(), torch.zeros(sizes.batch, n)
    where = device.torch_device
    return x.to(where).requires_grad_(), weight.to(where).requires_grad_(), h0.to(where)


def _training_step(forward: Callable[[Tensor, Tensor, Tensor], Tensor], *tensors: Tensor) -> Run:
    x, weight, h0 = tensors
    with torch.no_grad():
        grad = torch.randn_like(forward(x, weight, h0))
    return lambda: torch.autograd.grad(forward(x, weight, h0), (x, weight), grad)


def _plain(run: self_test.Run, activation: Activation) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda x, weight, h0: run(recurrence.call(x, weight, (h0,), None, activation))[0]


def _only(device: Device, name: str) -> self_test.Run:
    """Return a function that runs calls by the kernels of this name."""
    return lambda call: device.runs(call)[name](call)


def _recurrences(device: Device, n: int, sizes: Sizes) -> Iterator[Row]:
    """Yield the chosen kernel, launched and in a graph, with each activation of the papers, beside the eager loop."""

    def step(run: self_test.Run, activation: Activation) -> Run:
        return _training_step(_plain(run, activation), *_problem(device, n, sizes))

    def forward() -> Values:
        tensors = _problem(device, n, sizes)

        def run() -> Tensor:
            with torch.no_grad():
                return _plain(device.kernels.run, MODRELU)(*tensors)

        return device.timed(run)

    def replayed(run: self_test.Run) -> Values:
        return device.timed(device.captured(step(run, MODRELU)))

    yield Row(f"recurrence n={n}, modReLU", lambda: device.timed(step(device.kernels.run, MODRELU)))
    yield Row(f"recurrence n={n}, modReLU, graph", lambda: replayed(device.kernels.run))
    yield Row(f"recurrence n={n}, modReLU, forward", forward)
    yield from _each_kernel(device, n, step)
    yield Row(f"recurrence n={n}, tanh", lambda: device.timed(step(device.kernels.run, TANH)))
    yield Row(f"recurrence n={n}, eager loop", lambda: device.timed(step(reference.run, MODRELU)))
    yield Row(f"recurrence n={n}, eager loop, graph", lambda: replayed(reference.run))


def _each_kernel(device: Device, n: int, step: Callable[[self_test.Run, Activation], Run]) -> Iterator[Row]:
    """Yield a row for each kernel that can serve modReLU at this size."""
    x, weight = torch.empty(1, 1, n, device=device.torch_device), torch.empty(n, n, device=device.torch_device)
    call = recurrence.call(x, weight, (x[0],), None, MODRELU)
    for name, run in device.runs(call).items():

        def measure(run: self_test.Run = run) -> Values:
            return device.timed(step(run, MODRELU))

        yield Row(f"recurrence n={n}, modReLU, kernel {name}", measure)


def _gated(device: Device, n: int, sizes: Sizes) -> Iterator[Row]:
    def of_lstm(back_end: Any) -> Run:
        tensors = _problem(device, n, sizes, 4)
        return _training_step(lambda x, weight, h0: back_end.run(lstm.call(x, weight, (h0, h0)))[0], *tensors)

    def of_gru(back_end: Any) -> Run:
        tensors = _problem(device, n, sizes, 3)
        return _training_step(
            lambda x, weight, h0: back_end.run(gru.call(x, weight, (h0,), None, reset_after=True))[0], *tensors
        )

    yield from _launched_and_captured(device, f"LSTM n={n}", of_lstm)
    yield from _launched_and_captured(device, f"GRU n={n}", of_gru)
    for kind in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU):
        for tf32 in (False, True):

            def measure(kind: Any = kind, tf32: bool = tf32) -> Values:
                return device.timed(_cudnn(device, kind, n, sizes, tf32))

            yield Row(f"cuDNN {kind.__name__} n={n}, TF32 {'on' if tf32 else 'off'}", measure)


def _launched_and_captured(device: Device, name: str, make: Callable[[Any], Run]) -> Iterator[Row]:
    yield Row(name, lambda: device.timed(make(device.kernels)))
    yield Row(f"{name}, graph", lambda: device.timed(device.captured(make(device.kernels))))
    yield Row(f"{name}, eager loop", lambda: device.timed(make(reference)))


def _cudnn(device: Device, kind: Any, n: int, sizes: Sizes, tf32: bool) -> Run:
    """Return cuDNN's training step with an input of one feature: it cannot leave the input projection out."""
    x = torch.randn(sizes.steps, sizes.batch, 1, device=device.torch_device)
    module = kind(1, n).to(device.torch_device)
    parameters = list(module.parameters())
    grad = torch.randn(sizes.steps, sizes.batch, n, device=device.torch_device)

    def run() -> Any:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
            return torch.autograd.grad(module(x)[0], parameters, grad)

    return run


def _machine(device: Device, sizes: Sizes) -> Iterator[Row]:
    """Yield the parts around a recurrence: constraints of W, the weight gradient, a launch."""
    for name, constraint in CONSTRAINTS.items():
        for n in (*sizes.row[:1], *sizes.step[:1]):

            def measure(constraint: Any = constraint, n: int = n) -> Values:
                return device.timed(ConstraintStep(constraint, n, device.torch_device))

            yield Row(f"constraint {name}, n={n}", measure)
    for n in (*sizes.row[:1], *sizes.step[:1]):
        for tf32 in (False, True):

            def product(n: int = n, tf32: bool = tf32) -> Values:
                return _weight_gradient(device, n, sizes, tf32)

            yield Row(f"weight gradient n={n}, TF32 {'on' if tf32 else 'off'}", product)
    small = torch.zeros(1, device=device.torch_device)
    yield Row("1000 empty launches", lambda: device.timed(lambda: [small.add_(1) for _ in range(1000)]))


def _weight_gradient(device: Device, n: int, sizes: Sizes, tf32: bool) -> Values:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(sizes.steps * sizes.batch, n, generator=generator).to(device.torch_device) for _ in range(2))
    exact = a.T.double() @ b.double()
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        error = float((a.T @ b - exact).norm() / exact.norm())
        return {**device.timed(lambda: a.T @ b), "relative_error": error}
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def _planned(name: str, plan: object) -> Iterator[None]:
    """Put another plan in place of what the back end would choose."""
    before = getattr(cuda_launch, name)
    setattr(cuda_launch, name, lambda *arguments, **others: plan)
    try:
        yield
    finally:
        setattr(cuda_launch, name, before)


def _row_plans(device: Device, n: int, sizes: Sizes) -> Iterator[Row]:
    chosen = cuda_launch.row_plan(n)
    size = 64 if n <= 64 else 128 if n <= 128 else 256
    plans = [RowPlan(size, False, warps) for warps in (2, 4, 8, 16) if size // 32 <= warps]
    plans += [RowPlan(256, True, warps) for warps in (8, 16) if 128 < n <= 192]
    for plan in plans:
        if plan == chosen:
            continue

        def measure(plan: RowPlan = plan) -> Values:
            with _planned("row_plan", plan):
                return device.timed(
                    _training_step(_plain(_only(device, cuda.TRITON), MODRELU), *_problem(device, n, sizes))
                )

        yield Row(
            f"row kernel n={n}, tile {plan.size}{' as 3 x 64' if plan.three else ''}, {plan.warps} warps", measure
        )


def _step_plans(device: Device, n: int, sizes: Sizes) -> Iterator[Row]:
    for plan in STEP_PLANS:

        def measure(plan: StepPlan = plan) -> Values:
            with _planned("step_plan", plan):
                step = _training_step(_plain(_only(device, cuda.TRITON), MODRELU), *_problem(device, n, sizes))
                return device.timed(device.captured(step))

        yield Row(f"step kernel n={n}, graph, {plan.rows}x{plan.columns}x{plan.depth}, {plan.warps} warps", measure)
