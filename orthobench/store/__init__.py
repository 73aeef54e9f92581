"""The database of runs and benchmarks.

Names are imported on first use, so that a module that needs no tables does not load SQLAlchemy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orthobench.store.open import open_store
    from orthobench.store.result import MetricRow, MetricValue, Status, Trace, TraceRow, WeightsRow
    from orthobench.store.store import Store
    from orthobench.store.tables import Benchmark, Environment, Run, Segment, Tag, Weights

__all__ = [
    "Benchmark",
    "Environment",
    "MetricRow",
    "MetricValue",
    "Run",
    "Segment",
    "Status",
    "Store",
    "Tag",
    "Trace",
    "TraceRow",
    "Weights",
    "WeightsRow",
    "open_store",
]
_MODULES = {
    "open_store": "open",
    "MetricRow": "result",
    "MetricValue": "result",
    "Store": "store",
    "Status": "result",
    "Trace": "result",
    "TraceRow": "result",
    "WeightsRow": "result",
}

if not TYPE_CHECKING:  # a type checker reports names that do not exist

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'tables')}"), name)
