"""Large buffers, kept between calls.

Large tensors are in reused memory, because fresh pages cost as much time as the arithmetic on them. A tensor from this
pool owns its memory like any other tensor as long as anything (a view, a saved tensor, a user) holds its storage. After
that the memory returns to the pool.
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

_EMPTY = torch.empty(0, dtype=torch.float32, device="cpu")


class _Loan(weakref.ref[np.ndarray]):
    """A reference to an array that torch keeps, with the memory that comes back when the array dies."""

    __slots__ = ("memory",)
    memory: np.ndarray


class Workspace:
    def __init__(self) -> None:
        # A lock, because two threads could otherwise take the same buffer between
        # the search and its removal from the list.
        self._lock = threading.Lock()
        self._clock = 0
        self._free: list[tuple[int, np.ndarray]] = []  # the clock when it came back, and the memory
        self._loans: dict[int, _Loan] = {}  # by their own numbers; a reference that dies calls nothing
        # References call `_return`, also while the lock is held, but a deque's append does not need the lock.
        self._returned: deque[np.ndarray] = deque()

    def take(self, *shape: int) -> Tensor:
        """Return an uninitialised contiguous float32 tensor of this shape, aligned to 64 bytes."""
        size = 4 * math.prod(shape)
        if size < _POOLED_FROM:
            return _EMPTY.new_empty(shape)  # programs may change the defaults of torch.empty
        memory = self._memory(size)
        array = memory[:size].view(np.float32)
        # torch keeps this new array object until the storage dies, which returns the memory.
        # A weak reference to the array, because a storage of torch has no hook for its end, while
        # `from_numpy` holds the array until then.
        loan = _Loan(array, self._return)
        loan.memory = memory
        self._loans[id(loan)] = loan
        return torch.from_numpy(array).view(shape)

    def _return(self, loan: _Loan) -> None:
        self._returned.append(loan.memory)
        del self._loans[id(loan)]

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

    def _memory(self, size: int) -> np.ndarray:
        """Return at least this many bytes, aligned to 64."""
        with self._lock:
            self._clock += 1
            self._collect()
            fitting = [entry for entry in self._free if size <= entry[1].nbytes <= 2 * size]
            if fitting:
                chosen = min(fitting, key=lambda entry: entry[1].nbytes)
                self._free = [entry for entry in self._free if entry is not chosen]
            self._free = [entry for entry in self._free if self._clock - entry[0] < _RETENTION]
        if fitting:
            return chosen[1]
        buffer = np.empty(size + 64, np.uint8)
        start = -buffer.ctypes.data % 64
        return buffer[start : start + size]


_shared = Workspace()
take, release = _shared.take, _shared.release
