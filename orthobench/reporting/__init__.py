"""Reports, which need only the database and the papers: reading results requires no plugin."""

from orthobench.reporting.export import paper_table
from orthobench.reporting.html import write_study
from orthobench.reporting.scope import Scope
from orthobench.reporting.write import write_report

__all__ = ["Scope", "paper_table", "write_report", "write_study"]
