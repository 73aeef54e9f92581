"""Count the parameters of the models at the sizes that the papers print."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from orthobench.model import Signature
from orthobench.options.assignments import parse_assignments
from orthobench.papers.sizes import PrintedSize, sizes
from orthobench.plugins import Catalog


@dataclass(frozen=True)
class CountedSize:
    """A published size, and the parameter count of the model here."""

    size: PrintedSize
    count: int

    @property
    def agrees(self) -> bool:
        return self.size.agrees(self.count)


def count_printed_sizes(catalog: Catalog) -> list[CountedSize]:
    """Return every published size, with the parameter count of the model here for the same settings.

    Raises:
        UsageError: a model cannot be loaded.
    """
    counted = []
    for size in sizes():
        cls = catalog.load("model", size.model)
        settings = cls.Settings.read(parse_assignments(size.settings.split()))
        model = cls(settings, Signature(size.inputs, size.outputs, "all"), torch.Generator())
        counted.append(CountedSize(size, model.parameter_count()))
    return counted
