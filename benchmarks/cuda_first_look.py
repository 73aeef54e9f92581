"""First measurements of the CUDA back end on a GPU: a few minutes, one table, one JSON file.

    python benchmarks/cuda_first_look.py --output first_look.json

Times are medians of CUDA-event timings, with the spread from the 10th to the 90th percentile; "graph" rows replay a
captured CUDA graph. A training step here is forward, backward and the weight gradient of the recurrence alone, on
random data. Errors are relative Frobenius distances from the reference in float64, next to those of the reference in
float32. A row that fails keeps its message: one failure does not cost the rest of a rented hour.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import MODRELU, TANH, Activation, cuda, cuda_launch, gru, lstm, recurrence, reference
from orthobench.recurrence.cuda_launch import RowPlan, StepPlan

Run = Callable[[], Any]


@dataclass
class Row:
    what: str
    n: int
    steps: int
    median_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    us_per_step: float | None = None
    note: str = ""


class Bench:
    """Collects rows; `budget` seconds after the start, what is left is skipped."""

    def __init__(self, batch: int, repeats: int, budget: float) -> None:
        self.batch, self.repeats = batch, repeats
        self.deadline = time.monotonic() + budget
        self.rows: list[Row] = []

    def time(self, what: str, n: int, steps: int, make: Callable[[], Run], note: str = "") -> None:
        row = Row(what, n, steps, note=note)
        self.rows.append(row)
        if time.monotonic() > self.deadline:
            row.note = "skipped: out of time"
        else:
            try:
                self._fill(row, make())
            except Exception as error:  # the other rows still run
                row.note = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        print(_line(row), flush=True)
        torch.cuda.empty_cache()

    def _fill(self, row: Row, run: Run) -> None:
        for _ in range(2):
            run()
        torch.cuda.synchronize()
        times = []
        for _ in range(self.repeats):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        times.sort()
        row.median_ms = statistics.median(times)
        row.low_ms, row.high_ms = times[len(times) // 10], times[-1 - len(times) // 10]
        row.us_per_step = 1000 * row.median_ms / row.steps


@contextlib.contextmanager
def replaced(name: str, value: object) -> Iterator[None]:
    """Put another planner in the back end."""
    before = getattr(cuda_launch, name)
    setattr(cuda_launch, name, value)
    try:
        yield
    finally:
        setattr(cuda_launch, name, before)


def problem(n: int, steps: int, batch: int, gates: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Draw x `[T, B, gates n]`, W `[gates n, n]` of orthogonal blocks, h_0."""
    torch.manual_seed(0)
    blocks = [torch.linalg.qr(torch.randn(n, n, device="cuda")).Q for _ in range(gates)]
    x = 0.5 * torch.randn(steps, batch, gates * n, device="cuda")
    return x.requires_grad_(), torch.cat(blocks).contiguous().requires_grad_(), torch.zeros(batch, n, device="cuda")


def training_step(forward: Callable[[Tensor, Tensor, Tensor], Tensor], *tensors: Tensor) -> Run:
    x, weight, h0 = tensors
    grad = torch.randn_like(forward(x, weight, h0))
    return lambda: torch.autograd.grad(forward(x, weight, h0), (x, weight), grad)


def captured(run: Run) -> Run:
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


def no_grad(run: Run) -> Run:
    def quiet() -> Any:
        with torch.no_grad():
            return run()

    return quiet


def plain(back_end: Any, activation: Activation = TANH) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda x, weight, h0: back_end.run(recurrence.call(x, weight, (h0,), None, activation))[0]


def row_plans(n: int) -> list[RowPlan]:
    if n <= 64:
        return [RowPlan(64, False, warps) for warps in (2, 4, 8)]
    if n <= 128:
        return [RowPlan(128, False, warps) for warps in (4, 8, 16)]
    tiled = [RowPlan(256, True, warps) for warps in (8, 16)] if n <= 192 else []
    return [*tiled, *(RowPlan(256, False, warps) for warps in (8, 16))]


STEP_PLANS = [
    StepPlan(16, 32),
    StepPlan(16, 32, depth=128),
    StepPlan(16, 64),
    StepPlan(32, 32),
    StepPlan(32, 64, warps=8),
    StepPlan(64, 64, warps=8),
]


def measure_rows(bench: Bench, n: int, steps: int) -> None:
    tensors = problem(n, steps, bench.batch)
    chosen = cuda_launch.row_plan(n)
    for plan in row_plans(n):
        mark = "*" if plan == chosen else ""
        name = f"row kernel{mark} size={plan.size}{' 3x64' if plan.three else ''} warps={plan.warps}"
        with replaced("row_plan", lambda _, plan=plan: plan):
            bench.time(f"{name}, forward", n, steps, lambda: no_grad(lambda: plain(cuda)(*tensors)))
            bench.time(f"{name}, training step", n, steps, lambda: training_step(plain(cuda), *tensors))
    bench.time("row kernel*, modReLU, training step", n, steps, lambda: training_step(plain(cuda, MODRELU), *tensors))
    bench.time("row kernel*, graph", n, steps, lambda: captured(training_step(plain(cuda), *tensors)))


def measure_steps(bench: Bench, n: int, steps: int) -> None:
    tensors = problem(n, steps, bench.batch)
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    chosen = cuda_launch.step_plan(bench.batch, n, processors)
    for plan in STEP_PLANS:
        mark = "*" if plan == chosen else ""
        name = f"step kernel{mark} {plan.rows}x{plan.columns}x{plan.depth} warps={plan.warps}"
        with replaced("step_plan", lambda *_, plan=plan: plan):
            bench.time(f"{name}, graph, forward", n, steps, lambda: captured(no_grad(lambda: plain(cuda)(*tensors))))
            bench.time(f"{name}, graph", n, steps, lambda: captured(training_step(plain(cuda), *tensors)))
    bench.time("step kernel*, launched one by one", n, steps, lambda: training_step(plain(cuda), *tensors))
    bench.time("eager loop, graph", n, steps, lambda: captured(training_step(plain(reference), *tensors)))


def measure_gated(bench: Bench, n: int, steps: int) -> None:
    def make_lstm(back_end: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return lambda x, weight, h0: back_end.run(lstm.call(x, weight, (h0, h0)))[0]

    def make_gru(back_end: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return lambda x, weight, h0: back_end.run(gru.call(x, weight, (h0,), reset_after=True))[0]

    for name, make, gates in (("LSTM", make_lstm, 4), ("GRU", make_gru, 3)):
        tensors = problem(n, steps, bench.batch, gates)
        step = training_step(make(cuda), *tensors)
        bench.time(f"{name} step kernel, graph", n, steps, lambda step=step: captured(step))
        bench.time(f"{name} step kernel, launched one by one", n, steps, lambda step=step: step)
        eager = training_step(make(reference), *tensors)
        bench.time(f"{name} eager loop", n, steps, lambda eager=eager: eager)


def measure_cudnn(bench: Bench, n: int, steps: int) -> None:
    """Time cuDNN with an input of one feature: it cannot leave the input projection out."""
    x = torch.randn(steps, bench.batch, 1, device="cuda")
    for kind in (torch.nn.RNN, torch.nn.LSTM):
        module = kind(1, n).cuda()
        parameters = list(module.parameters())
        grad = torch.randn(steps, bench.batch, n, device="cuda")
        for tf32 in (False, True):

            def run(module: Any = module, parameters: Any = parameters, grad: Tensor = grad, tf32: bool = tf32) -> Any:
                with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
                    return torch.autograd.grad(module(x)[0], parameters, grad)

            bench.time(f"cuDNN {kind.__name__} TF32 {'on' if tf32 else 'off'}", n, steps, lambda run=run: run)


def measure_weight_gradient(bench: Bench, n: int, steps: int) -> None:
    a, b = (torch.randn(steps * bench.batch, n, device="cuda") for _ in range(2))
    exact = a.T.double() @ b.double()
    before = torch.backends.cuda.matmul.allow_tf32
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        note = f"error {relative(a.T @ b, exact):.1e}"
        bench.time(f"weight gradient GEMM, TF32 {'on' if tf32 else 'off'}", n, steps, lambda: lambda: a.T @ b, note)
    torch.backends.cuda.matmul.allow_tf32 = before


def relative(actual: Tensor, exact: Tensor) -> float:
    return float(torch.linalg.vector_norm(actual - exact) / torch.linalg.vector_norm(exact))


def errors(n: int, steps: int, batch: int) -> dict[str, Any]:
    """Distance from float64 of the states and of the gradients of x, W and h_0: tanh, a smooth function."""
    x, weight, h0 = problem(n, steps, batch)
    grad = torch.randn(steps, batch, n, device="cuda")

    def results(back_end: Any, dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.detach().to(dtype).requires_grad_() for t in (x, weight, h0)]
        states = plain(back_end)(*leaves)
        return [states.detach(), *torch.autograd.grad(states, leaves, grad.to(dtype))]

    exact = results(reference, torch.float64)
    names = ("states", "dx", "dW", "dh0")
    report: dict[str, Any] = {"n": n, "steps": steps}
    for label, back_end in (("kernels", cuda), ("reference in float32", reference)):
        measured = results(back_end, torch.float32)
        report[label] = {name: relative(a, e) for name, a, e in zip(names, measured, exact, strict=True)}
    return report


def _line(row: Row) -> str:
    if row.median_ms is None:
        return f"{row.what:58s} n={row.n:<5d} {row.note}"
    spread = f"[{row.low_ms:.3f}, {row.high_ms:.3f}]"
    return (
        f"{row.what:58s} n={row.n:<5d} {row.median_ms:9.3f} ms {spread:20s} {row.us_per_step:8.2f} us/step {row.note}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=784)
    parser.add_argument("--row-features", type=int, nargs="*", default=[170, 64, 128, 192, 256])
    parser.add_argument("--step-features", type=int, nargs="*", default=[512, 1030])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--budget", type=float, default=480, help="seconds after which measurements are skipped")
    parser.add_argument("--output", type=Path, default=Path("cuda_first_look.json"))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device")
    import triton

    machine = {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "triton": triton.__version__,
        "python": platform.python_version(),
    }
    print(machine, flush=True)
    batch, steps = arguments.batch, arguments.steps
    bench = Bench(batch, arguments.repeats, arguments.budget)
    accuracy = []
    for n in [*arguments.row_features, *arguments.step_features]:
        accuracy.append(errors(n, min(steps, 200), batch))
        print(accuracy[-1], flush=True)
    for n in arguments.row_features:
        measure_rows(bench, n, steps)
    for n in arguments.step_features:
        measure_steps(bench, n, steps)
    for n in (*arguments.row_features[:1], *arguments.step_features[:1]):
        eager = training_step(plain(reference), *problem(n, steps, batch))
        bench.time("eager loop", n, steps, lambda eager=eager: eager)
        measure_cudnn(bench, n, steps)
        measure_weight_gradient(bench, n, steps)
    measure_gated(bench, 128, steps)
    report = {
        "machine": machine,
        "batch": batch,
        "accuracy": accuracy,
        "timings": [asdict(row) for row in bench.rows],
    }
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {arguments.output}; * marks what the back end chooses")


if __name__ == "__main__":
    main()
