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
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch


class _Part(NamedTuple):
    """A part of the state.

    Attributes:
        name: what tests call it.
        read: returns its value, or raises RuntimeError where torch cannot tell.
        new: its value in a new process, with which runs train.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    new: Any


def _of(owner: str, name: str, read: Callable[..., Any], write: Callable[..., object], new: Any) -> _Part:
    return _Part(f"{name} on {owner}", partial(read, owner), partial(write, owner), new)


def _attribute(owner: Any, name: str, new: Any) -> _Part:
    return _Part(f"{owner.__name__}.{name}", partial(getattr, owner, name), partial(setattr, owner, name), new)


def _precision(backend: str, operation: str, new: str) -> _Part:
    """Return the precision of products of float32 numbers; the parts of a back end follow its "all" until they differ.

    torch 2.8 and earlier have only `float32_matmul_precision` and `allow_tf32`.
    """
    read, write = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
    return _Part(
        f"precision of {operation} on {backend}",
        partial(read, backend, operation),
        partial(write, backend, operation),
        new,
    )


def _attention(kernel: str) -> _Part:
    read, write = (getattr(torch.backends.cuda, name) for name in (f"{kernel}_sdp_enabled", f"enable_{kernel}_sdp"))
    return _Part(f"{kernel} kernel of attention", read, write, new=True)


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


_PARTS = (
    _Part("default type", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    _Part("gradients", torch.is_grad_enabled, torch.set_grad_enabled, True),
    *(
        part
        for device, kind in (("cpu", torch.bfloat16), ("cuda", torch.float16))
        for part in (
            _of(device, "autocast", torch.is_autocast_enabled, torch.set_autocast_enabled, False),
            _of(device, "type of autocast", torch.get_autocast_dtype, torch.set_autocast_dtype, kind),
        )
    ),
    _Part("cache of autocast", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, True),
    _Part("depth of autocast", _autocast_depth, _set_autocast_depth, 0),
    _Part("flushed denormals", _flushes_denormals, torch.set_flush_denormal, True),
    _Part(
        "anomaly detection",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.autograd.set_detect_anomaly(*value),
        (False, True),
    ),
    _Part(
        "deterministic algorithms",
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        (False, False),
    ),
    _Part(
        "float32_matmul_precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"
    ),
    _attribute(torch.backends.cudnn, "allow_tf32", True),
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
    _attribute(torch.backends.cudnn, "benchmark", False),
    _attribute(torch.backends.cudnn, "deterministic", False),
    _attribute(torch.backends.cudnn, "enabled", True),
    _attribute(torch.backends.mkldnn, "enabled", True),
    *(_attention(kernel) for kernel in ("flash", "mem_efficient", "math", "cudnn")),
    _Part(
        "errors of numpy",
        np.geterr,
        lambda value: np.seterr(**value),
        {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
    ),
)
"""The parts in the order in which they are written: a precision for all comes before those of its operations."""


def _write(values: list[tuple[_Part, Any]]) -> None:
    """Give the parts these values."""
    for part, value in values:
        with contextlib.suppress(RuntimeError):
            if part.read() == value:
                continue
        part.write(value)


@contextmanager
def _same_generators() -> Iterator[None]:
    """Give the random generators their states of the beginning back at the end of the block."""
    state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()
    # Only if CUDA is in use, because the question would open a context on the GPU.
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        seed = torch.initial_seed()
        torch.set_rng_state(state)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        elif seed != torch.initial_seed() or torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(torch.initial_seed())  # the GPUs had no state yet, only the program's seed
        np.random.set_state(numpy_state)
        random.setstate(python_state)


@contextmanager
def isolated(threads: int | None = None) -> Iterator[None]:
    """Give the `with` block the state of a new process, and restore the state before it, also after an error.

    The block flushes denormal numbers, as all runs do, and keeps the random generators as they are until it seeds them.
    The state belongs to the process, as torch's generator does, so two threads cannot have a block at the same time.

    Args:
        threads: torch's number of threads in the block; None for the present one.
    """
    before: list[tuple[_Part, Any]] = []
    for part in _PARTS:
        with contextlib.suppress(RuntimeError):  # an old and a new function have both set the precision
            before.append((part, part.read()))
    count, device = torch.get_num_threads(), torch.get_default_device()
    try:
        with ExitStack() as stack:
            stack.enter_context(_same_generators())
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
        _write(before)
        if torch.get_num_threads() != count:
            torch.set_num_threads(count)


def seed_generators(seed: int) -> None:
    """Seed every random generator of the process: torch's on the CPU and the GPUs, numpy's and Python's."""
    torch.manual_seed(seed)
    # Reduced because numpy takes 32 bits.
    np.random.seed(seed % 2**32)
    random.seed(seed)
