"""Write a report in one of its formats."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from orthobench.errors import UsageError
from orthobench.options.arguments import ReportFormat, TableFormat, is_image
from orthobench.reporting.account.commentary import NONE, read_commentary
from orthobench.reporting.account.load import load_views
from orthobench.reporting.account.own_models import words_of_earlier
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page.html import write_html, write_whole
from orthobench.reporting.tables.condition_tables import condition_tables
from orthobench.reporting.tables.paper_tables import paper_tables
from orthobench.reporting.tables.reproduction import reproduction
from orthobench.reporting.tables.table import write as write_tables
from orthobench.store import Store
from orthobench.system.cycles import without_cycle_search
from orthobench.system.kinds import refuse_other_kinds

_logger = logging.getLogger("orthobench")

KINDS_BY_FORMAT = {
    "html": "HTML",
    "csv": "CSV",
    "json": "JSON",
    "markdown": "Markdown",
    "latex": "LaTeX",
    "reproduction": "Markdown",
}
"""The kind of file for each format that consists of a single file."""


@without_cycle_search()
def write_report(
    store: Store,
    form: ReportFormat,
    scope: Scope,
    variant_keys: Mapping[str, str],
    out: Path | None = None,
    commentary: Path | None = None,
    columns: Sequence[str] = (),
    bold_best: bool = False,
    unmeasured: bool = False,
) -> list[Path] | str:
    """Write a report and return its files, or return tables as text if there is no `out`.

    html is one page; svg, png, pdf and pgf are files in the folder `out`; reproduction is an account of all
    papers. The other formats hold tables and the curves of figures: the paper's if
    the scope names one, else one table per condition.

    Args:
        variant_keys: the variant of each experiment's runs, by the experiment's identity.
        commentary: a TOML file with the author's text and remarks (`Commentary`), for html and reproduction.
        columns: the columns of the conditions' tables; none: all of the format.
        bold_best: print the best value of each metric in bold.
        unmeasured: in latex, also print the numbers of papers that are not measured.

    Raises:
        UsageError: the scope is empty or names no paper, table or figure, or a file cannot be written.
    """
    if (columns or bold_best) and (form not in get_args(TableFormat) or scope.paper):
        raise UsageError(
            "`columns` and `bold_best` are for the tables of tasks in csv, json, markdown or latex: give one of these "
            "forms, and leave `paper` out"
        )
    if bold_best and form in ("csv", "json"):
        raise UsageError("`bold_best` is for markdown and latex, which have bold text: leave it out")
    if out is not None and form in KINDS_BY_FORMAT:
        refuse_other_kinds(out, KINDS_BY_FORMAT[form])  # before reading the database
    own = read_commentary(commentary) if commentary else NONE
    if form == "html":
        return [write_html(store, out or Path("reports/report.html"), scope, variant_keys, own)]
    conditions, views, studies, earlier = load_views(store, scope, variant_keys)
    if earlier:
        _logger.warning(
            "left out: runs of earlier versions, which `all_versions` shows: %s",
            words_of_earlier(earlier, scope.labels),
        )
    if form == "reproduction":
        file = out or Path("reports/REPRODUCTION.md")
        refuse_other_kinds(file, KINDS_BY_FORMAT[form])
        own.check(views)
        text = reproduction(conditions, views, studies, only_papers=scope.paper is not None, commentary=own)
        write_whole(file, text.encode(), KINDS_BY_FORMAT[form])
        return [file.resolve()]
    if not scope.paper:
        views = []
    if is_image(form):
        # Here and below, because matplotlib takes a third of a second to import, and the other forms need none of it.
        from orthobench.reporting.figures.figure_files import write_images

        return write_images(conditions, views, form, out or Path("reports"))
    if scope.figure:
        from orthobench.reporting.tables.curve_tables import figure_tables

        tables = figure_tables(views, Styles(conditions))
    elif scope.paper:
        is_latex = form == "latex"
        tables = [
            table for view in views for table in paper_tables(view, is_latex, unmeasured=unmeasured or not is_latex)
        ]
        if not tables and is_latex:
            raise UsageError(f"no number of {scope.paper} is measured: `unmeasured` prints the published ones alone")
    else:
        tables = condition_tables(conditions, columns, bold_best, for_print=form == "latex")
    text = write_tables(form, tables)
    if out is None:
        return text
    write_whole(out, text.encode(), KINDS_BY_FORMAT[form])
    return [out.resolve()]
