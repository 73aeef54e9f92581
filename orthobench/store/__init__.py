"""The database of runs and benchmarks: SQLAlchemy tables, opened, upgraded and queried here."""

from orthobench.store.open import open_store
from orthobench.store.store import MetricRow, Store, TraceRow
from orthobench.store.tables import Benchmark, Environment, Metric, Run, Status, Tag, Trace

__all__ = [
    "Benchmark",
    "Environment",
    "Metric",
    "MetricRow",
    "Run",
    "Status",
    "Store",
    "Tag",
    "Trace",
    "TraceRow",
    "open_store",
]
