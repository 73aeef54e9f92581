"""A training step of `orthobench.nn.ScoRNN` and `.LSTM` next to torch's layers and geotorch's orthogonal RNN.

python workshop/benchmarks/layers.py [ROUNDS]        (5; geotorch from the package index; all of the machine's cores)

A step is a forward pass, the backward pass of the mean square of the last output, and a step of SGD. All
implementations of a shape take turns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import geotorch
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from orthobench.bench.measure import interleave, ratio, summarise
from orthobench.nn import LSTM, ScoRNN

SHAPES = [(784, 128, 1, 170), (200, 50, 2, 170), (120, 20, 10, 190), (28, 128, 28, 512)]
"""Time steps, batch, inputs and hidden units of each comparison."""


class GeotorchRNN(nn.Module):
    """h_t = tanh(W h_{t-1} + U x_t + b), W orthogonal by geotorch, in a loop over time."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_size, hidden_size)
        self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)
        geotorch.orthogonal(self.recurrent, "weight")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with parametrize.cached():
            driven, states = self.inputs(x), []
            h = driven.new_zeros(driven.shape[1:])
            for step in driven.unbind(0):
                h = torch.tanh(step + self.recurrent(h))
                states.append(h)
        return torch.stack(states), h


def layers(m: int, n: int) -> Iterator[tuple[str, nn.Module]]:
    yield "orthobench ScoRNN", ScoRNN(m, n)
    yield "orthobench ScoRNN, tanh", ScoRNN(m, n, activation="tanh")
    yield "torch RNN", nn.RNN(m, n)
    yield "geotorch orthogonal RNN", GeotorchRNN(m, n)
    yield "orthobench LSTM", LSTM(m, n)
    yield "torch LSTM", nn.LSTM(m, n)


def step_of(layer: nn.Module, x: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4)

    def step() -> None:
        output, _ = layer(x)
        optimizer.zero_grad()
        output[-1].square().mean().backward()
        optimizer.step()

    return step


def main(rounds: int) -> None:
    torch.set_flush_denormal(True)
    for time, batch, m, n in SHAPES:
        torch.manual_seed(0)
        x = torch.randn(time, batch, m)
        samples = interleave({name: step_of(layer, x) for name, layer in layers(m, n)}, rounds)
        print(f"T = {time}, B = {batch}, m = {m}, n = {n}")
        for name, taken in samples.items():
            of = "orthobench LSTM" if "LSTM" in name else "orthobench ScoRNN, tanh"
            print(f"  {name:26} {1000 * summarise(taken).seconds:9.2f} ms   {ratio(taken, samples[of]):6.2f} x {of}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
