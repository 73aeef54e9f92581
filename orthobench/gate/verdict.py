"""The verdict on each metric: the baseline's values versus the results of new runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from orthobench.analysis import inference
from orthobench.analysis.inference import Verdict
from orthobench.analysis.pairing import changed, single
from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.errors import shell_command
from orthobench.gate.baseline import CheckedRun, MetricBaseline, Update
from orthobench.gate.results import SeedResult, machine_kind
from orthobench.settings import text

SPEED = "speed"
SEEDS_OF_UPDATE = 20
"""The seeds with which docs/check.md measures a baseline, because the deviation of a few may be small by chance."""


class Moments(NamedTuple):
    """The mean of values, their standard deviation if there are several, and their number."""

    mean: float
    deviation: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Return the moments of values; None without any."""
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.2g}"
        return f"{self.mean:.4g}{spread} ({self.n})"


@dataclass(frozen=True)
class Finding:
    """The verdict on one metric of one run, with the values from which it follows.

    Attributes:
        before: the values of the baseline, one per seed.
        now: the values of the new runs, one per seed.
        loss: the loss of the mean, in the metric's unit.
        upper: the bound that the loss does not exceed with 95 % confidence.
        allowed: the loss that passes.
        counts: whether this verdict can fail the check.
        direction: "min" or "max", the better direction of a metric.
    """

    run: str
    metric: str
    verdict: Verdict
    reason: str
    before: tuple[float, ...] = ()
    now: tuple[float, ...] = ()
    loss: float | None = None
    upper: float | None = None
    allowed: float | None = None
    counts: bool = True
    direction: str | None = None

    @property
    def passes(self) -> bool:
        return not self.counts or self.verdict in (Verdict.SAME, Verdict.BETTER, Verdict.SKIPPED)

    @property
    def moments(self) -> tuple[Moments | None, Moments | None]:
        """The moments of the values before and now; None without values."""
        before, now = map(Moments.of, (self.before, self.now))
        return before, now

    @property
    def ending(self) -> Literal["passed", "failure", "error", "skipped"]:
        """What the verdict means for a CI system."""
        if self.verdict == Verdict.SKIPPED:
            return "skipped"
        return "passed" if self.passes else "failure" if self.verdict == Verdict.WORSE else "error"

    @property
    def cells(self) -> dict[str, str]:
        """The finding as the row of a table, by heading."""
        before, now = ("" if moments is None else str(moments) for moments in self.moments)
        return {
            "run": self.run,
            "metric": self.metric,
            "baseline": before,
            "now": now,
            "lost (95 %)": "" if self.loss is None else f"{self.loss:+.3g} (< {self.upper:.3g})",
            "allowed": "" if self.allowed is None else f"{self.allowed:.3g}",
            "verdict": self.verdict if self.counts or self.passes else f"({self.verdict})",
            "why": self.reason,
        }


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if a metric is worse, else 3 if one has no value or is undecided, or all are skipped, else 0."""
    failures = [finding.verdict for finding in findings if not finding.passes]
    all_skipped = bool(findings) and all(finding.verdict == Verdict.SKIPPED for finding in findings)
    return 1 if Verdict.WORSE in failures else 3 if failures or all_skipped else 0


def skipped(run: CheckedRun, reason: str) -> Finding:
    """Return the finding for a run whose data set is missing."""
    return Finding(run.name, _metrics(run), Verdict.SKIPPED, reason)


def refusal(run: CheckedRun, condition: str) -> Finding | None:
    """Return the finding for a run whose baseline does not allow a verdict, else None.

    Args:
        condition: the task's current condition.
    """

    def refused(verdict: Verdict, reason: str) -> Finding:
        return Finding(run.name, _metrics(run), verdict, reason)

    if not run.has_values:
        return refused(Verdict.MISSING, unrecorded(run))
    update = f"to measure again: {_update(run)}"
    if changes := _changed_settings(run):
        return refused(Verdict.INCONCLUSIVE, f"settings have changed: {', '.join(changes)}; {update}")
    if run.condition != condition:
        return refused(Verdict.INCONCLUSIVE, f"the task's settings or version differ from the baseline's; {update}")
    if run.exact:
        return None
    fewest = min(len(run.seeds), *(len(metric.values) for metric in run.metrics.values() if metric.values))
    if fewest < FEWEST_SEEDS:
        return refused(
            Verdict.INCONCLUSIVE, f"too few seeds: {fewest}; at least: {FEWEST_SEEDS}, better 8, or exact = true"
        )
    return None


def unrecorded(run: CheckedRun) -> str:
    """Say that a run, or one of its metrics, has no value, and how to measure it."""
    return f"not measured yet; to measure it: {_update(run)}"


def _update(run: CheckedRun) -> str:
    """Return the command that measures this run alone, and an exact one with its own seeds."""
    seeds = () if run.exact else ("--seeds", SEEDS_OF_UPDATE)
    return f"`{shell_command('check', '--only', run.name, '--update', *seeds)} --reason '...'`"


def _changed_settings(run: CheckedRun) -> list[str]:
    """Return what the baseline says of the run's settings now and said when it was measured, where they differ."""
    then, now = run.measured_settings, run.own_settings
    if then is None:
        return []
    sides = {name: [text(values.get(name, "default")) for values in (then, now)] for name in then | now}
    return [f"{name}={was} (now {is_now})" for name, (was, is_now) in sides.items() if was != is_now]


def _metrics(run: CheckedRun) -> str:
    return ", ".join(run.metrics) or "-"


def judge(
    run: CheckedRun, origin: Update | None, results: Mapping[int, SeedResult], speed_counts: bool
) -> list[Finding]:
    """Return the verdict on each metric of a run, and on its speed if the baseline has one.

    Args:
        origin: the update that measured the baseline's values.
        results: the results of the new runs, by seed.
        speed_counts: whether a slower step fails the check.
    """
    findings = [_judge_metric(run, origin, name, metric, results) for name, metric in run.metrics.items()]
    return findings if run.step_ratio is None else [*findings, _judge_speed(run, run.step_ratio, results, speed_counts)]


def _judge_metric(
    run: CheckedRun, origin: Update | None, name: str, metric: MetricBaseline, results: Mapping[int, SeedResult]
) -> Finding:
    values = {seed: result.values.get(metric.key(name)) for seed, result in results.items()}
    # As stored in the baseline, because its margin is 0 if all seeds agree, and then rounding alone would be a loss.
    values_now = {seed: run.stored(value) for seed, value in values.items() if value is not None}
    facts: dict[str, Any] = {
        "before": tuple(metric.values.values()),
        "now": tuple(values_now.values()),
        "allowed": 0.0 if run.exact else metric.margin,
        "direction": metric.direction,
    }

    def finding(verdict: Verdict, reason: str, **more: Any) -> Finding:
        return Finding(run.name, name, verdict, reason, **facts, **more)

    if not metric.values:
        return finding(Verdict.MISSING, unrecorded(run))
    if diverged := [seed for seed, result in results.items() if result.diverged]:
        return finding(Verdict.WORSE, f"diverged: {_seeds(diverged)}")
    if broken := {seed: result.broken for seed, result in results.items() if result.broken}:
        return finding(Verdict.WORSE, f"{_seeds([*broken])}: {'; '.join(dict.fromkeys(broken.values()))}")
    if lacking := [seed for seed, value in values.items() if value is None]:
        reasons = dict.fromkeys(results[seed].missing or f"the task logs no metric '{name}'" for seed in lacking)
        return finding(Verdict.MISSING, f"{_seeds(lacking)}: {'; '.join(reasons)}")
    if equal := _equal_seeds(results):
        return finding(Verdict.WORSE, f"the seed has no effect; equal in all metrics: {_seeds(equal)}")
    if run.exact:
        return finding(*_exactly(run, metric, origin, values_now, results))

    before, now, allowed = list(metric.values.values()), list(values_now.values()), metric.margin or 0.0
    # The margin is that of independent samples, so seeds that both sides have are not paired.
    outcome, loss = inference.verdict(before, now, metric.direction, allowed)
    words = {
        Verdict.WORSE: f"lost: {loss.mean:.3g}; allowed: {allowed:.3g}",
        Verdict.INCONCLUSIVE: f"add seeds; lost: {loss.lower:.3g} to {loss.upper:.3g}; allowed: {allowed:.3g}",
    }
    return finding(outcome, words.get(outcome, ""), loss=loss.mean, upper=loss.upper)


def _equal_seeds(results: Mapping[int, SeedResult]) -> list[int]:
    """Return the first seeds whose values agree in every metric; empty if no two seeds agree."""
    by_values: dict[frozenset[Any], list[int]] = {}
    for seed, result in results.items():
        by_values.setdefault(frozenset(result.values.items()), []).append(seed)
    return next((seeds for seeds in by_values.values() if len(seeds) > 1), [])


def _exactly(
    run: CheckedRun,
    metric: MetricBaseline,
    origin: Update | None,
    values_now: Mapping[int, float],
    results: Mapping[int, SeedResult],
) -> tuple[Verdict, str]:
    """Return the verdict on values that should be equal, or within the tolerance on another kind of machine."""
    sides = single(metric.values, values_now)
    if unknown := sides.only_second:
        return Verdict.MISSING, f"no value is recorded: {_seeds(unknown)}"
    tolerance, equal = 0.0, "equal to the last bit"
    if other := _other_machine(origin, results):
        if run.tolerance is None:
            return Verdict.INCONCLUSIVE, f"exact values need the same kind of machine; {other}"
        tolerance, equal = run.tolerance, f"equal on another kind of machine within: {run.tolerance:.2g}; {other}"
    others = changed(sides, tolerance)
    if not others:
        return Verdict.SAME, equal
    then = statistics.fmean(metric.values[seed] for seed in values_now)
    if (statistics.fmean(values_now.values()) > then) == (metric.direction == "max"):
        return Verdict.INCONCLUSIVE, f"better on average: update, with the reason; changed: {_seeds(others)}"
    return Verdict.WORSE, f"worse on average; changed: {_seeds(others)}"


def _other_machine(origin: Update | None, results: Mapping[int, SeedResult]) -> str:
    """Return how the machine of the first seed that ran elsewhere differs from the baseline's; empty if none did."""
    then = {**origin.machine, "torch": origin.versions.get("torch", "")} if origin else {}
    for seed, result in results.items():
        now = machine_kind(result.facts) | {"torch": result.facts["packages"]["torch"]}
        if other := [f"{what} {then.get(what)}, now {value}" for what, value in now.items() if then.get(what) != value]:
            return f"{_seeds([seed])}: {'; '.join(other)}"
    return ""


def _judge_speed(run: CheckedRun, before: float, results: Mapping[int, SeedResult], counts: bool) -> Finding:
    """Return the verdict on the time of a training step, which may grow by an allowed factor."""
    now = tuple(result.speed for result in results.values() if result.speed is not None)
    factor = run.speed.allowed_factor
    if now:
        times = statistics.median(now) / before
        verdict = Verdict.WORSE if times > factor else Verdict.BETTER if times < 1 / factor else Verdict.SAME
        reason = f"median step, as a multiple of the baseline's: {times:.2f}; allowed: {factor:g}"
    else:
        verdict, reason = Verdict.MISSING, "no seed was timed"
    allowed = (factor - 1) * before
    return Finding(run.name, SPEED, verdict, reason, (before,), now, allowed=allowed, counts=counts, direction="min")


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
