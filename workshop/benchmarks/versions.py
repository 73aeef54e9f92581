"""Time a training step of several checkouts in turns, with one thread and with two.

    python workshop/benchmarks/versions.py BASE . --rounds 10

BASE and . are folders of checkouts. Each has a process of its own, and the processes take turns at every sample, so
that a change of the machine's speed meets all of them. The table has a step's milliseconds, the median of the rounds
and the least, and its share of the peak of fused multiply-adds in the same round. The last column compares two threads
with twice the speed of one. On two cores and with eight shapes, six rounds of two checkouts take about five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path

import torch

from orthobench.bench.implementations import LSTMNetwork, ScoRNNNetwork, TrainingStep
from orthobench.bench.measure import interleave
from orthobench.bench.shapes import SHAPES, Shape
from orthobench.bench.suite import PEAK, MultiplyAdd

WHOLE = "whole step"
LEAST = 0.15
"""Seconds of a sample."""


def work() -> None:
    """Answer each line [fields of a shape, threads] with the seconds of a step and its share of the peak."""
    torch.set_flush_denormal(True)
    steps: dict[tuple[Shape, int], TrainingStep] = {}
    for line in sys.stdin:
        fields, threads = json.loads(line)
        torch.set_num_threads(threads)
        shape = Shape(*fields)
        if (shape, threads) not in steps:
            network = (LSTMNetwork if shape.cell == "lstm" else ScoRNNNetwork)(shape, torch.device("cpu"), "cpu")
            steps[shape, threads] = TrainingStep(network)
        step, peak = steps[shape, threads], MultiplyAdd(quick=False)
        peak.repeats //= 10
        samples = interleave({WHOLE: step, PEAK: peak}, rounds=1, shortest=LEAST)
        (seconds,), (at_peak,) = samples[WHOLE], samples[PEAK]
        rate = shape.gflop(step.network.gates) / seconds
        print(json.dumps([seconds, rate / (peak.gflop / at_peak)]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="only this shape; may be repeated")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work()
    workers = [
        subprocess.Popen(
            [sys.executable, "-P", __file__, "--worker", "."],
            env={**os.environ, "PYTHONPATH": str(folder.resolve()), "OMP_WAIT_POLICY": "PASSIVE"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for folder in arguments.folders
    ]
    print("| shape | checkout | 1 thread, ms | least | of peak | 2 threads, ms | least | of peak | 2 threads / 2 x 1 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for shape in arguments.shape or SHAPES:
        samples: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for _ in range(arguments.rounds):
            for threads in (1, 2):
                for number, worker in enumerate(workers):
                    assert worker.stdin is not None
                    assert worker.stdout is not None
                    worker.stdin.write(json.dumps([astuple(SHAPES[shape]), threads]) + "\n")
                    worker.stdin.flush()
                    samples.setdefault((number, threads), []).append(json.loads(worker.stdout.readline()))
        for number, folder in enumerate(arguments.folders):
            cells = []
            for threads in (1, 2):
                seconds, shares = zip(*samples[number, threads], strict=True)
                cells += [f"{1e3 * statistics.median(seconds):.3g}", f"{1e3 * min(seconds):.3g}"]
                cells.append(f"{statistics.median(shares):.0%}")
            pairs = zip(samples[number, 1], samples[number, 2], strict=True)
            cells.append(f"{statistics.median(one / two / 2 for (one, _), (two, _) in pairs):.0%}")
            print("|", " | ".join([shape, str(folder), *cells]), "|", flush=True)
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()
    return None


if __name__ == "__main__":
    main()
