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
    from orthobench.api.citing import cite as cite
    from orthobench.api.diagnosis import doctor as doctor
    from orthobench.api.gate import check as check
    from orthobench.api.papers import SmallResult as SmallResult
    from orthobench.api.papers import StudyResult as StudyResult
    from orthobench.api.papers import reproduce as reproduce
    from orthobench.api.papers import reproduce_file as reproduce_file
    from orthobench.api.papers import reproduce_small as reproduce_small
    from orthobench.api.papers import study as study
    from orthobench.api.reports import compare as compare
    from orthobench.api.reports import report as report
    from orthobench.api.results import Results as Results
    from orthobench.api.results import open_results as open_results
    from orthobench.api.results import repair as repair
    from orthobench.api.runs import run as run
    from orthobench.api.sharing import merge as merge
    from orthobench.api.sharing import publish_runs as publish_runs
    from orthobench.api.sharing import verify as verify
    from orthobench.api.site import publish as publish
    from orthobench.api.site import serve as serve
    from orthobench.api.sweeps import sweep as sweep
    from orthobench.api.sweeps import sweep_file as sweep_file
    from orthobench.api.sweeps import tune as tune
    from orthobench.api.trained import evaluate as evaluate
    from orthobench.api.trained import export as export
    from orthobench.api.trained import load_model as load_model
    from orthobench.api.tuned_comparison import compare_tuned as compare_tuned
    from orthobench.arrays.in_memory import Data as Data
    from orthobench.display.display import Display as Display
    from orthobench.display.display import JobsDisplay as JobsDisplay
    from orthobench.errors import OrthobenchError as OrthobenchError
    from orthobench.errors import RunLockedError as RunLockedError
    from orthobench.errors import StorageError as StorageError
    from orthobench.errors import UsageError as UsageError
    from orthobench.gate.check import CheckResult as CheckResult
    from orthobench.options.run_options import RunOptions as RunOptions
    from orthobench.options.run_options import SweepOptions as SweepOptions
    from orthobench.planning.search import TuningResult as TuningResult
    from orthobench.session.session import SweepResult as SweepResult
    from orthobench.session.tuned_session import TunedColumn as TunedColumn
    from orthobench.system.signals import Stopped as Stopped
    from orthobench.training.events import EventSink as EventSink

NAMES = {
    "api.citing": ("cite",),
    "api.diagnosis": ("doctor",),
    "api.gate": ("check",),
    "api.papers": ("SmallResult", "StudyResult", "reproduce", "reproduce_file", "reproduce_small", "study"),
    "api.reports": ("compare", "report"),
    "api.results": ("Results", "open_results", "repair"),
    "api.runs": ("run",),
    "api.sweeps": ("sweep", "sweep_file", "tune"),
    "api.sharing": ("merge", "publish_runs", "verify"),
    "api.site": ("publish", "serve"),
    "api.trained": ("evaluate", "export", "load_model"),
    "api.tuned_comparison": ("compare_tuned",),
    "arrays.in_memory": ("Data",),
    "errors": ("OrthobenchError", "RunLockedError", "StorageError", "UsageError"),
    "display.display": ("Display", "JobsDisplay"),
    "gate.check": ("CheckResult",),
    "options.run_options": ("RunOptions", "SweepOptions"),
    "session.session": ("SweepResult",),
    "session.tuned_session": ("TunedColumn",),
    "system.signals": ("Stopped",),
    "planning.search": ("TuningResult",),
    "training.events": ("EventSink",),
}
"""The names of the API, by the module that defines them."""

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports names that do not exist
    __all__ = sorted(name for names in NAMES.values() for name in names)

    def __getattr__(name: str) -> Any:
        for module, names in NAMES.items():
            if name in names:
                # Kept, because Python asks this function only for names that the module lacks.
                value = globals()[name] = getattr(import_module(f"orthobench.{module}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
