"""A row of the report on a GPU, and how it is measured: the device, the sizes, and the timers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from orthobench.recurrence.call import Call
from orthobench.recurrence.cuda import backend as cuda
from orthobench.recurrence.cuda import self_test

Run = Callable[[], Any]
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A row: its name, which is unique in the report, and the function that measures its values."""

    name: str
    measure: Callable[[], Values]


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
    """The sizes of the report: steps, sequences, and numbers of features for row, step and cluster kernels."""

    steps: int = 784
    batch: int = 128
    row: tuple[int, ...] = (170, 60, 116, 190, 232)
    step: tuple[int, ...] = (512, 360, 1030)
    cluster: tuple[int, ...] = (512, 360, 232)
    gated: tuple[int, ...] = (128, 256)
    model_steps: int = 784


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
