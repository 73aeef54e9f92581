"""The parts of a training step on the CPU kernels: their shares of the time, and their rates versus the FMA peak.

    python workshop/benchmarks/step_parts.py --threads 1 --rounds 5

A part with recurrent products also has their GFLOP/s, and this rate as a share of the peak of fused multiply-adds. An
input projection that the kernels compute step by step counts for the forward part, and its gradient for the weight
gradient. `rest` is the whole step minus the other parts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from orthobench.bench.implementations import LSTMNetwork, ScoRNNNetwork, TrainingStep
from orthobench.bench.measure import CPU, WALL, interleave, summarise
from orthobench.bench.shapes import SHAPES, Shape, select
from orthobench.bench.suite import PEAK, MultiplyAdd
from orthobench.isolation import isolated
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
        with record_times() as seconds, timed(WHOLE):
            self._run()
        parts = sum(spent for name, spent in seconds.items() if name != WHOLE)
        self.steps.append({**seconds, REST: seconds[WHOLE] - parts})

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

    def faster_half(self) -> list[dict[str, float]]:
        """Return the faster half of the steps, without the first two, which have fresh memory."""
        counted = sorted(self.steps[2:] or self.steps, key=lambda seconds: seconds[WHOLE])
        return counted[: (len(counted) + 1) // 2]


def gflop(shape: Shape, gates: int) -> dict[str, float]:
    """Return the billions of operations in the products of the parts that have any."""
    product = shape.gflop(gates) / 3
    projection = 4 * shape.batch * shape.steps * shape.inputs * gates * shape.hidden / 1e9
    parts = {FORWARD: product, BACKWARD: product, WEIGHT_GRADIENT: product, PROJECTION: projection}
    return {**parts, WHOLE: 3 * product}


def rows(shape: Shape, steps: Sequence[dict[str, float]], gates: int, peak: float) -> list[str]:
    """Return a line for each part.

    Args:
        steps: the seconds of each part in each step.
        peak: the GFLOP/s of fused multiply-adds.
    """
    operations, lines = gflop(shape, gates), []
    whole = sum(seconds[WHOLE] for seconds in steps)
    for name in (*PARTS, WHOLE):
        total = sum(seconds.get(name, 0.0) for seconds in steps)
        line = f"{shape.name:<14} {name:<17} {1000 * total / len(steps):>9.3f} ms {total / whole:>7.1%}"
        if name in operations and total:
            rate = operations[name] * len(steps) / total
            line += f" {rate:>8.1f} GFLOP/s {rate / peak:>5.0%} of the peak"
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", action="append", choices=SHAPES, default=[], help="only this shape; may be repeated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    clock = CPU if arguments.threads == 1 else WALL
    with isolated(arguments.threads):
        for shape in select(arguments.shape):
            peak, step = MultiplyAdd(quick=False), TimedStep(shape)
            samples = interleave({PEAK: peak, WHOLE: step}, arguments.rounds, clock)
            rate = peak.gflop / summarise(samples[PEAK]).seconds
            print(*rows(shape, step.faster_half(), step.step.network.gates, rate), sep="\n", flush=True)


if __name__ == "__main__":
    main()
