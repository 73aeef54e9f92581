"""Estimate how many runs a GPU takes in one launch of a recurrence's kernels at no cost in time.

The estimate takes every model for the plain recurrence. None of it was measured.
"""

from __future__ import annotations

from orthobench.recurrence.activations import TANH
from orthobench.recurrence.cuda import nvrtc_row
from orthobench.recurrence.cuda.launch import MAX_REGISTERS, REGISTER_FILE, row_plan, step_plan

MAX_RUNS = 16
LAUNCHES_OF_A_GRAPH = 5
"""A CUDA graph launches a kernel about this many times as fast as the host, and a group of runs has none."""
_OTHER_REGISTERS = 40  # of a thread of a row kernel, beside its part of W


def runs_at_once(features: int, batch: int, processors: int) -> int:
    """Return the number of runs whose thread blocks all run at the same time; 1 where a group does not pay.

    A row kernel has a block for each batch row, and its registers limit the blocks of a processor. A step kernel has a
    block for each tile. Its launches take longer than its work, so a few runs in a group lose to a run with a graph.

    Args:
        features: the number of real features n of the state.
        batch: rows of a batch.
        processors: multiprocessors of the GPU.
    """
    if row_plan(features) is None:
        plan = step_plan(batch, features, processors)
        tiles = -(-batch // plan.rows) * -(-features // plan.columns)
        runs = min(MAX_RUNS, processors // tiles)
        return runs if runs >= LAUNCHES_OF_A_GRAPH else 1
    blocks = 1
    if features <= nvrtc_row.MAX_FEATURES:
        macros = nvrtc_row.constants(TANH, features, False, False, False)
        registers = min(MAX_REGISTERS, macros["COLUMNS"] * macros["DEPTH"] + _OTHER_REGISTERS)
        blocks = REGISTER_FILE // (nvrtc_row.THREADS * registers)
    return max(1, min(MAX_RUNS, blocks * processors // batch))
