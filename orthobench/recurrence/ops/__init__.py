"""The operations: each folder declares one or more of them, and contains their kernels.

T steps, B sequences, n hidden features. Tensors through time are `[T, B, n]`. See `Operation` for the call.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from orthobench.recurrence.operation import Operation


@functools.cache
def operations() -> tuple[Operation[...], ...]:
    """Return the operations that the folders declare, by folder and then in the order of their declarations."""
    folders = sorted(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
    values = [(folder, value) for folder in folders for value in vars(importlib.import_module(folder)).values()]
    # Only a folder's own, because it may import the operation of another.
    return tuple(value for folder, value in values if isinstance(value, Operation) and value.folder == folder)
