"""The choice of the back end that serves a call.

`auto` takes the kernels of the call's device, C on the CPU and Triton on CUDA, in float32. `reference` serves all other
calls.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import convolution, reference
from orthobench.recurrence.call import Call, Convolution, Inputs, Projection, Result
from orthobench.recurrence.cpu import backend as cpu
from orthobench.recurrence.projection import project

AUTO = "auto"
BACKENDS = ("reference", "cpu", "cuda")

_logger = logging.getLogger("orthobench.recurrence")
_current: ContextVar[str | None] = ContextVar("recurrence_backend", default=None)
_default = AUTO
_SLOWER = {"cpu": "up to seven times slower", "cuda": "many times slower"}
_logged: set[str] = set()


class _Record(threading.local):
    """The record of this thread's calls: runs that train together have a thread each."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.self_tests: dict[str, Any] = {}


_record = _Record()


class BackendError(ValueError):
    """The chosen back end cannot serve a call; the message has the reason."""


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


def chosen() -> str:
    """Return the name set by `use_backend` or `set_backend`: one of BACKENDS, or "auto"."""
    return _current.get() or _default


def last_used() -> set[str]:
    """Return the names of the back ends that served this thread's calls since `forget_used`, for a run's record."""
    return set(_record.used)


def last_self_tests() -> dict[str, Any] | None:
    """Return the machine and the self-tests that calls relied on since `forget_used`, as JSON values, or None."""
    if not _record.self_tests:
        return None
    described: dict[str, Any] = importlib.import_module("orthobench.recurrence.cuda.verdicts").described(
        _record.self_tests
    )
    return described


def record_self_test(form: str, verdict: Any) -> None:
    """Record a verdict that a call relied on, for `last_self_tests`."""
    _record.self_tests[form] = verdict


def forget_used() -> None:
    """Empty the records of `last_used` and `last_self_tests`."""
    _record.used.clear()
    _record.self_tests.clear()


def run(call: Call) -> Result:
    """Run a call on the chosen back end and record its name.

    Raises:
        BackendError: it cannot serve the call.
    """
    name = choose(call)
    _record.used.add(name)
    call = replace(call, x=_resolved(call, name))
    if call.is_mapped and not (name == "cpu" and cpu.maps(call)):
        assert isinstance(call.x, Tensor)
        assert isinstance(call.weight, Tensor)
        call = replace(call, weight=project(call.x, call.weight))
    result: Result = _module(name).run(call)
    return result


def _resolved(call: Call, name: str) -> Inputs:
    """Return the call's inputs, made as far as the back end's kernel does not make them itself."""
    x, in_c = call.x, name == "cpu"
    if in_c and cpu.projects(call):
        return x
    if isinstance(x, Convolution) and in_c and cpu.convolves(call):
        return replace(x, source=resolved(x.source))
    return resolved(x)


def resolved(x: Inputs) -> Tensor:
    """Return the inputs, made from their projection or convolution."""
    if isinstance(x, Convolution):
        return convolution.short_convolution(resolved(x.source), x.weight, x.before, x.bias)
    return project(x.inputs, x.weight, x.bias) if isinstance(x, Projection) else x


def choose(call: Call) -> str:
    """Return the name of the back end for this call, one of BACKENDS.

    Raises:
        BackendError: the back end set by `use_backend` or `set_backend` cannot serve the call.
    """
    if torch.compiler.is_exporting():  # an exported program has operations of torch alone
        return "reference"
    name = chosen()
    if name != AUTO:
        if reason := _unsupported(name, call) or _module(name).unusable(call):
            raise BackendError(f"{call.operation.name}: back end {name} cannot serve this: {reason}")
        return name
    device = call.x.device.type
    if device not in ("cpu", "cuda") or call.x.dtype != torch.float32:
        return "reference"
    if reason := _unsupported(device, call):
        _log_once(logging.INFO, f"{call.operation.name}: not on back end {device}: {reason}")
    elif reason := _module(device).unusable(call):
        consequence = f"the recurrences run in PyTorch instead, {_SLOWER[device]} (back end reference)"
        _log_once(logging.WARNING, f"{reason}; {consequence}; orthobench doctor shows what to do")
    else:
        return device
    return "reference"


def _checked(name: str) -> str:
    if name not in (AUTO, *BACKENDS):
        raise ValueError(f"unknown recurrence back end {name!r}: one of {', '.join((AUTO, *BACKENDS))}")
    return name


def _unsupported(name: str, call: Call) -> str | None:
    try:
        reason: str | None = _module(name).unsupported(call)
    except ImportError as error:
        return f"it cannot be imported ({error})"
    return reason


def _module(name: str) -> ModuleType:
    # Triton is not on every machine, and takes seconds to import.
    return {"reference": reference, "cpu": cpu}.get(name) or importlib.import_module(
        f"orthobench.recurrence.{name}.backend"
    )


def _log_once(level: int, message: str) -> None:
    if message not in _logged:
        _logged.add(message)
        _logger.log(level, "%s", message)
