"""The back ends' names: the user's choice, and the record of those that served."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch

AUTO = "auto"
REFERENCE = "reference"
BACKENDS = (REFERENCE, "cpu", "cuda")

_current: ContextVar[str | None] = ContextVar("recurrence_backend", default=None)
_default = AUTO


class SelfTest(Protocol):
    """The verdict on the kernels of one form: why they failed their self-test, or None."""

    @property
    def reason(self) -> str | None: ...

    def machine(self) -> dict[str, Any]:
        """Return the facts that the verdict holds for, as JSON values."""


class _Record(threading.local):
    """The record of this thread's calls."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.self_tests: dict[str, SelfTest] = {}


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


def in_torch() -> bool:
    """Return whether operations of torch serve alone: the user chose so, or a program is exported."""
    return torch.compiler.is_exporting() or chosen() == REFERENCE


def last_used() -> set[str]:
    """Return the names of the back ends that served this thread's calls since `forget_used`, for a run's record."""
    return set(_record.used)


def record(name: str) -> None:
    """Record the name of a back end that served a call, for `last_used`."""
    _record.used.add(name)


def last_self_tests() -> dict[str, Any] | None:
    """Return the machine and the self-tests that calls relied on since `forget_used`, as JSON values, or None.

    A test is "passed" or the reason of its failure. The record is the same for all runs that rely on the same tests,
    since runs of one environment share it.
    """
    tests = _record.self_tests
    if not tests:
        return None
    machine = next(iter(tests.values())).machine()
    return {**machine, "tests": {form: test.reason or "passed" for form, test in sorted(tests.items())}}


def record_self_test(form: str, verdict: SelfTest) -> None:
    """Record a verdict that a call relied on, for `last_self_tests`."""
    _record.self_tests[form] = verdict


def forget_used() -> None:
    """Empty the records of `last_used` and `last_self_tests`."""
    _record.used.clear()
    _record.self_tests.clear()


def _checked(name: str) -> str:
    if name not in (AUTO, *BACKENDS):
        raise ValueError(f"unknown recurrence back end {name!r}: one of {', '.join((AUTO, *BACKENDS))}")
    return name
