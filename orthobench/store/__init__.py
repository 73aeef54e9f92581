"""The database of runs: SQLAlchemy tables, opened, upgraded and queried here."""

from orthobench.store.open import open_store
from orthobench.store.store import MetricRow, Store, TraceRow
from orthobench.store.tables import Environment, Metric, Run, Status, Trace

__all__ = ["Environment", "Metric", "MetricRow", "Run", "Status", "Store", "Trace", "TraceRow", "open_store"]
