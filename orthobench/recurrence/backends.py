"""The back end that computes, chosen by the program, and the record of what was used."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch

AUTO = "auto"
REFERENCE = "reference"
BACKENDS = (REFERENCE, "cpu", "cuda")

# Two places, because a context variable that `set_backend` sets would hold in its own thread alone.
_current: ContextVar[str | None] = ContextVar("recurrence_backend", default=None)
_default = AUTO


# Of each thread, because a program may train two runs at once, and each records its own back ends.
class _ThreadRecord(threading.local):
    """The record of this thread's calls."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.self_tests: dict[str, str] = {}
        self.machine: Mapping[str, Any] = {}


_record = _ThreadRecord()


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
    # The device is named first, because torch raises an error for the autocast of "meta".
    is_on = kind != "meta" and torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if is_on else nullcontext()


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
    return {**_record.machine, "tests": dict(sorted(tests.items()))} if tests else None


def record_self_test(operation: str, verdict: str, machine: Mapping[str, Any]) -> None:
    """Record a verdict on which a call relied, and the facts for which it is valid, for `last_self_tests`."""
    _record.self_tests[operation], _record.machine = verdict, machine


def forget_used() -> None:
    """Empty the records of `last_used` and `last_self_tests`."""
    _record.used.clear()
    _record.self_tests.clear()


def _checked(name: str) -> str:
    if name not in (AUTO, *BACKENDS):
        raise ValueError(f"unknown recurrence back end {name!r}: one of {', '.join((AUTO, *BACKENDS))}")
    return name
