"""Large tensors in reused memory: fresh pages cost as much time as the arithmetic on them.

A tensor from this pool owns its memory like any other, while anything (a view, a saved tensor, a user) holds its
storage. The memory then returns to the pool.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque

import numpy as np
import torch
from torch import Tensor

_POOLED_FROM = 1 << 20  # bytes; for less, the allocator of torch is as good
_RETENTION = 64  # calls of `take` after which an unused buffer is freed
_LITTLE = 1 << 30  # bytes of unused buffers that need not be freed: their pages cost more than they are worth


class Workspace:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = 0
        self._free: list[tuple[int, np.ndarray]] = []  # the clock at its return, the bytes
        # Finalizers fill it. They may run while the lock is taken; a deque's append needs no lock.
        self._returned: deque[np.ndarray] = deque()

    def take(self, *shape: int) -> Tensor:
        """Return an uninitialised contiguous float32 tensor of this shape, aligned to 64 bytes."""
        size = 4 * math.prod(shape)
        if size < _POOLED_FROM:
            return torch.empty(shape, dtype=torch.float32, device="cpu")  # not torch's defaults, which programs set
        buffer = self._buffer(size)
        start = -buffer.ctypes.data % 64
        # torch keeps this new array object until the storage dies, which returns the buffer.
        loan = buffer[start : start + size].view(np.float32)
        weakref.finalize(loan, self._returned.append, buffer).atexit = False
        return torch.from_numpy(loan).view(shape)

    def release(self) -> None:
        """Free the unused buffers if they are large together: what comes now needs other sizes."""
        with self._lock:
            self._collect()
            if sum(buffer.nbytes for _, buffer in self._free) > _LITTLE:
                self._free = []

    def _collect(self) -> None:
        """Put the buffers that came back among the unused ones."""
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
