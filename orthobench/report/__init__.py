"""Reports, made from the database and the papers alone: reading results needs no plugin."""

from orthobench.report.export import paper_table
from orthobench.report.html import load_views, write_html, write_study, write_whole
from orthobench.report.scope import Scope
from orthobench.report.write import FORMATS, ReportFormat, write_report

__all__ = [
    "FORMATS",
    "ReportFormat",
    "Scope",
    "load_views",
    "paper_table",
    "write_html",
    "write_report",
    "write_study",
    "write_whole",
]
