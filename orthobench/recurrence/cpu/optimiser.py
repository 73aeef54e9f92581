"""The steps of optimisers by the C library."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from orthobench.recurrence import threads
from orthobench.recurrence.cpu import call_c, signatures
from orthobench.recurrence.cpu.call_c import pointer

_FEW = 1 << 17  # weights, likewise


class SteppedWeights:
    """Weights and the averages of their gradients, which an optimiser steps with the same rounding as torch's."""

    def __init__(self, tensors: Sequence[tuple[Tensor, Tensor | None, Tensor | None]]) -> None:
        """Keep the tensors' addresses.

        Args:
            tensors: each weight with its m and v, which are equally large; see `struct rule` in optimiser.c.

        Raises:
            TypeError: a tensor is not contiguous float32 on the CPU.
        """
        entry = signatures.structure("weight")
        rows = [entry(w.numel(), pointer(w), None, pointer(m), pointer(v)) for w, m, v in tensors]
        self.tensors, self._passed = tensors, (entry * len(rows))(*rows)
        self._entries = list(self._passed)  # so that setting a field creates no object
        self._averages, self._roots = any(m is not None for _, m, _ in tensors), None
        if any(v is not None for _, _, v in tensors):
            self._roots = torch.empty(sum(w.numel() for w, *_ in tensors), dtype=torch.float32, device="cpu")
        self._written = [each for row in tensors for each in row if each is not None]

    def are_in_place(self) -> bool:
        """Return whether the weights still have the addresses that C writes to."""
        return all(row[0].data_ptr() == entry.w for row, entry in zip(self.tensors, self._entries, strict=True))

    def step(self, gradients: Sequence[Tensor | None], numbers: Mapping[str, float]) -> None:
        """Step the weights that have a gradient.

        Args:
            gradients: of each weight, contiguous float32 on the CPU.
            numbers: the fields of the rule that are not the default.
        """
        total = 0
        for entry, gradient in zip(self._entries, gradients, strict=True):
            entry.size, entry.g = (0, None) if gradient is None else (gradient.numel(), gradient.data_ptr())
            total += entry.size
        library, rule = (
            call_c.kernels(),
            signatures.structure("rule")(**{"kept": 1, "divisor": 1, "keep": 1, **numbers}),
        )
        ranges = threads.ranges(total, torch.get_num_threads() if total > _FEW else 1)
        # Passed on, because each thread has its own flag, and the harness sets that of the caller.
        flush = library.flushes_denormals() if len(ranges) > 1 else 0
        arguments = flush, self._passed, ctypes.byref(rule), pointer(self._roots)

        def run(function: Callable[..., None]) -> None:
            if len(ranges) == 1:
                function(0, total, *arguments)
            else:
                threads.run_all([functools.partial(function, *each, *arguments) for each in ranges])

        if self._averages or self._roots is not None:
            run(library.average_gradients)
        if self._roots is not None:
            # Torch's root, because it is not always the nearest number, and the steps are
            # to be the same as torch's bit for bit.
            (self._roots if total == self._roots.numel() else self._roots[:total]).sqrt_()
        run(library.descend)
        # Told to autograd, because it does not see what C writes, and a graph that has saved
        # a weight must refuse its backward pass.
        torch.autograd.graph.increment_version(self._written)
