"""Report stored results, which does not need torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orthobench.api.opened import SomeResults, opened
from orthobench.options.arguments import FileName, Label, Name, ReportFormat, Texts, is_image
from orthobench.options.checked import checked
from orthobench.reporting import Scope, write_report
from orthobench.reporting.account.names import NO_LABELS
from orthobench.settings.filters import read_conditions
from orthobench.spec.index import built_in
from orthobench.training.settled import status_in


@checked
def report(
    results: SomeResults,
    out: FileName | None = None,
    *,
    form: ReportFormat = "html",
    paper: Name | None = None,
    table: Label | None = None,
    figure: Label | None = None,
    commentary: FileName | None = None,
    columns: Texts = (),
    bold_best: bool = False,
    unmeasured: bool = False,
    labels: Mapping[str, str] = NO_LABELS,
    all_versions: bool = False,
    where: Texts = (),
    **conditions: Any,
) -> Path | list[Path] | str:
    """Write measured results next to the published ones: as one page with all results, or as tables or figures.

    Args:
        results: open results, or a database.
        out: the file for the page or the tables, or the folder for the figures. By default they are written to
            reports/, and tables are returned as text.
        form: "html" for the page, a format of tables or figures, or "reproduction".
        paper: restrict to this paper.
        table: restrict to this table of the paper.
        figure: restrict to this figure of the paper.
        commentary: a TOML file with your text and your remarks on verdicts, for the page and the reproduction.
        columns: the columns of the tables of tasks, which `orthobench report --help` lists, such as "model" and "end".
        bold_best: print the best value of each metric in bold, in "latex" and "markdown".
        unmeasured: in "latex", also print the numbers of papers that are not measured.
        labels: names of models in place of their titles, such as {"cell.py:MyCell": "Ours"}.
        all_versions: whether to show the runs of earlier versions of your own code, too; by default only the newest
            version of each model counts.
        where: restrict to runs that meet these conditions, such as ["n=170", "tag=none"].
        conditions: further conditions by name, such as `task="adding"`.

    Returns:
        The absolute path of the file, the paths of the figures, or the tables as text.

    Raises:
        UsageError: no run meets the conditions, the database, paper, table, figure or column is unknown, a
            label does not fit, or a file cannot be written.
    """
    scope = Scope(read_conditions(where, **conditions), paper, table, figure, dict(labels), all_versions=all_versions)
    with opened(results) as runs:
        scope = replace(scope, status_of=status_in(runs.store, runs.db))
        written = write_report(
            runs.store,
            form,
            scope,
            built_in()["variants"],
            None if out is None else Path(out),
            None if commentary is None else Path(commentary),
            columns,
            bold_best,
            unmeasured,
        )
    return written[0] if isinstance(written, list) and not is_image(form) else written
