"""The database of runs and benchmarks.

Names are imported on first use, so that a module that needs no tables does not load SQLAlchemy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orthobench.store.open import open_store as open_store
    from orthobench.store.result import MetricRow as MetricRow
    from orthobench.store.result import MetricValue as MetricValue
    from orthobench.store.result import Status as Status
    from orthobench.store.result import Trace as Trace
    from orthobench.store.result import TraceRow as TraceRow
    from orthobench.store.result import WeightsRow as WeightsRow
    from orthobench.store.store import Store as Store
    from orthobench.store.tables import Benchmark as Benchmark
    from orthobench.store.tables import Environment as Environment
    from orthobench.store.tables import Run as Run
    from orthobench.store.tables import Segment as Segment
    from orthobench.store.tables import Tag as Tag
    from orthobench.store.tables import Weights as Weights

NAMES = {
    "open": ("open_store",),
    "result": ("MetricRow", "MetricValue", "Status", "Trace", "TraceRow", "WeightsRow"),
    "store": ("Store",),
    "tables": ("Benchmark", "Environment", "Run", "Segment", "Tag", "Weights"),
}
"""The names by the module that defines them."""

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports names that do not exist

    def __getattr__(name: str) -> Any:
        for module, names in NAMES.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
