"""Reports, which need only the database and the papers: reading results requires no plugin."""

from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_study
from orthobench.reporting.tables.paper_tables import paper_table
from orthobench.reporting.write import write_report

__all__ = ["Scope", "paper_table", "write_report", "write_study"]
