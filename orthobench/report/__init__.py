"""Reports, made of the database and the papers alone: no plugin is needed to read what was measured."""

from orthobench.report.html import load_views, write_html, write_study, write_whole

__all__ = ["load_views", "write_html", "write_study", "write_whole"]
