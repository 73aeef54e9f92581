"""Published curves, such as a program's log, together with the measured ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orthobench.analysis.conditions import VariantData
from orthobench.papers import Artifact, Experiment, Printed


@dataclass(frozen=True)
class PrintedCurve:
    """A published curve of an experiment, with the experiment's runs if there are any."""

    experiment: Experiment
    printed: Printed
    variant: VariantData | None

    @property
    def x(self) -> list[float]:
        """The positions of its points, in epochs or iterations."""
        return [x for x, _ in self.printed.curve]

    @property
    def y(self) -> list[float]:
        """The published values."""
        return [y for _, y in self.printed.curve]

    def measured(self, unit: str) -> list[float | None]:
        """Return the median over the finished seeds at each published point; None where no seed was evaluated.

        Args:
            unit: the unit of the published points, "epoch" or "iteration".
        """
        if self.variant is None:
            return [None] * len(self.x)
        scale = self.variant.run.iterations_per_epoch if unit == "epoch" else 1
        curves = self.variant.series_of_runs(self.printed.split, self.printed.metric).values()
        values = [[float(curve[at]) for curve in curves if (at := round(x * scale)) in curve.index] for x in self.x]
        return [statistics.median(seeds) if seeds else None for seeds in values]


def printed_curves(
    artifact: Artifact, experiments: Sequence[Experiment], variants: Sequence[VariantData]
) -> Iterator[PrintedCurve]:
    """Yield the published curves of a figure's metric.

    Args:
        variants: the measured runs, under the experiments' labels.
    """
    by_label = {variant.label: variant for variant in variants}
    for experiment in experiments:
        for printed in experiment.printed_in(artifact.name):
            if printed.curve and printed.split == artifact.split and artifact.metric in ("", printed.metric):
                yield PrintedCurve(experiment, printed, by_label.get(experiment.label))
