"""The back ends' names: the user's choice, and the record of those that served."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

AUTO = "auto"
BACKENDS = ("reference", "cpu", "cuda")

_current: ContextVar[str | None] = ContextVar("recurrence_backend", default=None)
_default = AUTO


class _Record(threading.local):
    """The record of this thread's calls."""

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


def in_torch() -> bool:
    """Return whether operations of torch serve alone: the user chose so, or a program is exported."""
    return torch.compiler.is_exporting() or chosen() == "reference"


def last_used() -> set[str]:
    """Return the names of the back ends that served this thread's calls since `forget_used`, for a run's record."""
    return set(_record.used)


def record(name: str) -> None:
    """Record the name of a back end that served a call, for `last_used`."""
    _record.used.add(name)


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


def _checked(name: str) -> str:
    if name not in (AUTO, *BACKENDS):
        raise ValueError(f"unknown recurrence back end {name!r}: one of {', '.join((AUTO, *BACKENDS))}")
    return name
