"""The history of `orthobench check`: each gated number over the checks, and where it got worse."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orthobench.analysis.inference import Verdict, limit
from orthobench.store import Store
from orthobench.store.tables import CHECK, Benchmark


@dataclass(frozen=True)
class CheckedNumber:
    """The verdict of one check on one number; `finding` is a finding of `orthobench check --json`."""

    at: datetime
    commit: str
    finding: dict[str, Any]

    @property
    def verdict(self) -> str:
        return str(self.finding["verdict"])

    @property
    def is_worse(self) -> bool:
        return self.verdict == Verdict.WORSE

    @property
    def now(self) -> float | None:
        """The mean over the seeds; of a speed the median, which decides its verdict."""
        average = statistics.median if self.finding["metric"] == "speed" else statistics.fmean
        return average(self.finding["now"]) if self.finding["now"] else None

    @property
    def baseline(self) -> float | None:
        return statistics.fmean(self.finding["before"]) if self.finding["before"] else None

    @property
    def limit(self) -> float | None:
        """The baseline with the allowed loss: the worst mean that could pass, if all seeds agreed."""
        allowed, direction = self.finding["allowed"], self.finding.get("direction")
        if self.baseline is None or allowed is None or direction is None:
            return None
        return limit(self.finding["before"], direction, allowed)

    @property
    def words(self) -> str:
        value = "no value" if self.now is None else f"{self.now:.4g}"
        reason = f": {self.finding['reason']}" if self.finding["reason"] else ""
        return f"{self.commit}, {self.at:%Y-%m-%d}: {value}, {self.verdict}{reason}"


@dataclass(frozen=True)
class GatedNumber:
    """A metric of a run of the baseline, with all checks, the oldest first."""

    run: str
    metric: str
    checks: list[CheckedNumber]

    @property
    def newest(self) -> CheckedNumber:
        return self.checks[-1]

    @property
    def regressions(self) -> list[CheckedNumber]:
        """The checks at which the number was worse, and had not been so before."""
        before = [None, *self.checks]
        return [
            now for now, then in zip(self.checks, before, strict=False) if now.is_worse and not (then and then.is_worse)
        ]


def gated_numbers(store: Store) -> list[GatedNumber]:
    """Return the gated numbers of the checks in the database, those that are worse now first."""
    checks: dict[tuple[str, str], list[CheckedNumber]] = {}
    for record in store.benchmarks(CHECK):
        commit = _short_commit(record)
        for finding in record.results["findings"]:
            key = finding["run"], finding["metric"]
            checks.setdefault(key, []).append(CheckedNumber(record.created_at, commit, finding))
    numbers = [GatedNumber(run, metric, found) for (run, metric), found in checks.items()]
    return sorted(numbers, key=lambda number: (not number.newest.is_worse, not number.regressions))


def _short_commit(check: Benchmark) -> str:
    """Return the commit of the checked code with a "+" if it had changes; of older records that of orthobench."""
    facts = check.environment.facts
    of_orthobench = f"{facts.get('commit') or ''}{'+changes' if facts.get('dirty') else ''}"
    commit, changed, _ = str(check.results.get("commit", of_orthobench)).partition("+")
    return (commit[:9] or "no commit") + changed


def regressions(numbers: Sequence[GatedNumber]) -> list[tuple[GatedNumber, CheckedNumber]]:
    """Return where the numbers got worse, the newest first."""
    found = [(number, check) for number in numbers for check in number.regressions]
    return sorted(found, key=lambda pair: pair[1].at, reverse=True)
