"""The layers of orthobench.nn, and the cells that run a step at a time, by the name of their model's class."""

from __future__ import annotations

from orthobench.nn import RecurrentCell, RecurrentLayer, cells

CELLS = {name.removesuffix("Cell"): getattr(cells, name) for name in cells.__all__ if name.endswith("Cell")}
LAYERS: dict[str, type[RecurrentLayer]] = {name: getattr(cells, name) for name in cells.__all__ if name in CELLS}

assert all(issubclass(cell, RecurrentCell) for cell in CELLS.values())
