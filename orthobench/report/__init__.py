"""Reports, made of the database and the papers alone: no plugin is needed to read what was measured."""

from orthobench.report.html import write_html, write_study

__all__ = ["write_html", "write_study"]
