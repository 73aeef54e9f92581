"""Reports, made from the database and the papers alone: reading results needs no plugin."""

from orthobench.report.export import paper_table
from orthobench.report.html import write_study
from orthobench.report.scope import Scope
from orthobench.report.write import FORMATS, ReportFormat, write_report

__all__ = ["FORMATS", "ReportFormat", "Scope", "paper_table", "write_report", "write_study"]
