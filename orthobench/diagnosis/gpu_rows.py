"""The rows of the report on a GPU, the most telling first: whether the kernels are right, then how fast they are.

Times are medians of CUDA-event timings in milliseconds, with the 10th and the 90th percentile. "graph" rows replay a
captured CUDA graph. A recurrence's row is its forward pass, backward pass and weight gradient, on random data. A
model's row is its whole training step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from orthobench.bench.constraints import CONSTRAINTS
from orthobench.bench.models import step_on_noise
from orthobench.bench.suite import ConstraintStep
from orthobench.diagnosis import gpu_kernel_rows
from orthobench.diagnosis.gpu_timing import Device, Row, Sizes, Values, captured, timed
from orthobench.plugins import Catalog
from orthobench.recurrence.call import Call
from orthobench.recurrence.cuda import self_test, verdicts

FIRST_MODELS = (("scornn", 170), ("scornn", 512), ("lstm", 128), ("gru", 128), ("rnn", 360), ("exprnn", 170))


def rows(torch_device: torch.device) -> Iterator[Row]:
    """Yield the rows of a CUDA device."""
    return rows_on(Device(torch_device, timed, captured), Sizes())


def rows_on(device: Device, sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of a device in the order of their worth."""
    yield from _self_tests(device)
    yield from _models(device, FIRST_MODELS, sizes)
    for n in (*sizes.row[:1], *sizes.step[:1]):
        yield from gpu_kernel_rows.recurrences(device, n, sizes)
    for n in sizes.gated:
        yield from gpu_kernel_rows.gated(device, n, sizes)
    yield from _machine(device, sizes)
    for n in (*sizes.row[1:], *sizes.step[1:]):
        yield from gpu_kernel_rows.recurrences(device, n, sizes)
    for n in sizes.row:
        yield from gpu_kernel_rows.row_plans(device, n, sizes)
    for n in sizes.step:
        yield from gpu_kernel_rows.step_plans(device, n, sizes)
    for n in sizes.cluster:
        yield from gpu_kernel_rows.cluster_plans(device, n, sizes)
    others = sorted(entry.name for entry in Catalog() if entry.kind == "model")
    yield from _models(device, [(name, 128) for name in others if (name, 128) not in FIRST_MODELS], sizes)


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
