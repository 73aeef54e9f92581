"""The shapes of the papers' training steps, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orthobench.errors import unknown


@dataclass(frozen=True)
class Shape:
    """B sequences of T steps, m inputs, n hidden units and p outputs, read after the last step or after all.

    The cell is scoRNN's (modReLU, W by the scaled Cayley transform) or LSTM's.
    """

    name: str
    batch: int
    steps: int
    inputs: int
    hidden: int
    outputs: int
    readout: Literal["last", "all"] = "last"
    cell: Literal["scornn", "lstm"] = "scornn"

    def gflop(self, gates: int) -> float:
        """Return the billions of operations in the recurrent products of a training step: forward, dL/dh and dL/dW."""
        return 3 * 2 * self.batch * self.steps * gates * self.hidden**2 / 1e9

    def small(self) -> Shape:
        """Return a small shape of the same kind, whose step takes milliseconds."""
        return replace(self, batch=4, steps=6, hidden=12, inputs=min(self.inputs, 5), outputs=min(self.outputs, 5))


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("mnist-170", 128, 784, 1, 170, 10),
        Shape("adding-64", 50, 100, 2, 64, 1),
        Shape("adding-200", 50, 200, 2, 170, 1),
        Shape("adding-750", 50, 750, 2, 170, 1),
        Shape("copying-2000", 20, 2020, 10, 190, 9, "all"),
        Shape("mnist-512", 128, 784, 1, 512, 10),
        Shape("ptb-1030", 128, 150, 50, 1030, 50, "all"),
        Shape("lstm-128", 128, 784, 1, 128, 10, cell="lstm"),
    )
}


def select(names: Sequence[str]) -> list[Shape]:
    """Return the shapes with these names in the table's order, or all shapes if there are no names.

    Raises:
        UsageError: a name is unknown.
    """
    for name in names:
        if name not in SHAPES:
            raise unknown("shape", name, SHAPES)
    return [shape for name, shape in SHAPES.items() if name in names or not names]
