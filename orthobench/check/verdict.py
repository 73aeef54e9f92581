"""From what the baseline says and what runs gave to a verdict on each metric."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orthobench.check.baseline import CheckedRun, MetricBaseline, SpeedBaseline, Update
from orthobench.check.inference import FEWEST, difference, is_worse, power
from orthobench.check.measured import Measured, kind_of_machine

SPEED = "speed"
UNRECORDED = "nothing is recorded: check --update --reason '...' does it"


class Verdict(StrEnum):
    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One metric of one run: values by seed then and now, what was made of them, and why.

    loss: how much worse the mean got, in the metric's unit; upper: what it stays below with 95 %.
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
    power: float | None = None
    counts: bool = True

    @property
    def passes(self) -> bool:
        return not self.counts or self.verdict in (Verdict.SAME, Verdict.BETTER)


def exit_code(findings: Sequence[Finding]) -> int:
    """0: as good or better; 1: something is worse; 3: something could not be measured or decided."""
    failures = [finding.verdict for finding in findings if not finding.passes]
    return 1 if Verdict.WORSE in failures else 3 if failures else 0


def refusal(run: CheckedRun, condition: str) -> Finding | None:
    """Why no run of today could decide, if so: then none need be trained. `condition` is that of today's task."""

    def refused(verdict: Verdict, reason: str) -> Finding:
        return Finding(run.name, ", ".join(run.metrics) or "-", verdict, reason)

    if not run.measured:
        return refused(Verdict.MISSING, UNRECORDED)
    if run.condition != condition:
        reason = "the task's settings or version are not those of the baseline: check --update --reason '...'"
        return refused(Verdict.INCONCLUSIVE, reason)
    if run.exact:
        return None
    fewest = min(len(run.seeds), *(len(metric.values) for metric in run.metrics.values() if metric.values))
    if fewest < FEWEST:
        reason = (
            f"{fewest} seed{'s' if fewest > 1 else ''} cannot be evidence: with two, the spread has one degree of "
            f"freedom and its 95 % interval spans a factor of 70; take {FEWEST} or more, better 5, or exact = true"
        )
        return refused(Verdict.INCONCLUSIVE, reason)
    return None


def judge(
    run: CheckedRun, origin: Update | None, measured: Mapping[int, Measured], speed_counts: bool
) -> list[Finding]:
    """The verdict on each metric of a run, and on its speed if the baseline has one, of what each seed gave."""
    findings = [_judge_metric(run, origin, name, metric, measured) for name, metric in run.metrics.items()]
    return findings if run.speed is None else [*findings, _judge_speed(run.name, run.speed, measured, speed_counts)]


def _judge_metric(
    run: CheckedRun, origin: Update | None, name: str, metric: MetricBaseline, measured: Mapping[int, Measured]
) -> Finding:
    values = {seed: one.values.get(metric.key(name)) for seed, one in measured.items()}
    found = {seed: value for seed, value in values.items() if value is not None}
    facts: dict[str, Any] = {
        "before": tuple(metric.values.values()),
        "now": tuple(found.values()),
        "allowed": 0.0 if run.exact else metric.allowed_loss,
    }

    def finding(verdict: Verdict, reason: str, **more: Any) -> Finding:
        return Finding(run.name, name, verdict, reason, **facts, **more)

    if not metric.values:
        return finding(Verdict.MISSING, UNRECORDED)
    if diverged := [seed for seed, one in measured.items() if one.diverged]:
        return finding(Verdict.WORSE, f"diverged: {_seeds(diverged)}")
    if lacking := [seed for seed, value in values.items() if value is None]:
        reasons = dict.fromkeys(measured[seed].missing or f"the task logs no metric '{name}'" for seed in lacking)
        return finding(Verdict.MISSING, f"{_seeds(lacking)}: {'; '.join(reasons)}")
    if run.exact:
        return finding(*_exactly(metric, origin, found, measured))
    if metric.allowed_loss is None:
        return finding(Verdict.MISSING, "no allowed_loss: give it, or let check --update --reason '...' measure it")

    before, now, allowed = list(metric.values.values()), list(found.values()), metric.allowed_loss
    loss = difference(before, now, metric.direction)
    numbers = {
        "loss": loss.loss,
        "upper": loss.upper,
        "power": power(allowed, statistics.stdev(before), len(before), len(now)),
    }
    if loss.upper <= allowed:
        better = loss.upper < 0
        return finding(Verdict.BETTER if better else Verdict.SAME, "", **numbers)
    if is_worse(before, now, metric.direction, allowed):
        return finding(Verdict.WORSE, f"{loss.loss:.3g} lost, {allowed:.3g} allowed", **numbers)
    reason = f"the loss lies between {loss.lower:.3g} and {loss.upper:.3g}, {allowed:.3g} is allowed: more seeds decide"
    return finding(Verdict.INCONCLUSIVE, reason, **numbers)


def _exactly(
    metric: MetricBaseline, origin: Update | None, found: Mapping[int, float], measured: Mapping[int, Measured]
) -> tuple[Verdict, str]:
    if unknown := [seed for seed in found if seed not in metric.values]:
        return Verdict.MISSING, f"nothing is recorded for {_seeds(unknown)}"
    then = {**origin.machine, "torch": origin.versions.get("torch", "")} if origin else {}
    for seed, one in measured.items():
        now = kind_of_machine(one.facts) | {"torch": one.facts["packages"]["torch"]}
        if other := [f"{what} {then.get(what)}, now {value}" for what, value in now.items() if then.get(what) != value]:
            return Verdict.INCONCLUSIVE, f"exact on one kind of machine alone; {_seeds([seed])}: {'; '.join(other)}"
    if all(value == metric.values[seed] for seed, value in found.items()):
        return Verdict.SAME, "to the last bit"
    changed = [seed for seed, value in found.items() if value != metric.values[seed]]
    gain = statistics.fmean(found.values()) - statistics.fmean(metric.values[seed] for seed in found)
    if (gain > 0) == (metric.direction == "max"):
        return Verdict.INCONCLUSIVE, f"{_seeds(changed)} changed, for the better on average: update, with the reason"
    return Verdict.WORSE, f"{_seeds(changed)} changed, for the worse on average"


def _judge_speed(name: str, speed: SpeedBaseline, measured: Mapping[int, Measured], counts: bool) -> Finding:
    """Whether a training step got slower by more than the wide factor allowed."""
    ratios = tuple(one.speed for one in measured.values() if one.speed is not None)
    facts: dict[str, Any] = {"before": (speed.ratio,), "now": ratios, "counts": counts}
    if not ratios:
        return Finding(name, SPEED, Verdict.MISSING, "no calibration stands beside these runs", **facts)
    times, factor = statistics.median(ratios) / speed.ratio, speed.allowed_factor
    verdict = Verdict.WORSE if times > factor else Verdict.BETTER if times < 1 / factor else Verdict.SAME
    return Finding(name, SPEED, verdict, f"a step takes {times:.2f} x the baseline's, {factor:g} allowed", **facts)


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
