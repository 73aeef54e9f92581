"""What it takes to keep a recurrent matrix W within a constraint, and the share of a training step that this is.

    python workshop/benchmarks/constraints.py --rounds 7
    python workshop/benchmarks/constraints.py --device cuda

Milliseconds of W, its gradient and a small move of its parameter, next to a step with a free W of the same size.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import torch
from torch import Generator, nn

from orthobench.bench.implementations import SEED, ScoRNNNetwork, StartAndMap, TrainingStep, cayley, rotations
from orthobench.bench.measure import interleave, ratio, summarise
from orthobench.bench.shapes import SHAPES, Shape
from orthobench.isolation import isolated
from orthobench.matrices.exponential import exponential
from orthobench.matrices.householder import householder_product
from orthobench.matrices.spectral_radius import spectral_radius
from orthobench.recurrence.plain_tensors import is_on_gpu

Parametrisation = Callable[[int, Generator, torch.device], StartAndMap]


def free(n: int, generator: Generator, device: torch.device) -> StartAndMap:
    """Return W itself: a random matrix with eigenvalues in the unit disc."""
    return (torch.randn(n, n, generator=generator) / math.sqrt(n)).to(device), lambda weight: weight


def matrix_exponential(n: int, generator: Generator, device: torch.device) -> StartAndMap:
    return rotations(n, generator, device), lambda upper: exponential(upper, n)


def unit_radius(n: int, generator: Generator, device: torch.device) -> StartAndMap:
    start, _ = free(n, generator, device)
    return start, lambda weight: weight / spectral_radius(weight, is_on_gpu(weight))


def reflections(n: int, generator: Generator, device: torch.device) -> StartAndMap:
    """Return n reflections, whose products cover all orthogonal matrices of one determinant."""
    return torch.randn(n, n, generator=generator).to(device), householder_product


CONSTRAINTS: dict[str, Parametrisation] = {
    "Cayley": cayley,
    "exponential": matrix_exponential,
    "spectral radius": unit_radius,
    "n reflections": reflections,
}


class ConstraintStep:
    """Compute W from its parameter and the parameter's gradient, then move the parameter a little.

    The moves alternate in direction, so that the time does not depend on the number of earlier steps.
    """

    def __init__(self, constraint: Parametrisation, n: int, device: torch.device) -> None:
        generator = Generator().manual_seed(SEED)
        start, self.weight = constraint(n, generator, device)
        self.parameter = start.requires_grad_()
        self.move = 1e-4
        self.gradient = (torch.randn(n, n, generator=generator) / n).to(device)

    def __call__(self) -> None:
        self.parameter.grad = None
        self.weight(self.parameter).backward(self.gradient)
        assert self.parameter.grad is not None
        with torch.no_grad():
            self.parameter.sub_(self.parameter.grad.sign_(), alpha=self.move)
            self.move = -self.move
        if self.parameter.is_cuda:
            torch.cuda.synchronize(self.parameter.device)


def free_step(shape: Shape, device: torch.device) -> TrainingStep:
    """Return a training step of a network whose W has no constraint."""
    network = ScoRNNNetwork(shape, device)
    start, network.recurrent_weight = free(shape.hidden, network.generator, device)
    network.parameter = nn.Parameter(start)
    return TrainingStep(network)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    with isolated():
        for shape in (SHAPES[name] for name in ("mnist-170", "mnist-512", "ptb-1030")):  # one of each of the sizes
            steps: dict[str, Callable[[], None]] = {"free": free_step(shape, device)}
            steps |= {name: ConstraintStep(make, shape.hidden, device) for name, make in CONSTRAINTS.items()}
            samples = interleave(steps, arguments.rounds)
            for name in CONSTRAINTS:
                part, seconds = ratio(samples[name], samples["free"]), summarise(samples[name]).seconds
                print(f"n={shape.hidden:<5} {name:<16} {1000 * seconds:>8.2f} ms {part / (1 + part):>7.1%}", flush=True)


if __name__ == "__main__":
    main()
