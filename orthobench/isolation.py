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
        read: returns its value, or raises RuntimeError where torch cannot tell.
        new: its value in a new process, with which runs train.
    """

    read: Callable[[], Any]
    write: Callable[[Any], object]
    new: Any


def _attribute(owner: Any, name: str, new: Any) -> _Part:
    return _Part(partial(getattr, owner, name), partial(setattr, owner, name), new)


def _autocast(device: str) -> _Part:
    read, write = torch.is_autocast_enabled, torch.set_autocast_enabled
    return _Part(partial(read, device), partial(write, device), new=False)


def _precision(backend: str, operation: str) -> _Part:
    """Return the precision of float32 from torch 2.9 on; that of an operation follows that of all until they differ."""
    read, write = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
    return _Part(partial(read, backend, operation), partial(write, backend, operation), "none")


_PARTS = (
    _Part(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    _Part(torch.is_grad_enabled, torch.set_grad_enabled, True),
    *map(_autocast, ("cpu", "cuda")),
    # Torch can set whether the processor replaces denormal numbers by 0, but not report it.
    _Part(lambda: sys.float_info.min / 2 == 0, torch.set_flush_denormal, True),
    _Part(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False),
    _Part(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        (False, False),
    ),
    _Part(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
    *(
        _precision(*each)
        for each in (("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("mkldnn", "matmul"))
        if hasattr(torch._C, "_get_fp32_precision_getter")
    ),
    _attribute(torch.backends.cudnn, "allow_tf32", True),
    _attribute(torch.backends.cudnn, "benchmark", False),
    _attribute(torch.backends.cudnn, "deterministic", False),
    _Part(
        np.geterr,
        lambda value: np.seterr(**value),
        dict.fromkeys(("divide", "over", "invalid"), "warn") | {"under": "ignore"},
    ),
)
"""What layers and programs set. Switches of whole libraries, such as cuDNN's, are the user's own choice."""


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
