"""The comparison of the C kernel of PD-SSM's recurrence with the reference."""

from __future__ import annotations

from orthobench.recurrence.comparison import normal
from orthobench.recurrence.cpu import agreement
from orthobench.recurrence.ops.one_hot import one_hot_recurrence


def agrees() -> bool:
    """Return whether the kernel agrees, with whole and partial vectors and tiles of rows."""
    steps = 4
    for units, matrices, batch in ((18, 3, 6), (32, 1, 3)):
        x, start = normal(steps, batch, 2 * units, seed=0), normal(batch, 2 * units, seed=1)
        weight, dictionary = normal(steps, batch, matrices + 2 * units, seed=2), normal(matrices, units, units, seed=3)
        if not agreement.form_agrees(one_hot_recurrence, {}, ("dictionary",), [x, weight, start, dictionary]):
            return False
    return True
