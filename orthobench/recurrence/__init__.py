"""Recurrence through time: the hot operation.

`operations` has the declarations, which are also the definition. `cpu` and `cuda` have kernels for them, and `dispatch`
chooses. Beside a recurrence stand the passes over all its steps: `projection`, `readout`, `convolution`, `pointwise`,
`normalization`, `head_normalization`, `selective_gate` and `entropy`.

An operation is called as `h, state = recurrence(x, weight, state, trace, ...)`; see `Operation.__call__`.
"""

from __future__ import annotations

from orthobench.recurrence.activations import IDENTITY, LEAKY_RELU, MODRELU, RELU, TANH, Activation, Kind
from orthobench.recurrence.backends import BACKENDS, BackendError, last_used, set_backend, use_backend
from orthobench.recurrence.call import Convolution, Multiply, Projection, State
from orthobench.recurrence.convolution import short_convolution
from orthobench.recurrence.entropy import cross_entropy
from orthobench.recurrence.head_normalization import head_norm
from orthobench.recurrence.normalization import layer_norm
from orthobench.recurrence.operations import (
    cornn,
    delta_rule,
    diagonal_recurrence,
    gated_recurrence,
    gru,
    independent_recurrence,
    lem,
    lipschitz,
    lstm,
    min_gru,
    min_lstm,
    mlstm,
    oscillators,
    read_memories,
    read_memory,
    recurrence,
    selective_scan,
    slstm,
    spread_heads,
    unit,
)
from orthobench.recurrence.pointwise import gated_sum, skip_gelu
from orthobench.recurrence.projection import project
from orthobench.recurrence.readout import read, reading
from orthobench.recurrence.selective_gate import gated_scan
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
    "read",
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
    "use_backend",
]
