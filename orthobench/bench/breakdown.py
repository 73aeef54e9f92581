"""The parts of a training step on the CPU kernels: their shares of the time, and their rates versus the FMA peak."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from orthobench.bench.implementations import LSTMNetwork, ScoRNNNetwork, TrainingStep
from orthobench.bench.measure import interleave, summarise
from orthobench.bench.shapes import Shape
from orthobench.bench.suite import PEAK, MultiplyAdd, Setup, timing
from orthobench.errors import UsageError
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.timing import (
    BACKWARD,
    FORWARD,
    PROJECTION,
    READOUT,
    WEIGHT_GRADIENT,
    record_times,
    timed,
)

COMPUTING_W, OPTIMISER, REST, WHOLE = "computing W", "optimiser", "rest", "whole step"
PARTS = (FORWARD, BACKWARD, WEIGHT_GRADIENT, PROJECTION, READOUT, COMPUTING_W, OPTIMISER, REST)


class TimedStep:
    """A training step whose parts are timed. The graph is cut at W, so that the gradient of W is a separate part.

    Attributes:
        steps: the seconds of each part of each step so far, `rest` and `whole step` included.
    """

    def __init__(self, shape: Shape) -> None:
        device = torch.device("cpu")
        network = (LSTMNetwork if shape.cell == "lstm" else ScoRNNNetwork)(shape, device, "cpu")
        self.step = TrainingStep(network)
        self.steps: list[dict[str, float]] = []

    def __call__(self) -> None:
        with record_times() as seconds:
            start = time.perf_counter()
            self._run()
            whole = time.perf_counter() - start
        self.steps.append({**seconds, REST: whole - sum(seconds.values()), WHOLE: whole})

    def _run(self) -> None:
        network = self.step.network
        if isinstance(network, ScoRNNNetwork):
            make = network.recurrent_weight
            with timed(COMPUTING_W):
                weight = make(network.parameter)
            leaf = weight.detach().requires_grad_()
            network.recurrent_weight = lambda parameter: leaf
            try:
                self.step.gradients()
            finally:
                network.recurrent_weight = make
            with timed(COMPUTING_W):
                weight.backward(leaf.grad)
        else:
            self.step.gradients()
        with timed(OPTIMISER):
            self.step.optimizer.step()


def measure_breakdown(shapes: Sequence[Shape], setup: Setup) -> dict[str, Any]:
    """Measure the parts of each shape's step; `rest` is the whole minus the other parts.

    Each row has a part's seconds and its share of the step, over the faster half of the steps. A part with recurrent
    products also has their GFLOP/s, and this rate as a fraction of the peak of fused multiply-adds. An input projection
    that the kernels compute step by step counts for the forward part, and its gradient for the weight gradient.

    Raises:
        UsageError: the device is not a CPU, or the machine has no C kernels.
    """
    if setup.device.type != "cpu":
        raise UsageError("`breakdown` times the CPU kernels: add `device='cpu'`")
    if reason := call_c.missing():
        raise UsageError(f"`breakdown` times the CPU kernels: {reason}")
    return setup.results(lambda: [_breakdown(setup.size(shape), setup) for shape in shapes])


def _breakdown(shape: Shape, setup: Setup) -> dict[str, Any]:
    peak, step = MultiplyAdd(setup.quick), TimedStep(shape)
    setup.tell(f"{shape.name}: {PEAK}, {', '.join(PARTS)}")
    timed = interleave({PEAK: peak, WHOLE: step}, setup.rounds, setup.clock, setup.shortest)
    # Not the first two, because they are trials of `interleave`, with fresh memory.
    counted = sorted(step.steps[2:] or step.steps, key=lambda seconds: seconds[WHOLE])
    faster = counted[: (len(counted) + 1) // 2]
    peak_rate = peak.gflop / summarise(timed[PEAK]).seconds
    gflop = _gflop(shape, step.step.network.gates)
    whole = sum(seconds[WHOLE] for seconds in faster)
    rows = []
    for name in (*PARTS, WHOLE):
        total = sum(seconds.get(name, 0.0) for seconds in faster)
        rate = gflop[name] * len(faster) / total if name in gflop and total else None
        rows.append(
            {
                "part": name,
                "seconds": total / len(faster),
                "share": total / whole,
                "gflops": rate,
                "of_peak": None if rate is None else rate / peak_rate,
            }
        )
    return {"shape": asdict(shape), "rows": rows, "step": timing(timed[WHOLE]), PEAK: timing(timed[PEAK])}


def _gflop(shape: Shape, gates: int) -> dict[str, float]:
    """Return the billions of operations in the products of the parts that have any."""
    product = shape.gflop(gates) / 3
    projection = 4 * shape.batch * shape.steps * shape.inputs * gates * shape.hidden / 1e9
    parts = {FORWARD: product, BACKWARD: product, WEIGHT_GRADIENT: product, PROJECTION: projection}
    return {**parts, WHOLE: 3 * product}
