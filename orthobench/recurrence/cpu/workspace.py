"""Large tensors in reused memory, because fresh pages cost as much time as the arithmetic on them.

A tensor from this pool owns its memory like any other tensor as long as anything (a view, a saved tensor, a user) holds
its storage. After that the memory returns to the pool.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque

import numpy as np
import torch
from torch import Tensor

_POOLED_FROM = 1 << 20  # bytes; for less, torch's allocator is as good
_RETENTION = 64  # calls of `take` after which an unused buffer is freed
_LITTLE = 1 << 30  # bytes of unused buffers that need not be freed, because fresh pages would cost more


class Workspace:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = 0
        self._free: list[tuple[int, np.ndarray]] = []  # the clock when it came back, and the buffer
        # Finalizers fill it. They may run while the lock is held, but a deque's append does not need the lock.
        self._returned: deque[np.ndarray] = deque()

    def take(self, *shape: int) -> Tensor:
        """Return an uninitialised contiguous float32 tensor of this shape, aligned to 64 bytes."""
        size = 4 * math.prod(shape)
        if size < _POOLED_FROM:
            return torch.empty(shape, dtype=torch.float32, device="cpu")  # because programs may change the defaults
        buffer = self._buffer(size)
        start = -buffer.ctypes.data % 64
        # torch keeps this new array object until the storage dies, which returns the buffer.
        loan = buffer[start : start + size].view(np.float32)
        weakref.finalize(loan, self._returned.append, buffer).atexit = False
        return torch.from_numpy(loan).view(shape)

    def release(self) -> None:
        """Free the unused buffers if they are large in total, because the next work needs other sizes."""
        with self._lock:
            self._collect()
            if sum(buffer.nbytes for _, buffer in self._free) > _LITTLE:
                self._free = []

    def _collect(self) -> None:
        """Move the buffers that came back to the unused ones."""
        while self._returned:
            self._free.append((self._clock, self._returned.popleft()))

    def _buffer(self, size: int) -> np.ndarray:
        with self._lock:
            self._clock += 1
            self._collect()
            fitting = [entry for entry in self._free if size + 64 <= entry[1].nbytes <= 2 * size]
            if fitting:
                chosen = min(fitting, key=lambda entry: entry[1].nbytes)
                self._free = [entry for entry in self._free if entry is not chosen]
            self._free = [entry for entry in self._free if self._clock - entry[0] < _RETENTION]
        return chosen[1] if fitting else np.empty(size + 64, np.uint8)


_shared = Workspace()
take, release = _shared.take, _shared.release
