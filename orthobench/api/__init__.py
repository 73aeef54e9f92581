"""The Python API. The command line uses it as well; `orthobench` exports its names on first use.

    import orthobench as ob

    run = ob.run("adding", "scornn", preset="quick")
    results = ob.open_results()

Nothing is printed: pass a `Display` to follow the progress. Errors that the user can mend are `OrthobenchError`.
"""

from orthobench.api.analysis import CheckResult, check, compare, report
from orthobench.api.diagnosis import doctor, gpu_report
from orthobench.api.papers import SmallResult, StudyResult, reproduce, reproduce_file, reproduce_small, study
from orthobench.api.results import Results, open_results
from orthobench.api.runs import run, sweep, sweep_file, tune
from orthobench.errors import OrthobenchError, RunLockedError, StorageError, UsageError
from orthobench.execution.display import Display, JobsDisplay
from orthobench.execution.options import ExecutionOptions
from orthobench.execution.session import Stopped, SweepResult
from orthobench.execution.tuner import TuningResult
from orthobench.training.events import EventSink

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
    "check",
    "compare",
    "doctor",
    "gpu_report",
    "open_results",
    "report",
    "reproduce",
    "reproduce_file",
    "reproduce_small",
    "run",
    "study",
    "sweep",
    "sweep_file",
    "tune",
]
