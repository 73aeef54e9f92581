"""The benchmark of recurrences, from shapes to results as JSON values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Generator

from orthobench.bench.implementations import EAGER, SEED, implementations
from orthobench.bench.measure import CPU, SHORTEST, WALL, Clock, interleave, ratio, summarise
from orthobench.bench.memory import peak_of_step
from orthobench.bench.shapes import Shape
from orthobench.errors import UsageError
from orthobench.isolation import isolated
from orthobench.recurrence import threads
from orthobench.recurrence.backends import forget_used, last_self_tests
from orthobench.recurrence.cpu import call_c

SGEMM = "sgemm"
PEAK = "FMA peak"
WEIGHED = {"mnist-170": (EAGER, "cpu")}
"""The implementations whose peak memory is measured, by shape."""


@dataclass(frozen=True)
class Setup:
    """How to measure; `quick` only shows that everything runs, and its numbers are meaningless."""

    device: torch.device
    rounds: int = 5
    quick: bool = False
    clock: Clock = WALL
    tell: Callable[[str], None] = lambda message: None

    @property
    def shortest(self) -> float:
        return 0.0 if self.quick else SHORTEST

    def size(self, shape: Shape) -> Shape:
        return shape.small() if self.quick else shape

    def results(self, measure: Callable[[], Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
        """Measure the groups of rows, and return them with facts that the record of the environment does not contain.

        `self_tests` holds the GPU and the verdicts on the timed kernels, as in a run's environment, or None if no such
        kernels were timed.
        """
        forget_used()
        facts = {
            "device": self.device.type,
            "rounds": self.rounds,
            "quick": self.quick,
            "threads": torch.get_num_threads(),
            "clock": "cpu" if self.clock is CPU else "wall",
            "wait_policy": os.environ.get("OMP_WAIT_POLICY"),
            "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        }
        with isolated():
            shapes = measure()
        return {**facts, "self_tests": last_self_tests(), "shapes": shapes}


class MatrixProduct:
    """A product of square float32 matrices, which measures the machine's current rate."""

    def __init__(self, device: torch.device, quick: bool) -> None:
        self.n = 64 if quick else 4096 if device.type == "cuda" else 1024
        generator = Generator().manual_seed(SEED)
        self.a, self.b = (torch.randn(self.n, self.n, generator=generator).to(device) for _ in range(2))
        self.out = torch.empty_like(self.a)

    @property
    def gflop(self) -> float:
        return 2 * self.n**3 / 1e9

    def __call__(self) -> None:
        torch.mm(self.a, self.b, out=self.out)
        if self.out.is_cuda:
            torch.cuda.synchronize(self.out.device)


class MultiplyAdd:
    """Fused multiply-adds on registers with torch's number of threads, an upper bound for every float32 kernel."""

    def __init__(self, quick: bool) -> None:
        self.library = call_c.kernels()
        self.repeats = 1000 if quick else 5_000_000
        self.threads = torch.get_num_threads()
        self.out = torch.empty(self.threads, self.library.vector_length())

    @property
    def gflop(self) -> float:
        return float(self.threads * self.repeats * self.library.multiply_add_flops() / 1e9)

    def __call__(self) -> None:
        threads.run_all(
            [partial(self.library.multiply_add, self.repeats, 0.5, 1.0, row.data_ptr()) for row in self.out]
        )


def measure_recurrences(shapes: Iterable[Shape], setup: Setup) -> dict[str, Any]:
    """Measure a training step of every implementation, shape by shape.

    A row has the median seconds of a step over n samples, their spread, and GFLOP/s in the recurrent products. It also
    has this rate as a fraction of the sgemm rate, and the speed relative to the eager loop (`ratio`). `left_out` gives
    the reason why an implementation is missing; `peak_memory` is in bytes.
    """
    return setup.results(lambda: [_recurrences(setup.size(shape), setup) for shape in shapes])


def _recurrences(shape: Shape, setup: Setup) -> dict[str, Any]:
    steps: dict[str, Any] = {SGEMM: MatrixProduct(setup.device, setup.quick)}
    left_out = {}
    if setup.device.type == "cpu":
        if reason := call_c.missing():
            left_out[PEAK] = reason
        else:
            steps[PEAK] = MultiplyAdd(setup.quick)
    gflop = {name: step.gflop for name, step in steps.items()}
    for name, make in implementations(shape, setup.device).items():
        try:
            step = make()
            if setup.device.type == "cuda":  # CUDA kernels may fail at their first launch
                step()
        except (UsageError, ValueError, RuntimeError) as error:
            left_out[name] = str(error).partition("\n")[0]
            continue
        steps[name] = step
        gflop[name] = shape.gflop(step.network.gates)
    setup.tell(f"{shape.name}: {', '.join(steps)}")
    timed = interleave(steps, setup.rounds, setup.clock, setup.shortest)
    rows = [
        {
            "implementation": name,
            **timing(samples),
            "gflops": gflop[name] / summarise(samples).seconds,
            "of_sgemm": ratio(timed[SGEMM], samples) * gflop[name] / gflop[SGEMM],
            "of_peak": ratio(timed[PEAK], samples) * gflop[name] / gflop[PEAK] if PEAK in timed else None,
            "ratio": None if name in (SGEMM, PEAK) else ratio(timed[EAGER], samples),
        }
        for name, samples in timed.items()
    ]
    weighed = WEIGHED.get(shape.name, ()) if setup.device.type == "cpu" and not setup.quick else ()
    memory = {name: peak_of_step(shape, name, torch.get_num_threads()) for name in weighed if name in steps}
    return {"shape": asdict(shape), "rows": rows, "left_out": left_out, "peak_memory": memory}


def timing(samples: Sequence[float]) -> dict[str, Any]:
    """Return a row's summary and its samples."""
    return {**asdict(summarise(samples)), "samples": [{"seconds": each} for each in samples]}
