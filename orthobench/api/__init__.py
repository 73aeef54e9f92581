"""The Python API. The command line uses it as well; `orthobench` exports its names on first use.

    import orthobench as ob

    run = ob.run("adding", "scornn", preset="quick")
    results = ob.open_results()

The API prints nothing, except that inside IPython it shows the progress of training; pass a `Display` for another one,
or for none. Errors that the user can fix are `OrthobenchError`.
The module of a name is imported on first use, because training needs torch while results and reports do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orthobench.api.citing import cite
    from orthobench.api.diagnosis import doctor
    from orthobench.api.gate import check
    from orthobench.api.papers import SmallResult, StudyResult, reproduce, reproduce_file, reproduce_small, study
    from orthobench.api.reports import compare, report
    from orthobench.api.results import Results, open_results, repair
    from orthobench.api.runs import run
    from orthobench.api.site import publish, serve
    from orthobench.api.sweeps import sweep, sweep_file, tune
    from orthobench.api.trained import evaluate, export, load_model
    from orthobench.errors import OrthobenchError, RunLockedError, StorageError, UsageError
    from orthobench.execution.display import Display, JobsDisplay
    from orthobench.execution.session import SweepResult
    from orthobench.gate.check import CheckResult
    from orthobench.options import RunOptions, SweepOptions
    from orthobench.planning.search import TuningResult
    from orthobench.process import Stopped
    from orthobench.training.events import EventSink

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

NAMES = {
    "api.citing": ("cite",),
    "api.diagnosis": ("doctor",),
    "api.gate": ("check",),
    "api.papers": ("SmallResult", "StudyResult", "reproduce", "reproduce_file", "reproduce_small", "study"),
    "api.reports": ("compare", "report"),
    "api.results": ("Results", "open_results", "repair"),
    "api.runs": ("run",),
    "api.sweeps": ("sweep", "sweep_file", "tune"),
    "api.site": ("publish", "serve"),
    "api.trained": ("evaluate", "export", "load_model"),
    "errors": ("OrthobenchError", "RunLockedError", "StorageError", "UsageError"),
    "execution.display": ("Display", "JobsDisplay"),
    "gate.check": ("CheckResult",),
    "options": ("RunOptions", "SweepOptions"),
    "execution.session": ("SweepResult",),
    "process": ("Stopped",),
    "planning.search": ("TuningResult",),
    "training.events": ("EventSink",),
}
"""The names of the API, by the module that defines them."""

if not TYPE_CHECKING:  # a type checker reports names that do not exist

    def __getattr__(name: str) -> Any:
        for module, names in NAMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"orthobench.{module}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
