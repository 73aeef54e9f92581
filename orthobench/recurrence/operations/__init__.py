"""The recurrences, each declared once: this is their definition.

T steps, B sequences, n hidden features. Tensors through time are `[T, B, n]`. See `Operation` for the call.
"""

from orthobench.recurrence.operations.dense import (
    cornn,
    gated_recurrence,
    gru,
    lem,
    lipschitz,
    lstm,
    recurrence,
    slstm,
    spread_heads,
)
from orthobench.recurrence.operations.independent import (
    diagonal_recurrence,
    independent_recurrence,
    min_gru,
    min_lstm,
    minimal_terms,
    oscillators,
)
from orthobench.recurrence.operations.memories import (
    delta_rule,
    mlstm,
    normalised,
    read_memories,
    read_memory,
    selected,
    selective_scan,
    unit,
    unit_heads,
)

__all__ = [
    "cornn",
    "delta_rule",
    "diagonal_recurrence",
    "gated_recurrence",
    "gru",
    "independent_recurrence",
    "lem",
    "lipschitz",
    "lstm",
    "min_gru",
    "min_lstm",
    "minimal_terms",
    "mlstm",
    "normalised",
    "oscillators",
    "read_memories",
    "read_memory",
    "recurrence",
    "selected",
    "selective_scan",
    "slstm",
    "spread_heads",
    "unit",
    "unit_heads",
]
