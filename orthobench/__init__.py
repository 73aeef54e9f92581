"""orthobench: recurrent networks of the literature on the literature's tasks, one way, into one database.

    import orthobench as ob

    run = ob.run("adding", "scornn", preset="quick", hidden_size=64)

The names of `orthobench.api` are available here. They are imported on first use, so that `import orthobench` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orthobench.version import __version__

if TYPE_CHECKING:
    from orthobench.api import (
        CheckResult,
        Display,
        EventSink,
        JobsDisplay,
        OrthobenchError,
        Results,
        RunLockedError,
        RunOptions,
        SmallResult,
        Stopped,
        StorageError,
        StudyResult,
        SweepOptions,
        SweepResult,
        TuningResult,
        UsageError,
        check,
        cite,
        compare,
        doctor,
        evaluate,
        export,
        load_model,
        open_results,
        publish,
        repair,
        report,
        reproduce,
        reproduce_file,
        reproduce_small,
        run,
        serve,
        study,
        sweep,
        sweep_file,
        tune,
    )

__all__ = [
    "CheckResult",
    "Display",
    "EventSink",
    "JobsDisplay",
    "OrthobenchError",
    "Results",
    "RunLockedError",
    "RunOptions",
    "SmallResult",
    "Stopped",
    "StorageError",
    "StudyResult",
    "SweepOptions",
    "SweepResult",
    "TuningResult",
    "UsageError",
    "__version__",
    "check",
    "cite",
    "compare",
    "doctor",
    "evaluate",
    "export",
    "load_model",
    "open_results",
    "publish",
    "repair",
    "report",
    "reproduce",
    "reproduce_file",
    "reproduce_small",
    "run",
    "serve",
    "study",
    "sweep",
    "sweep_file",
    "tune",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist

    def __getattr__(name: str) -> Any:
        if name in __all__:
            return getattr(import_module(f"{__name__}.api"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
