"""What a planned check can detect, before anything is trained."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.gate.baseline import CheckedRun, condition
from orthobench.gate.margins import DETECTION, detectable_loss, power
from orthobench.gate.verdict import refusal, unrecorded
from orthobench.spec.resolve import RunConfig


@dataclass(frozen=True)
class PlannedMetric:
    """What a check detects in one metric of a run, given the spread of the baseline's seeds.

    Attributes:
        measured: the number of seeds in the baseline.
        seeds: the number of seeds that the check trains.
        allowed: the loss of the mean that passes.
        detectable: the loss that the check calls worse with probability DETECTION.
        power: the probability that unchanged code passes.
    """

    run: str
    metric: str
    mean: float
    measured: int
    seeds: int
    allowed: float
    detectable: float
    power: float

    @property
    def line(self) -> str:
        """The plan in words."""
        return (
            f"{self.run}: {self.metric} {self.mean:.3g}: {self.seeds} seeds detect a loss of {self.detectable:.2g} "
            f"in {DETECTION:.0%} of the checks; {self.allowed:.2g} may be lost, and unchanged code passes "
            f"{self.power:.1%} of them"
        )


def planned_metrics(runs: Sequence[CheckedRun]) -> list[PlannedMetric]:
    """Return the plan of each metric with values and a margin. Exact runs have none, because they detect any change."""
    planned = []
    for run in runs:
        for name, metric in run.metrics.items():
            values, margin, n_now = list(metric.values.values()), metric.margin, len(run.seeds)
            if run.exact or margin is None or min(len(values), n_now) < FEWEST_SEEDS:
                continue
            loss = detectable_loss(values, n_now, margin, metric.direction)
            passes = power(margin, statistics.stdev(values), len(values), n_now)
            mean = statistics.fmean(values)
            planned.append(PlannedMetric(run.name, name, mean, len(values), n_now, margin, loss, passes))
    return planned


def unplanned_lines(runs: Sequence[CheckedRun], configs: Mapping[str, Sequence[RunConfig]]) -> list[str]:
    """Return a line for each run, or metric of a run, on which the baseline allows no verdict, with the reason."""
    lines = []
    for run in runs:
        if finding := refusal(run, condition(configs[run.name][0].spec)):
            lines.append(f"{run.name}: {finding.reason}")
        else:
            unmeasured = (name for name, metric in run.metrics.items() if not metric.values)
            lines += [f"{run.name}: {name}: {unrecorded(run)}" for name in unmeasured]
    return lines
