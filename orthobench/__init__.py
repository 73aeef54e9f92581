"""orthobench: recurrent networks of the literature on the literature's tasks, one way, into one database.

    import orthobench as ob

    run = ob.run("adding", "scornn", preset="quick", hidden_size=64)

The names of `orthobench.api` are available here. They are imported on first use, so that `import orthobench` is fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from orthobench.version import __version__

if TYPE_CHECKING:
    from orthobench.api import (
        CheckResult,
        Display,
        EventSink,
        ExecutionOptions,
        JobsDisplay,
        OrthobenchError,
        Results,
        RunLockedError,
        SmallResult,
        Stopped,
        StorageError,
        StudyResult,
        SweepResult,
        TuningResult,
        UsageError,
        check,
        compare,
        open_results,
        report,
        reproduce,
        reproduce_small,
        run,
        study,
        sweep,
        sweep_file,
        tune,
    )

__all__ = [
    "CheckResult",
    "Display",
    "EventSink",
    "ExecutionOptions",
    "JobsDisplay",
    "OrthobenchError",
    "Results",
    "RunLockedError",
    "SmallResult",
    "Stopped",
    "StorageError",
    "StudyResult",
    "SweepResult",
    "TuningResult",
    "UsageError",
    "__version__",
    "check",
    "compare",
    "open_results",
    "report",
    "reproduce",
    "reproduce_small",
    "run",
    "study",
    "sweep",
    "sweep_file",
    "tune",
]

ROOMS = frozenset({"check", "report", "sweep"})
"""Names of the API that are packages as well. The package is callable, and calls the API's function."""


class _CallableRoom(ModuleType):
    """A package that calls the API's function of its name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        function = getattr(import_module("orthobench.api"), self.__name__.rpartition(".")[2])
        return function(*arguments, **options)


class _Face(ModuleType):
    """The class of this package: it makes rooms callable when the import system binds them to the package."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ROOMS and isinstance(value, ModuleType):
            value.__class__ = _CallableRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in __all__:
        return getattr(import_module(f"{__name__}.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
