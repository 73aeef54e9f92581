"""Recurrence through time: the hot operation.

Each folder of `ops` declares an operation, which is also its definition, and contains its kernels. `cpu` and `cuda`
hold the code that kernels share, and `operation` chooses between them. Other modules are passes over all steps:
`projection`, `convolution`, `pointwise`, `normalization`, `head_normalization`, `rotation` and `entropy`.

An operation is called as `h, state = recurrence(x, weight, state, trace, ...)`; see `Operation.__call__`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from orthobench.recurrence.call import (
    IDENTITY,
    LEAKY_RELU,
    MODRELU,
    RELU,
    TANH,
    Activation,
    Convolution,
    GradientTrace,
    Kind,
    Multiply,
    Projection,
    State,
)
from orthobench.recurrence.cpu import native
from orthobench.recurrence.projection import Read, project, reading, unread
from orthobench.recurrence.runtime import BACKENDS, BackendError, last_used, set_backend, use_backend

if TYPE_CHECKING:
    from orthobench.recurrence.convolution import short_convolution
    from orthobench.recurrence.entropy import cross_entropy
    from orthobench.recurrence.head_normalization import head_norm
    from orthobench.recurrence.normalization import layer_norm
    from orthobench.recurrence.operation import resolved
    from orthobench.recurrence.ops.cornn import cornn
    from orthobench.recurrence.ops.delta import delta_rule, read_memory, unit
    from orthobench.recurrence.ops.diagonal import diagonal_recurrence
    from orthobench.recurrence.ops.gru import gru
    from orthobench.recurrence.ops.independent import independent_recurrence
    from orthobench.recurrence.ops.lem import lem
    from orthobench.recurrence.ops.lstm import lstm
    from orthobench.recurrence.ops.memories import decaying_memory, rwkv7, written_keys
    from orthobench.recurrence.ops.minimal import min_gru, min_lstm
    from orthobench.recurrence.ops.mlstm import mlstm, read_memories
    from orthobench.recurrence.ops.one_hot import distinct_inputs, one_hot_recurrence
    from orthobench.recurrence.ops.oscillators import oscillators
    from orthobench.recurrence.ops.plain import gated_recurrence, lipschitz, recurrence
    from orthobench.recurrence.ops.selective import selective_scan
    from orthobench.recurrence.ops.selective.gate import gated_scan
    from orthobench.recurrence.ops.slstm import slstm, spread_heads
    from orthobench.recurrence.pointwise import gated_sum, skip_gelu
    from orthobench.recurrence.rotation import turned_heads

__all__ = [
    "BACKENDS",
    "IDENTITY",
    "LEAKY_RELU",
    "MODRELU",
    "RELU",
    "TANH",
    "Activation",
    "BackendError",
    "Convolution",
    "GradientTrace",
    "Kind",
    "Multiply",
    "Projection",
    "Read",
    "State",
    "cornn",
    "cross_entropy",
    "decaying_memory",
    "delta_rule",
    "diagonal_recurrence",
    "distinct_inputs",
    "gated_recurrence",
    "gated_scan",
    "gated_sum",
    "gru",
    "head_norm",
    "independent_recurrence",
    "last_used",
    "layer_norm",
    "lem",
    "lipschitz",
    "lstm",
    "min_gru",
    "min_lstm",
    "mlstm",
    "one_hot_recurrence",
    "oscillators",
    "project",
    "read_memories",
    "read_memory",
    "reading",
    "recurrence",
    "resolved",
    "rwkv7",
    "selective_scan",
    "set_backend",
    "short_convolution",
    "skip_gelu",
    "slstm",
    "spread_heads",
    "turned_heads",
    "unit",
    "unread",
    "use_backend",
    "written_keys",
]

MODULES = {
    "convolution": ("short_convolution",),
    "entropy": ("cross_entropy",),
    "head_normalization": ("head_norm",),
    "normalization": ("layer_norm",),
    "operation": ("resolved",),
    "ops.cornn": ("cornn",),
    "ops.delta": ("delta_rule", "read_memory", "unit"),
    "ops.diagonal": ("diagonal_recurrence",),
    "ops.gru": ("gru",),
    "ops.independent": ("independent_recurrence",),
    "ops.lem": ("lem",),
    "ops.lstm": ("lstm",),
    "ops.memories": ("decaying_memory", "rwkv7", "written_keys"),
    "ops.minimal": ("min_gru", "min_lstm"),
    "ops.mlstm": ("mlstm", "read_memories"),
    "ops.one_hot": ("distinct_inputs", "one_hot_recurrence"),
    "ops.oscillators": ("oscillators",),
    "ops.plain": ("gated_recurrence", "lipschitz", "recurrence"),
    "ops.selective": ("selective_scan",),
    "ops.selective.gate": ("gated_scan",),
    "ops.slstm": ("slstm", "spread_heads"),
    "pointwise": ("gated_sum", "skip_gelu"),
    "rotation": ("turned_heads",),
}
"""The names that are imported on first use, because a model needs few of them, by the module that defines them."""

if not TYPE_CHECKING:  # a type checker reports names that do not exist

    def __getattr__(name: str) -> Any:
        for module, names in MODULES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _comparisons() -> dict[str, Callable[[], bool]]:
    """Return the comparisons of the C kernels with the reference, which most processes do not need."""
    from orthobench.recurrence.cpu import comparison

    return comparison.comparisons()


native.compare_by(_comparisons)
