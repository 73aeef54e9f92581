"""Report stored results and compare them; neither needs torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

from orthobench.analysis.compare import Contrast, contrasts
from orthobench.api.results import Results
from orthobench.options.arguments import ComparedValue, ReportFormat, is_image, location
from orthobench.options.checked import checked
from orthobench.reporting import Scope, write_report
from orthobench.reporting.page.names import NO_LABELS
from orthobench.settings.assignments import read_conditions
from orthobench.spec.index import index
from orthobench.system.location import Place
from orthobench.training.settled import status_in


def _results(value: Any) -> Results | Place:
    return value if isinstance(value, Results) else location(value)


SOME_RESULTS = (_results, "open results, or a database")


@overload
def report(
    results: Results | Place,
    out: str | Path | None = None,
    *,
    form: Literal["html"] = "html",
    paper: str | None = None,
    table: str | None = None,
    figure: str | None = None,
    commentary: str | Path | None = None,
    columns: Sequence[str] = (),
    bold_best: bool = False,
    labels: Mapping[str, str] = NO_LABELS,
    all_versions: bool = False,
    where: Sequence[str] = (),
    **conditions: Any,
) -> Path: ...


@overload
def report(
    results: Results | Place,
    out: str | Path | None = None,
    *,
    form: ReportFormat,
    paper: str | None = None,
    table: str | None = None,
    figure: str | None = None,
    commentary: str | Path | None = None,
    columns: Sequence[str] = (),
    bold_best: bool = False,
    labels: Mapping[str, str] = NO_LABELS,
    all_versions: bool = False,
    where: Sequence[str] = (),
    **conditions: Any,
) -> Path | list[Path] | str: ...


@checked(results=SOME_RESULTS)
def report(
    results: Results | Place,
    out: str | Path | None = None,
    *,
    form: ReportFormat = "html",
    paper: str | None = None,
    table: str | None = None,
    figure: str | None = None,
    commentary: str | Path | None = None,
    columns: Sequence[str] = (),
    bold_best: bool = False,
    labels: Mapping[str, str] = NO_LABELS,
    all_versions: bool = False,
    where: Sequence[str] = (),
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
        commentary: a Markdown file in which you tell what was reproduced, with placeholders for what was measured;
            the page and the reproduction show it.
        columns: the columns of the tables of tasks: "model", "parameters", "seeds", "diverged", "solved", "median",
            "end", "final", "best", "seconds_per_epoch", "backends", "tags", a metric, or a setting.
        bold_best: print the best value of each metric in bold, in "latex" and "markdown".
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
    with _opened(results) as opened:
        scope = replace(scope, status_of=status_in(opened.store, opened.db))
        written = write_report(
            opened.store,
            form,
            scope,
            index()["variants"],
            None if out is None else Path(out),
            None if commentary is None else Path(commentary),
            columns,
            bold_best,
        )
    return written[0] if isinstance(written, list) and not is_image(form) else written


@checked(results=SOME_RESULTS)
def compare(
    results: Results | Place,
    *selections: str,
    value: ComparedValue = "end",
    paired: bool | None = None,
    where: Sequence[str] = (),
    **conditions: Any,
) -> list[Contrast]:
    """Compare a selection of runs with others: their settings, environments, and the metric by a test over seeds.

    Args:
        results: open results, or a database.
        selections: the key of a run, or conditions such as "model=scornn,hidden_size=170", for each selection. The
            first one is the reference.
        value: the test value that represents a run: "end" is the median of the last tenth of its test values, "final"
            the last one, "best" the best one.
        paired: whether to pair the runs by seed. By default they are paired if they have enough seeds in common for
            a test: six, or more for several selections.
        where: conditions that restrict all selections.
        conditions: further conditions by name, such as `task="adding"`.

    Returns:
        The contrast between the first selection and each other one.

    Raises:
        UsageError: a selection is empty, the selections have different metrics, a finished run has no number, or the
            runs cannot be paired.
    """
    with _opened(results) as opened:
        shared = read_conditions(where, **conditions)
        return contrasts(opened.store, selections, shared, status_in(opened.store, opened.db), value, paired)


@contextmanager
def _opened(results: Results | Place) -> Iterator[Results]:
    """Open a database if only its name is given."""
    if isinstance(results, Results):
        yield results
    else:
        with Results(results) as opened:
            yield opened
