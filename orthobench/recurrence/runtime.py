"""What all calls share at run time: the chosen back end and the record of those used, threads, memory and time.

Large tensors are in reused memory, because fresh pages cost as much time as the arithmetic on them. A tensor from this
pool owns its memory like any other tensor as long as anything (a view, a saved tensor, a user) holds its storage. After
that the memory returns to the pool.

The seconds of the parts of a training step are measured inside `record_times`, and nothing is timed outside it.
"""

from __future__ import annotations

import functools
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

AUTO = "auto"
REFERENCE = "reference"
BACKENDS = (REFERENCE, "cpu", "cuda")

_current: ContextVar[str | None] = ContextVar("recurrence_backend", default=None)
_default = AUTO


class SelfTest(Protocol):
    """The verdict on the kernels of one variant: why they failed their self-test, or None."""

    @property
    def reason(self) -> str | None: ...

    def machine(self) -> dict[str, Any]:
        """Return the facts for which the verdict is valid, as JSON values."""


class _Record(threading.local):
    """The record of this thread's calls."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.self_tests: dict[str, SelfTest] = {}


_record = _Record()


class BackendError(ValueError):
    """The chosen back end cannot run a call; the message gives the reason."""


def set_backend(name: str) -> None:
    """Set the back end of every call outside `use_backend`: one of BACKENDS, or "auto"."""
    global _default
    _default = _checked(name)


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Set the back end of the calls inside the block: one of BACKENDS, or "auto"."""
    token = _current.set(_checked(name))
    try:
        yield
    finally:
        _current.reset(token)


def chosen_backend() -> str:
    """Return the name set by `use_backend` or `set_backend`: one of BACKENDS, or "auto"."""
    return _current.get() or _default


def outside_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return the context in which `torch.autocast` changes no type on this device."""
    kind = device.type
    is_on = kind != "meta" and torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if is_on else nullcontext()


# Torch's own predicates, under names of this module because they are called many times in a training step.
_strided = torch.strided
_is_tracing: Callable[[], bool] = torch._C._is_tracing
_is_transforming: Callable[[], bool] = torch._C._are_functorch_transforms_active
_count_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_is_included: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_included
_keys: Callable[[Tensor], Any] = torch._C._dispatch_keys
_key_set, _key = torch._C.DispatchKeySet, torch._C.DispatchKey


def _keys_of_plain_tensors() -> int:
    """Return the bits of the dispatch keys that a tensor may have if its numbers are in its memory."""
    keys = _key_set(_key.ADInplaceOrView)
    for backend in ("CPU", "CUDA"):
        for name in (backend, f"Autograd{backend}", f"Autocast{backend}"):
            keys = keys | _key_set(getattr(_key, name))
    bits: int = keys.raw_repr()
    return bits


_PLAIN = _keys_of_plain_tensors()
_USUAL = frozenset({Tensor, torch.nn.Parameter})
_NO_TENSORS = frozenset({type(None), int, float, bool})


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is nothing but dense memory, as kernels read it.

    All others are for torch's operations: those that wrap another tensor or have no memory, such as fake, functional
    and batched ones, sparse ones, and those with a negative bit.
    """
    bits: int = _keys(tensor).raw_repr()
    return bits | _PLAIN == _PLAIN


def are_plain(values: Iterable[Any]) -> bool:
    """Return whether all tensors among the values are plain, outside the transforms of `torch.func`.

    For torch's own two classes the layout and the negative bit suffice, which takes half the time.
    """
    for value in values:
        kind = type(value)
        if kind in _USUAL:
            if value.layout is not _strided or value.is_neg():
                return False
        elif kind not in _NO_TENSORS and isinstance(value, Tensor) and not is_plain(value):
            return False
    return True


def has_tangents() -> bool:
    """Return whether tensors may have tangents of forward-mode differentiation."""
    return forward_ad._current_level >= 0


def needs_torch() -> bool:
    """Return whether only torch's operations can run.

    This is so while a program is exported, traced or transformed by `torch.func`, during forward-mode differentiation,
    and inside dispatch modes, which have to see every operation: they compute with fake tensors, record programs
    (`make_fx`) or count (`FlopCounterMode`).
    """
    if torch.compiler.is_dynamo_compiling():  # it cannot trace the other predicates, and has no modes
        return torch.compiler.is_exporting() or torch._C._are_functorch_transforms_active()
    return (
        torch.compiler.is_exporting()
        or _is_tracing()
        or _is_transforming()
        or _count_modes() > 0
        or _is_included(_key.PreDispatch)
        or forward_ad._current_level >= 0
    )


def in_torch() -> bool:
    """Return whether only torch's operations are used, because the user chose so or nothing else can run."""
    return needs_torch() or chosen_backend() == REFERENCE


def is_on_gpu(tensor: Tensor) -> bool:
    """Whether a tensor is on a GPU, where launches and waits of the host cost more than most arithmetic."""
    return tensor.is_cuda


def last_used() -> set[str]:
    """Return the names of the back ends that ran this thread's calls since `forget_used`, for a run's record."""
    return set(_record.used)


def record_used(name: str) -> None:
    """Record the name of a back end that ran a call, for `last_used`."""
    _record.used.add(name)


def last_self_tests() -> dict[str, Any] | None:
    """Return the machine and the self-tests on which calls relied since `forget_used`, as JSON values, or None.

    A test is "passed" or the reason for its failure. All runs that rely on the same tests have the same record, because
    runs of one environment share it.
    """
    tests = _record.self_tests
    if not tests:
        return None
    machine = next(iter(tests.values())).machine()
    return {**machine, "tests": {form: test.reason or "passed" for form, test in sorted(tests.items())}}


def record_self_test(form: str, verdict: SelfTest) -> None:
    """Record a verdict on which a call relied, for `last_self_tests`."""
    _record.self_tests[form] = verdict


def forget_used() -> None:
    """Empty the records of `last_used` and `last_self_tests`."""
    _record.used.clear()
    _record.self_tests.clear()


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hand-written backward pass that records no graph, and whose results cannot be differentiated.

    It computes in the precision of the tensors, whatever `torch.autocast` says.

    Torch's decorator of this name refuses only if an incoming gradient needs a gradient itself. But the results depend
    on the saved tensors too, so a second derivative of, for example, a sum of outputs would silently be 0.

    Args:
        backward: takes the context, the saved tensors and the gradients, which are plain. The saved tensors must
            include inputs or outputs from which autograd reaches every input on which the results depend.
    """

    @functools.wraps(backward)
    def run(ctx: Any, *gradients: Tensor | None) -> Any:
        saved = ctx.saved_tensors  # once, because `torch.utils.checkpoint` allows no second time
        readable = gradients if _are_usual(gradients) else map(_readable, gradients)
        # A program may call `backward` under autocast, which would round the products of a gradient.
        device = next(each.device for each in (*saved, *gradients) if each is not None)
        with outside_autocast(device):
            if not torch.is_grad_enabled():  # no graph of the gradients is wanted
                return backward(ctx, saved, *readable)
            with torch.no_grad():
                results = backward(ctx, saved, *readable)
        sources = [each for each in (*saved, *gradients) if each is not None and each.requires_grad]
        several = results if isinstance(results, tuple) else (results,)
        tensors = iter(_Refusal.apply(len(sources), *sources, *(each for each in several if each is not None)))
        tied = tuple(None if each is None else next(tensors) for each in several)
        return tied if isinstance(results, tuple) else tied[0]

    return run


def _are_usual(gradients: Iterable[Tensor | None]) -> bool:
    """Return whether a kernel can read gradients as they are, without looking at them more closely."""
    for each in gradients:
        if each is not None and not is_plain(each):
            return False
    return not (_count_modes() > 0 or has_tangents())


def _readable(gradient: Tensor | None) -> Tensor | None:
    """Return a gradient as a kernel reads it.

    Raises:
        RuntimeError: it is none of a plain backward pass.
    """
    if _count_modes() > 0:
        raise RuntimeError("a dispatch mode sees no kernel's backward pass: run the forward pass inside it too")
    if gradient is None or (is_plain(gradient) and not has_tangents()):
        return gradient
    gradient = (gradient if gradient.layout is torch.strided else gradient.to_dense()).resolve_neg()
    has_tangent = has_tangents() and forward_ad.unpack_dual(gradient).tangent is not None
    if has_tangent or not is_plain(gradient):
        raise RuntimeError(
            "the kernels cannot read a gradient that has a tangent, is batched or wraps another tensor: "
            "use `use_backend('reference')` in the forward pass"
        )
    return gradient


class _Refusal(Function):
    """The identity of the tensors after the first `count`; it depends on these, and no derivative passes it."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors[count:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise RuntimeError("the kernels have first derivatives only: use `use_backend('reference')` for further ones")


def _checked(name: str) -> str:
    if name not in (AUTO, *BACKENDS):
        raise ValueError(f"unknown recurrence back end {name!r}: one of {', '.join((AUTO, *BACKENDS))}")
    return name


_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pools.clear)


def run_all(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks, in list order, on up to torch.get_num_threads() threads, including the caller's."""
    helpers = min(torch.get_num_threads(), len(tasks)) - 1 if len(tasks) > 1 else 0
    if helpers < 1:
        for task in tasks:
            task()
        return
    waiting = deque(tasks)

    def work() -> None:
        while True:
            try:
                task = waiting.popleft()
            except IndexError:
                return
            task()

    pool = _pools.get(helpers)
    if pool is None:  # two threads may get here at once, and then share the pool of the first
        pool = _pools.setdefault(helpers, ThreadPoolExecutor(helpers, thread_name_prefix="recurrence"))
    futures = [pool.submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        for future in futures:
            future.result()


def ranges(size: int, parts: int) -> list[tuple[int, int]]:
    """Divide [0, size) into at most `parts` ranges of nearly equal length."""
    parts = max(1, min(parts, size))
    return [(size * i // parts, size * (i + 1) // parts) for i in range(parts)]


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


FORWARD, BACKWARD = "forward", "backward"
WEIGHT_GRADIENT, PROJECTION, READOUT = "weight gradient", "input projection", "output map"

_recorded: dict[str, float] | None = None


@contextmanager
def record_times() -> Iterator[dict[str, float]]:
    """Sum the seconds of each `part` inside the block in the dictionary that it yields."""
    global _recorded
    before, _recorded = _recorded, {}
    try:
        yield _recorded
    finally:
        _recorded = before


def is_timing() -> bool:
    """Return whether parts are being timed."""
    return _recorded is not None


def part(name: str) -> AbstractContextManager[None]:
    """Time the block as this part, inside `record_times`. Parts do not overlap."""
    return nullcontext() if _recorded is None else _timed({name: lambda: 1.0}, _recorded)


def divided(name: str, inner: str, share: Callable[[], float]) -> AbstractContextManager[None]:
    """Time the block as two parts, inside `record_times`; afterwards `share` returns the inner part's share."""
    return nullcontext() if _recorded is None else _timed({name: lambda: 1 - share(), inner: share}, _recorded)


@contextmanager
def _timed(shares: Mapping[str, Callable[[], float]], seconds: dict[str, float]) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        spent = time.perf_counter() - start
        for name, share in shares.items():
            seconds[name] = seconds.get(name, 0.0) + spent * share()
