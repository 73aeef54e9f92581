"""Forward and backward pass of cells that users write, by their compiled kernel and in a loop of their steps.

python workshop/benchmarks/own_cells.py [ROUNDS [CELL ...]]        (5, all; one thread)

T = 200, B = 50 and ten inputs. The ways of a cell take turns, and times are CPU seconds, to which other work on the
machine adds little. Cells of torch also have torch's layer next to them.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from orthobench.bench.measure import CPU, interleave, ratio
from orthobench.nn import compile
from orthobench.recurrence import use_backend

STEPS, BATCH, INPUTS, SIZES = 200, 50, 10, (64, 128)
LAYERS = {nn.LSTMCell: nn.LSTM, nn.GRUCell: nn.GRU, nn.RNNCell: nn.RNN}


def passes(cell: nn.Module, states: int, units: int) -> dict[str, Callable[[], None]]:
    """Return a forward and backward pass for each way to run a cell."""
    x, start = torch.randn(STEPS, BATCH, INPUTS), torch.zeros(BATCH, units)
    layer, state = compile(cell), start if states == 1 else (start,) * states
    whole = LAYERS[type(cell)](INPUTS, units) if type(cell) in LAYERS else None

    def backward(outputs: Tensor, of: nn.Module) -> None:
        torch.autograd.grad(outputs.square().sum(), list(of.parameters()))

    def loop() -> None:
        with use_backend("reference"):
            backward(layer(x, state)[0], layer)

    ways: dict[str, Callable[[], None]] = {"kernel": lambda: backward(layer(x, state)[0], layer), "loop": loop}
    return ways if whole is None else ways | {"torch": lambda: backward(whole(x)[0], whole)}


def main(rounds: int, names: list[str]) -> None:
    root = Path(__file__).parents[2]
    sys.path[:0] = [str(root), str(root / "tests")]
    from support.own_cells import STATES  # the cells of `docs/cells.py` and those of the tests

    torch.set_num_threads(1)
    for units in SIZES:
        found = {}
        for kind, states in STATES.items():
            if names and kind.__name__ not in names:
                continue
            torch.manual_seed(0)
            taken = interleave(passes(kind(INPUTS, units), states, units), rounds, CPU)
            found[kind.__name__] = ratio(taken["loop"], taken["kernel"])
            torch_layer = f", torch's layer {ratio(taken['torch'], taken['kernel']):.2f}" if "torch" in taken else ""
            print(f"n = {units:3} {kind.__name__:16} loop {found[kind.__name__]:5.2f} x{torch_layer}", flush=True)
        print(f"n = {units:3} median of {len(found)}: {statistics.median(found.values()):.2f} x")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2:])
