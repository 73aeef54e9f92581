"""Tests that compare the kernels of this installation with the reference, for `orthobench doctor --retest`.

They are installed with the package, and pytest runs them. A compiler may generate wrong code for some flags or
processors without reporting an error.
"""

from __future__ import annotations

import torch

from orthobench.recurrence.cpu import call_c

TOLERANCE = 1e-4  # relative; float32 stays below 1e-5
DEVICES = [
    *([] if call_c.missing() else ["cpu"]),
    *(f"cuda:{number}" for number in range(torch.cuda.device_count())),
]
