"""The Python API. The command line uses it as well; `orthobench` exports its names on first use.

    import orthobench as ob

    run = ob.run("adding", "scornn", preset="quick")
    results = ob.open_results()

The API prints nothing, except that inside IPython it shows the progress of training; pass a `Display` for another one,
or for none. Errors that the user can fix are `OrthobenchError`.
The module of a name is imported on first use, because training needs torch while results and reports do not. So are
the modules themselves, as in `api.stored.list_runs`, whose other functions are for the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orthobench.version import __version__ as __version__

if TYPE_CHECKING:
    from orthobench.analysis.compare import Contrast as Contrast
    from orthobench.analysis.compare import Differences as Differences
    from orthobench.analysis.compare_databases import DatabaseComparison as DatabaseComparison
    from orthobench.analysis.compare_databases import Lone as Lone
    from orthobench.analysis.statistics import Median as Median
    from orthobench.api import benchmarks as benchmarks
    from orthobench.api import commands as commands
    from orthobench.api import data_sets as data_sets
    from orthobench.api import databases as databases
    from orthobench.api import descriptions as descriptions
    from orthobench.api import files as files
    from orthobench.api import names as names
    from orthobench.api import papers as papers
    from orthobench.api import placement as placement
    from orthobench.api import runs as runs
    from orthobench.api import sharing as sharing
    from orthobench.api import stored as stored
    from orthobench.api import sweeps as sweeps
    from orthobench.api.citing import cite as cite
    from orthobench.api.comparisons import compare as compare
    from orthobench.api.comparisons import compare_databases as compare_databases
    from orthobench.api.diagnosis import doctor as doctor
    from orthobench.api.papers import SmallResult as SmallResult
    from orthobench.api.papers import StudyResult as StudyResult
    from orthobench.api.papers import reproduce as reproduce
    from orthobench.api.papers import reproduce_file as reproduce_file
    from orthobench.api.papers import reproduce_small as reproduce_small
    from orthobench.api.papers import study as study
    from orthobench.api.placement import Placement as Placement
    from orthobench.api.placement import place as place
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
    from orthobench.gate.check import check as check
    from orthobench.gate.verdict import Finding as Finding
    from orthobench.options.run_options import RunOptions as RunOptions
    from orthobench.options.run_options import SweepOptions as SweepOptions
    from orthobench.planning.estimate import Estimate as Estimate
    from orthobench.planning.match import MatchedSize as MatchedSize
    from orthobench.planning.search import Trial as Trial
    from orthobench.planning.search import Tuning as Tuning
    from orthobench.planning.search import TuningResult as TuningResult
    from orthobench.planning.sweep_plan import SweepPlan as SweepPlan
    from orthobench.planning.sweep_plan import Totals as Totals
    from orthobench.session.session import SweepResult as SweepResult
    from orthobench.session.tuned_session import TunedColumn as TunedColumn
    from orthobench.session.tuned_session import TunedModel as TunedModel
    from orthobench.store.tables import Run as Run
    from orthobench.system.location import Location as Location
    from orthobench.system.signals import Stopped as Stopped
    from orthobench.training.events import EventSink as EventSink

NAMES = {
    "api.citing": ("cite",),
    "api.comparisons": ("compare", "compare_databases"),
    "api.diagnosis": ("doctor",),
    "api.papers": ("SmallResult", "StudyResult", "reproduce", "reproduce_file", "reproduce_small", "study"),
    "api.reports": ("report",),
    "api.results": ("Results", "open_results", "repair"),
    "api.runs": ("run",),
    "api.placement": ("Placement", "place"),
    "api.sweeps": ("sweep", "sweep_file", "tune"),
    "api.sharing": ("merge", "publish_runs", "verify"),
    "api.site": ("publish", "serve"),
    "api.trained": ("evaluate", "export", "load_model"),
    "api.tuned_comparison": ("compare_tuned",),
    "arrays.in_memory": ("Data",),
    "errors": ("OrthobenchError", "RunLockedError", "StorageError", "UsageError"),
    "display.display": ("Display", "JobsDisplay"),
    "gate.check": ("CheckResult", "check"),
    "options.run_options": ("RunOptions", "SweepOptions"),
    "session.session": ("SweepResult",),
    "session.tuned_session": ("TunedColumn",),
    "system.location": ("Location",),
    "system.signals": ("Stopped",),
    "planning.search": ("TuningResult",),
    "training.events": ("EventSink",),
}
"""The names of the API, by the module that defines them. The other types above are for annotations alone."""
MODULES = (
    "benchmarks",
    "commands",
    "data_sets",
    "databases",
    "descriptions",
    "files",
    "names",
    "papers",
    "placement",
    "sharing",
    "stored",
    "sweeps",
)
"""The modules with functions that only the command line calls."""

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports names that do not exist
    __all__ = sorted(name for names in NAMES.values() for name in names)

    def __getattr__(name: str) -> Any:
        if name in MODULES:
            return import_module(f"{__name__}.{name}")
        for module, names in NAMES.items():
            if name in names:
                # Kept, because Python asks this function only for names that the module lacks.
                value = globals()[name] = getattr(import_module(f"orthobench.{module}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
