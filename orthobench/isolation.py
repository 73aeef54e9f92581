"""Everything in a process on which numbers depend besides a run's own settings: defaults, flags and random generators.

Programs and layers change this state. A run would then have other numbers under the same key, and would change those of
the runs after it. So each run trains within `isolated`, and the program around it finds its own state again.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class _Part:
    """A part of the state.

    Attributes:
        name: what error messages and tests call it.
        read: returns its value, or raises RuntimeError where torch cannot tell.
        new: its value in a new process, with which runs train.
        of_thread: whether each thread has its own value.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    new: Any
    of_thread: bool = False


def _flushes_denormals() -> bool:
    """Return whether the processor replaces denormal numbers by 0, which torch can set but not report."""
    return sys.float_info.min / 2 == 0


def _autocast_depth() -> int:
    """Return how many blocks of autocast are open; torch keeps its copies of weights until the outermost one ends."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _set_autocast_depth(depth: int) -> None:
    while _autocast_depth() < depth:
        torch.autocast_increment_nesting()
    while _autocast_depth() > depth:
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()


def _autocast(device: str, dtype: torch.dtype) -> list[_Part]:
    return [
        _Part(
            f"autocast on {device}",
            lambda: torch.is_autocast_enabled(device),
            lambda value: torch.set_autocast_enabled(device, value),
            new=False,
            of_thread=True,
        ),
        _Part(
            f"type of autocast on {device}",
            lambda: torch.get_autocast_dtype(device),
            lambda value: torch.set_autocast_dtype(device, value),
            new=dtype,
            of_thread=True,
        ),
    ]


def _precision(backend: str, operation: str, new: str) -> _Part:
    """Return the precision of products of float32 numbers; the parts of a back end follow its "all" until they differ.

    torch 2.8 and earlier have only `float32_matmul_precision` and `allow_tf32`.
    """
    return _Part(
        f"precision of {operation} on {backend}",
        lambda: torch._C._get_fp32_precision_getter(backend, operation),
        lambda value: torch._C._set_fp32_precision_setter(backend, operation, value),
        new,
    )


def _attribute(owner: Any, name: str, new: Any) -> _Part:
    return _Part(
        f"{owner.__name__}.{name}", lambda: getattr(owner, name), lambda value: setattr(owner, name, value), new
    )


def _attention(kernel: str) -> _Part:
    read, write = (getattr(torch.backends.cuda, name) for name in (f"{kernel}_sdp_enabled", f"enable_{kernel}_sdp"))
    return _Part(f"{kernel} kernel of attention", read, write, new=True)


_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}

_PARTS = (
    _Part("default type", torch.get_default_dtype, torch.set_default_dtype, new=torch.float32),
    _Part("gradients", torch.is_grad_enabled, torch.set_grad_enabled, new=True, of_thread=True),
    *_autocast("cpu", torch.bfloat16),
    *_autocast("cuda", torch.float16),
    _Part(
        "cache of autocast",
        torch.is_autocast_cache_enabled,
        torch.set_autocast_cache_enabled,
        new=True,
        of_thread=True,
    ),
    _Part("depth of autocast", _autocast_depth, _set_autocast_depth, new=0, of_thread=True),
    _Part("flushed denormals", _flushes_denormals, torch.set_flush_denormal, new=True, of_thread=True),
    _Part(
        "anomaly detection",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.autograd.set_detect_anomaly(*value),
        new=(False, True),
    ),
    _Part(
        "deterministic algorithms",
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        new=(False, False),
    ),
    _Part(
        "float32_matmul_precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        new="highest",
    ),
    _attribute(torch.backends.cudnn, "allow_tf32", new=True),
    *(
        _precision(*each)
        for each in (
            ("generic", "all", "none"),
            *(("cuda", operation, "none") for operation in ("all", "matmul")),
            *(("cuda", operation, "tf32") for operation in ("conv", "rnn")),
            *(("mkldnn", operation, "none") for operation in ("all", "matmul", "conv", "rnn")),
        )
        if hasattr(torch._C, "_get_fp32_precision_getter")
    ),
    _attribute(torch.backends.cudnn, "benchmark", new=False),
    _attribute(torch.backends.cudnn, "deterministic", new=False),
    _attribute(torch.backends.cudnn, "enabled", new=True),
    _attribute(torch.backends.mkldnn, "enabled", new=True),
    *(_attention(kernel) for kernel in ("flash", "mem_efficient", "math", "cudnn")),
    _Part("errors of numpy", np.geterr, lambda value: np.seterr(**value), new=_NUMPY_ERRORS, of_thread=True),
)
"""The parts in the order in which they are written: a precision for all comes before those of its operations."""


def _values(of_thread: bool) -> list[tuple[_Part, Any]]:
    """Return the parts of this thread, or of the process, with their values; without those that torch cannot tell."""
    values = []
    for part in _PARTS:
        if part.of_thread is of_thread:
            with contextlib.suppress(RuntimeError):  # an old and a new function have both set the precision
                values.append((part, part.read()))
    return values


def _write(values: list[tuple[_Part, Any]]) -> None:
    """Give the parts these values."""
    for part, value in values:
        with contextlib.suppress(RuntimeError):
            if part.read() == value:
                continue
        part.write(value)


@dataclass
class _Generators:
    """The states of all random generators."""

    cpu: Tensor
    cuda: list[Tensor] | None
    numpy: Any
    python: Any

    @classmethod
    def read(cls) -> _Generators:
        # Only if CUDA is in use, because the question would open a context on the GPU.
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
        return cls(torch.get_rng_state(), cuda, np.random.get_state(), random.getstate())

    def write(self) -> None:
        seed = torch.initial_seed()
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state_all(self.cuda)
        elif seed != torch.initial_seed() or torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(torch.initial_seed())  # the GPUs had no state yet, only the program's seed
        np.random.set_state(self.numpy)
        random.setstate(self.python)


@dataclass(eq=False)
class _Block:
    """An open block of `isolated`, with the state of the process to restore after it."""

    values: list[tuple[_Part, Any]] = field(default_factory=lambda: _values(of_thread=False))
    threads: int = field(default_factory=torch.get_num_threads)
    generators: _Generators = field(default_factory=_Generators.read)

    def restore(self) -> None:
        _write(self.values)
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        self.generators.write()


# One lock, because blocks of several threads may overlap, and all change the same list.
_LOCK = Lock()
_OPEN: list[_Block] = []
"""The open blocks of all threads, in the order in which they began."""


@contextmanager
def isolated(threads: int | None = None) -> Iterator[None]:
    """Give the `with` block the state of a new process, and restore the state before it, also after an error.

    The block flushes denormal numbers, as all runs do, and keeps the random generators as they are until it seeds them.
    If blocks of several threads overlap, the last one to end restores the state before the first one.

    Args:
        threads: torch's number of threads in the block; None for the present one.
    """
    with _LOCK:
        block = _Block()
        _OPEN.append(block)
    own, device = _values(of_thread=True), torch.get_default_device()
    try:
        with ExitStack() as stack:
            # Left because autograd cannot use tensors that are created in inference mode.
            stack.enter_context(torch.inference_mode(False))
            if device.type != "cpu":
                stack.enter_context(torch.device("cpu"))
            _write([(part, part.new) for part in _PARTS])
            if threads is not None:
                torch.set_num_threads(threads)
            yield
    finally:
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
        _write(own)
        with _LOCK:
            place = _OPEN.index(block)
            if block is _OPEN[-1]:
                block.restore()
            else:
                later = _OPEN[place + 1]
                later.values, later.threads, later.generators = block.values, block.threads, block.generators
            del _OPEN[place]


def seed_generators(seed: int) -> None:
    """Seed every random generator of the process: torch's on the CPU and the GPUs, numpy's and Python's."""
    torch.manual_seed(seed)
    # Reduced because numpy takes 32 bits.
    np.random.seed(seed % 2**32)
    random.seed(seed)
