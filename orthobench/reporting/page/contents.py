"""The contents of a page in numbers and names, for an index of pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from orthobench.analysis.conditions import Condition
from orthobench.reporting.page.pages import PaperView, total_verdicts


@dataclass(frozen=True)
class Contents:
    """The contents of a page.

    Attributes:
        runs: the number of runs by status.
        papers: the keys of the papers with measured results.
        verdicts: the measured results in each group of verdicts, as the page's overview counts them.
        newest: the time of the last change of any run, in UTC; None without runs.
    """

    runs: Counter[str]
    papers: list[str]
    tasks: list[str]
    models: list[str]
    verdicts: Counter[str]
    newest: datetime | None


def contents_of(conditions: Sequence[Condition], views: Sequence[PaperView]) -> Contents:
    """Return the contents of a page with these conditions and papers."""
    runs = [run for condition in conditions for variant in condition.variants for run in variant.runs]
    return Contents(
        Counter(str(run.status) for run in runs),
        [view.paper.key for view in views if view.coverage[0]],
        sorted({run.task for run in runs}),
        sorted({run.model for run in runs}),
        total_verdicts(views),
        max((run.updated_at for run in runs), default=None),
    )
