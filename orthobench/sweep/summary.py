"""What a sweep found: one row a variant, over its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orthobench.statistics import Summary, summarize
from orthobench.store import Run, Status


@dataclass(frozen=True)
class VariantSummary:
    """The runs of one variant: final and best test metric over seeds, and how many seeds diverged."""

    runs: list[Run]
    final: Summary | None
    best: Summary | None
    diverged: int
    seconds_per_epoch: Summary | None

    @property
    def run(self) -> Run:
        """Any of the runs, for what they share."""
        return self.runs[0]


def summarize_runs(runs: Sequence[Run]) -> list[VariantSummary]:
    """Group runs by variant, in the order of their first runs; only ended runs count towards the numbers."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.variant, []).append(run)
    return [_summary(group) for group in groups.values()]


def _summary(runs: list[Run]) -> VariantSummary:
    finished = [run for run in runs if run.status == Status.FINISHED]
    return VariantSummary(
        runs,
        summarize([run.final_value for run in finished if run.final_value is not None]),
        summarize([run.best_value for run in finished if run.best_value is not None]),
        sum(run.status == Status.DIVERGED for run in runs),
        summarize([seconds for run in runs if (seconds := run.seconds_per_epoch) is not None]),
    )
