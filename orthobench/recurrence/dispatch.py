"""Which back end serves a call.

`auto` takes the fastest that supports the case: in float32 on CUDA the Triton kernels, on the CPU the C kernels, and
the hand-written loop in PyTorch for what these do not serve or without a compiler; `reference` for everything else.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import cpu, native, portable, reference
from orthobench.recurrence.activations import Activation

AUTO = "auto"
BACKENDS = ("reference", "portable", "cpu", "cuda")

_logger = logging.getLogger("orthobench.recurrence")
_current: ContextVar[str | None] = ContextVar("recurrence_backend", default=None)
_default = AUTO
_used: set[str] = set()
_said: set[str] = set()


def set_backend(name: str) -> None:
    """Set the back end of every call outside `use_backend`: one of BACKENDS, or "auto"."""
    global _default
    _default = _checked(name)


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Set the back end of the calls inside the block."""
    token = _current.set(_checked(name))
    try:
        yield
    finally:
        _current.reset(token)


def last_used() -> set[str]:
    """Names of the back ends that served calls since `forget_used`: what to store with a run."""
    return set(_used)


def forget_used() -> None:
    _used.clear()


def chosen(op: str, x: Tensor, weight: Tensor, activation: Activation | None = None, backend: str | None = None) -> str:
    """Name of the back end that will serve this call, one of BACKENDS.

    Raises:
        ValueError: the one asked for cannot; the message says why.
    """
    name = _checked(backend or _current.get() or _default)
    if name != AUTO:
        if reason := _unsupported(name, op, x, weight, activation):
            raise ValueError(f"{op}: back end {name} cannot serve this: {reason}")
        return name
    if x.device.type not in ("cpu", "cuda") or x.dtype is not torch.float32:
        return "reference"
    if x.is_cuda:
        return _first_of(("cuda", "portable"), op, x, weight, activation)
    if reason := native.missing():
        _say_once(
            logging.WARNING,
            f"{reason}; the recurrences run in PyTorch instead, up to several times slower (back end portable)",
        )
        return "portable"
    return _first_of(("cpu", "portable"), op, x, weight, activation)


def call(
    op: str,
    backend: str | None,
    last: bool,
    x: Tensor,
    weight: Tensor,
    *arguments: Any,
    activation: Activation | None = None,
) -> Any:
    """Run `op`, a function of the back ends' modules; with `last` keep the last step of each result only."""
    name = chosen(op, x, weight, activation, backend)
    _used.add(name)
    function = getattr(_module(name), op)
    if last and name == "cpu":
        return function(x, weight, *arguments, last=True)
    result = function(x, weight, *arguments)
    if not last:
        return result
    return tuple(states[-1] for states in result) if isinstance(result, tuple) else result[-1]


def _checked(name: str) -> str:
    if name not in (AUTO, *BACKENDS):
        raise ValueError(f"unknown recurrence back end {name!r}: one of {', '.join((AUTO, *BACKENDS))}")
    return name


def _first_of(names: tuple[str, ...], op: str, x: Tensor, weight: Tensor, activation: Activation | None) -> str:
    for name in names:
        reason = _unsupported(name, op, x, weight, activation)
        if reason is None:
            return name
        _say_once(logging.INFO, f"{op}: not on back end {name}: {reason}")
    return "reference"


def _unsupported(name: str, op: str, x: Tensor, weight: Tensor, activation: Activation | None) -> str | None:
    if name == "reference":
        return None
    try:
        module = _module(name)
    except ImportError as error:
        return f"it cannot be imported ({error})"
    reason: str | None = module.unsupported(op, x, weight, activation)
    return reason


def _module(name: str) -> ModuleType:
    built_in = {"reference": reference, "portable": portable, "cpu": cpu}
    # Triton is not everywhere, and takes seconds to import.
    return built_in.get(name) or importlib.import_module(f"orthobench.recurrence.{name}")


def _say_once(level: int, message: str) -> None:
    if message not in _said:
        _said.add(message)
        _logger.log(level, "%s", message)
