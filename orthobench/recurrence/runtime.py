"""What all calls share at run time: the chosen back end and the record of those used, threads, memory and time.

Large tensors are in reused memory, because fresh pages cost as much time as the arithmetic on them. A tensor from this
pool owns its memory like any other tensor as long as anything (a view, a saved tensor, a user) holds its storage. After
that the memory returns to the pool.

The seconds of the parts of a training step are measured inside `record_times`, and nothing is timed outside it.
"""

from __future__ import annotations

import os

import torch

from orthobench.recurrence.threads import _pools

_key_set, _key = torch._C.DispatchKeySet, torch._C.DispatchKey

if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pools.clear)
