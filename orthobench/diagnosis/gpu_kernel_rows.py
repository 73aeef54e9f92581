"""The rows of kernels in the report on a GPU: each that can serve a size, with other plans, and cuDNN beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from orthobench.diagnosis.gpu_timing import Device, Row, Run, Sizes, Values
from orthobench.recurrence import MODRELU, TANH, Activation, gru, lstm, recurrence, reference
from orthobench.recurrence.call import Call
from orthobench.recurrence.cuda import backend as cuda
from orthobench.recurrence.cuda import launch, nvrtc_cluster, self_test
from orthobench.recurrence.cuda.launch import RowPlan, StepPlan
from orthobench.recurrence.operation import Operation

STEP_PLANS = (
    StepPlan(16, 32),
    StepPlan(16, 32, depth=128),
    StepPlan(16, 64),
    StepPlan(32, 32),
    StepPlan(32, 64, warps=8),
    StepPlan(64, 64, warps=8),
)


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


def recurrences(device: Device, n: int, sizes: Sizes) -> Iterator[Row]:
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


def _example(device: Device, n: int) -> Call:
    """Return a call of modReLU's recurrence, whose sizes alone are to be read."""
    x, weight = torch.empty(1, 1, n, device=device.torch_device), torch.empty(n, n, device=device.torch_device)
    return recurrence.call(x, weight, (x[0],), None, MODRELU)


def _each_kernel(device: Device, n: int, step: Callable[[self_test.Run, Activation], Run]) -> Iterator[Row]:
    """Yield a row for each kernel that can serve modReLU at this size."""
    for name, run in device.runs(_example(device, n)).items():

        def measure(run: self_test.Run = run) -> Values:
            return device.timed(step(run, MODRELU))

        yield Row(f"recurrence n={n}, modReLU, kernel {name}", measure)


def gated(device: Device, n: int, sizes: Sizes) -> Iterator[Row]:
    """Yield the chosen kernel of LSTM and both GRUs, launched and in a graph, each other kernel, and cuDNN's."""
    for title, operation, parameters in (
        (f"LSTM n={n}", lstm, ()),
        (f"GRU n={n}", gru, (None, True)),
        (f"GRU n={n}, reset before", gru, ()),
    ):
        yield from _cell(device, title, operation, parameters, n, sizes)
    for kind in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU):
        for tf32 in (False, True):

            def measure(kind: Any = kind, tf32: bool = tf32) -> Values:
                return device.timed(_cudnn(device, kind, n, sizes, tf32))

            yield Row(f"cuDNN {kind.__name__} n={n}, TF32 {'on' if tf32 else 'off'}", measure)


def _cell(
    device: Device, title: str, operation: Operation[...], parameters: tuple[Any, ...], n: int, sizes: Sizes
) -> Iterator[Row]:
    def call(x: Tensor, weight: Tensor, h0: Tensor) -> Call:
        return operation.call(x, weight, (h0,) * len(operation.states), None, *parameters)

    def step(run: self_test.Run) -> Run:
        problem = _problem(device, n, sizes, operation.gates)
        return _training_step(lambda *tensors: run(call(*tensors))[0], *problem)

    yield Row(title, lambda: device.timed(step(device.kernels.run)))
    yield Row(f"{title}, graph", lambda: device.timed(device.captured(step(device.kernels.run))))
    empty = [torch.empty(shape, device=device.torch_device) for shape in ((1, 1, operation.gates * n), (1, n))]
    weight = torch.empty(operation.rows * n, n, device=device.torch_device)
    for name, run in device.runs(call(empty[0], weight, empty[1])).items():

        def measure(run: self_test.Run = run) -> Values:
            return device.timed(device.captured(step(run)))

        yield Row(f"{title}, graph, kernel {name}", measure)
    yield Row(f"{title}, eager loop", lambda: device.timed(step(reference.run)))


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


@contextmanager
def _planned(module: Any, name: str, plan: object) -> Iterator[None]:
    """Put another plan in place of what a module of the back end would choose."""
    before = getattr(module, name)
    setattr(module, name, lambda *arguments, **others: plan)
    try:
        yield
    finally:
        setattr(module, name, before)


def row_plans(device: Device, n: int, sizes: Sizes) -> Iterator[Row]:
    """Yield Triton's row kernel with each plan that is not the chosen one."""
    chosen = launch.row_plan(n)
    size = 64 if n <= 64 else 128 if n <= 128 else 256
    plans = [RowPlan(size, False, warps) for warps in (2, 4, 8, 16) if size // 32 <= warps]
    plans += [RowPlan(256, True, warps) for warps in (8, 16) if 128 < n <= 192]
    for plan in plans:
        if plan == chosen:
            continue

        def measure(plan: RowPlan = plan) -> Values:
            with _planned(launch, "row_plan", plan):
                return device.timed(
                    _training_step(_plain(_only(device, cuda.TRITON), MODRELU), *_problem(device, n, sizes))
                )

        yield Row(
            f"row kernel n={n}, tile {plan.size}{' as 3 x 64' if plan.three else ''}, {plan.warps} warps", measure
        )


def step_plans(device: Device, n: int, sizes: Sizes) -> Iterator[Row]:
    """Yield Triton's step kernel with each plan, in a graph."""
    for plan in STEP_PLANS:

        def measure(plan: StepPlan = plan) -> Values:
            with _planned(launch, "step_plan", plan):
                step = _training_step(_plain(_only(device, cuda.TRITON), MODRELU), *_problem(device, n, sizes))
                return device.timed(device.captured(step))

        yield Row(f"step kernel n={n}, graph, {plan.rows}x{plan.columns}x{plan.depth}, {plan.warps} warps", measure)


def cluster_plans(device: Device, n: int, sizes: Sizes) -> Iterator[Row]:
    """Yield the cluster kernel with each number of rows that a cluster may run."""
    if nvrtc_cluster.NAME not in device.runs(_example(device, n)):
        return
    layout = nvrtc_cluster.plain(n)
    for rows in layout.rows:

        def measure(rows: int = rows) -> Values:
            with _planned(nvrtc_cluster, "plain", replace(layout, rows=(rows,))):
                run = _plain(_only(device, nvrtc_cluster.NAME), MODRELU)
                return device.timed(_training_step(run, *_problem(device, n, sizes)))

        yield Row(f"cluster kernel n={n}, {layout.blocks} blocks, {rows} rows", measure)
