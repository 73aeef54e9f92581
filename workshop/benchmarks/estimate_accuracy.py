"""How far the estimates of a sweep's plan are off, by the runs of a database: each one against the others.

    python workshop/benchmarks/estimate_accuracy.py results.db

A run's seconds are estimated from the other runs of its task and model, as `--dry-run --no-profile` does: once from
those that had ended before it, once from all others. Pairs of runs that differ in the seed alone show what no estimate
can avoid: the load of the machine, and kernels that became faster. The database is only read.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations

from orthobench.analysis.experience import Experience, experiences, nearest
from orthobench.store import Run, Status
from orthobench.store.merge import opened_unchanged


@dataclass(frozen=True)
class Accuracy:
    """The ratios of measured to estimated seconds, and counts of runs.

    Attributes:
        unknown: runs without an estimate.
    """

    ratios: list[float]
    unknown: int

    def within(self, factor: float) -> float:
        """Return the share of the estimates that are off by at most this factor."""
        limit = math.log(factor)
        return sum(abs(math.log(ratio)) <= limit for ratio in self.ratios) / max(1, len(self.ratios))

    def __str__(self) -> str:
        within = ", ".join(f"{self.within(factor):.0%} within a factor of {factor}" for factor in (1.5, 2, 3))
        return f"{len(self.ratios)} estimates: {within}; {self.unknown} runs without an estimate"


def accuracy(runs: Sequence[Run], earlier_only: bool, at_least: float = 0.0) -> Accuracy:
    """Estimate each run from the others of its task and model.

    Args:
        earlier_only: restrict the others to those that had ended when the run started.
        at_least: restrict to runs of this number of seconds or more.
    """
    groups: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if Status(run.status).is_final and run.iterations and run.own_seconds > 0:
            groups[run.task, run.model, run.device].append(run)
    ratios, unknown = [], 0
    for group in groups.values():
        for run in group:
            if run.own_seconds < at_least:
                continue
            others = [
                other
                for other in group
                if other.id != run.id and (not earlier_only or other.updated_at <= run.created_at)
            ]
            near = _nearest(run, others)
            if near is None:
                unknown += 1
                continue
            share = run.iterations / run.total_iterations  # a solved run has ended earlier
            ratios.append(run.own_seconds / (near.seconds(run.spec) * share))
    return Accuracy(ratios, unknown)


def _nearest(run: Run, others: Sequence[Run]) -> Experience | None:
    return nearest(run.spec, experiences(others, run.device, run.environment.machine))


def repeats(runs: Sequence[Run], factor: float = 1.5) -> dict[str, tuple[float, int]]:
    """Return the share of pairs of repeated runs whose iterations take equal times to a factor, and their number.

    The keys are the pairs that start within an hour, and all others. Repeated runs differ in the seed alone.
    """
    groups: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if Status(run.status).is_final and run.iterations and run.own_seconds > 0:
            groups[run.variant, run.device, run.environment.machine].append(run)
    close: dict[str, list[bool]] = {"within an hour": [], "at other times": []}
    for group in groups.values():
        for run, other in combinations(group, 2):
            ratio = run.own_seconds / run.iterations / (other.own_seconds / other.iterations)
            is_near = abs(run.created_at - other.created_at) < timedelta(hours=1)
            close["within an hour" if is_near else "at other times"].append(1 / factor <= ratio <= factor)
    return {name: (sum(each) / max(1, len(each)), len(each)) for name, each in close.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database")
    with opened_unchanged(parser.parse_args().database) as store:
        runs = store.runs()
    for name, at_least in (("all runs", 0.0), ("runs of 3 minutes or more", 180.0)):
        for kind, earlier_only in (("by earlier runs", True), ("by all others", False)):
            print(f"{name}, {kind}: {accuracy(runs, earlier_only, at_least)}")
    for name, (share, count) in repeats(runs).items():
        print(f"repeated runs {name}: {share:.0%} of {count} pairs within a factor of 1.5")


if __name__ == "__main__":
    main()
