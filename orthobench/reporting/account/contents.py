"""The contents of a page in numbers and names, for its overview and for an index of pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from orthobench.analysis.claims import ClaimCounts, count_claims
from orthobench.analysis.conditions import Condition
from orthobench.reporting.account.paper_views import PaperView, compared, total_verdicts


@dataclass(frozen=True)
class Contents:
    """The contents of a page.

    Attributes:
        runs: the number of runs by status.
        papers: the keys of the papers with measured results.
        measured: the number of the papers' results that are measured.
        results: the number of all results of the papers.
        verdicts: the measured results in each group of verdicts.
        claims: the counts of the papers' claims by their verdicts.
        newest: the time of the last change of any run, in UTC; None without runs.
    """

    runs: Counter[str]
    papers: list[str]
    tasks: list[str]
    models: list[str]
    measured: int
    results: int
    verdicts: Counter[str]
    claims: ClaimCounts
    newest: datetime | None

    @property
    def compared(self) -> int:
        """The number of measured results that are compared with a published number."""
        return compared(self.verdicts)


def contents_of(conditions: Sequence[Condition], papers: Sequence[PaperView]) -> Contents:
    """Return the contents of a page with these conditions and papers."""
    runs = [run for condition in conditions for variant in condition.variants for run in variant.runs]
    measured, results = (sum(view.coverage[part] for view in papers) for part in (0, 1))
    return Contents(
        runs=Counter(str(run.status) for run in runs),
        papers=[view.paper.key for view in papers if view.coverage[0]],
        tasks=sorted({run.task for run in runs}),
        models=sorted({run.model for run in runs}),
        measured=measured,
        results=results,
        verdicts=total_verdicts(papers),
        claims=count_claims([result for view in papers for result in view.claim_results]),
        newest=max((run.updated_at for run in runs), default=None),
    )
