"""Recurrence through time: the hot operation.

Each folder of `ops` declares an operation, which is also its definition, and contains its kernels. `cpu` and `cuda`
hold the code that kernels share, and `dispatch` chooses between them. Other modules are passes over all steps:
`projection`, `readout`, `convolution`, `pointwise`, `normalization`, `head_normalization` and `entropy`.

An operation is called as `h, state = recurrence(x, weight, state, trace, ...)`; see `Operation.__call__`.
"""

from __future__ import annotations

from collections.abc import Callable

from orthobench.recurrence.activations import IDENTITY, LEAKY_RELU, MODRELU, RELU, TANH, Activation, Kind
from orthobench.recurrence.backends import BACKENDS, BackendError, last_used, set_backend, use_backend
from orthobench.recurrence.call import Convolution, Multiply, Projection
from orthobench.recurrence.convolution import short_convolution
from orthobench.recurrence.cpu import native
from orthobench.recurrence.declaration import State
from orthobench.recurrence.entropy import cross_entropy
from orthobench.recurrence.head_normalization import head_norm
from orthobench.recurrence.normalization import layer_norm
from orthobench.recurrence.ops.cornn import cornn
from orthobench.recurrence.ops.delta import delta_rule, read_memory, unit
from orthobench.recurrence.ops.diagonal import diagonal_recurrence
from orthobench.recurrence.ops.gru import gru
from orthobench.recurrence.ops.independent import independent_recurrence
from orthobench.recurrence.ops.lem import lem
from orthobench.recurrence.ops.lstm import lstm
from orthobench.recurrence.ops.minimal import min_gru, min_lstm
from orthobench.recurrence.ops.mlstm import mlstm, read_memories
from orthobench.recurrence.ops.oscillators import oscillators
from orthobench.recurrence.ops.plain import gated_recurrence, lipschitz, recurrence
from orthobench.recurrence.ops.selective import selective_scan
from orthobench.recurrence.ops.selective.gate import gated_scan
from orthobench.recurrence.ops.slstm import slstm, spread_heads
from orthobench.recurrence.pointwise import gated_sum, skip_gelu
from orthobench.recurrence.projection import project
from orthobench.recurrence.readout import Read, reading, unread
from orthobench.recurrence.trace import GradientTrace

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
    "delta_rule",
    "diagonal_recurrence",
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
    "oscillators",
    "project",
    "read_memories",
    "read_memory",
    "reading",
    "recurrence",
    "selective_scan",
    "set_backend",
    "short_convolution",
    "skip_gelu",
    "slstm",
    "spread_heads",
    "unit",
    "unread",
    "use_backend",
]


def _comparisons() -> dict[str, Callable[[], bool]]:
    """Return the comparisons of the C kernels with the reference, which most processes do not need."""
    from orthobench.recurrence.cpu import comparison

    return comparison.comparisons()


native.compare_by(_comparisons)
