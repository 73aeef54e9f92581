"""The comparison of the C kernels of the mLSTM with the reference."""

from __future__ import annotations

import itertools

from orthobench.recurrence.cpu import agreement
from orthobench.recurrence.kernel_case import normal
from orthobench.recurrence.ops.mlstm import mlstm
from orthobench.recurrence.ops.mlstm.layout import memory_blocks


def mlstm_agrees() -> bool:
    """Return whether the kernels of the mLSTM agree, with whole and partial vectors, and with a partial chunk."""
    heads = 2
    sizes = ((3, 3, 16, False), (35, 2, 37, False), (5, 3, 70, True))
    for (steps, batch, size, exponential), reads in itertools.product(sizes, (True, False)):
        width = memory_blocks(reads) * heads * size
        parameters = {"heads": heads, "exponential_forget": exponential, "reads": reads}
        shapes = [(steps, batch, width), (steps, batch, 2 * heads), (batch, heads * (size * (size + 1) + 1))]
        arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        if not agreement.form_agrees(mlstm, parameters, (), arguments):
            return False
        if not agreement.projected_form_agrees(mlstm, parameters, width, arguments):
            return False
    return True
