"""The table of docs/founding-idea.md: whether what a cell is before training predicts what it learns.

The cells are those of the tuned protocol, at the settings that their searches chose, and the quantities are measured at
iteration 0 of the runs that give the scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from scipy.stats import spearmanr

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.logged import Values
from orthobench.isolation import isolated
from orthobench.metric import JACOBIAN
from orthobench.plugins import Catalog
from orthobench.probes._jacobians import input_numbers, products, start
from orthobench.spec.resolve import RunConfig, RunSpec
from orthobench.task import Batch
from orthobench.training.build import build_trainer
from orthobench.training.device import CPU
from workshop.website.markdown import table

SEQUENCES, VECTORS, AT_ONCE = 4, 32, 4
"""The sequences, and the random vectors for each, with which the gradient kept is measured, and how many at once."""
SMALLEST = 1e-12
"""The smallest gradient that counts, because rounding decides what is below."""
FEWEST_CELLS = 30
"""The fewest cells of a column, because the intervals of fewer exclude nothing."""
RESAMPLES, LEVELS = 2000, (0.025, 0.975)
"""How often cells or families are drawn again, and the ends of a 95 % interval."""


@dataclass(frozen=True)
class Tuned:
    """A cell of a column: its family, what it is before training, and the median score of its seeds."""

    family: str
    score: float
    quantities: Mapping[str, float]


def before_training(variant: VariantData) -> dict[str, float]:
    """Return the quantities of a cell before training, each the median over its runs.

    * `state size`: how many numbers the cell carries from step to step.
    * `distance from orthogonal`: ||J^T J - I||_F / sqrt(N) of a step's Jacobian, from the stored scores. A step that
      forgets everything has 1.
    * `gradient kept`: ||ds_T / ds_0||_F / sqrt(N) over whole sequences, which is 1 if the Jacobians are orthogonal.
    * `change of the gradient`: the absolute logarithm of the one before, 0 if the gradient neither shrinks nor grows.
    """
    sizes, kept = zip(*(measure(RunSpec(**run.spec)) for run in variant.finished), strict=True)
    distances = [
        distance
        for (split, name), logged in variant.metrics.items()
        if split == "probe" and name.startswith(JACOBIAN)
        for distance in logged.value[logged.iteration == 0]
    ]
    size, gradient = float(median(sizes)), max(median(kept), SMALLEST)
    return {
        "state size": size,
        "distance from orthogonal": median(distances) / math.sqrt(size),
        "gradient kept": gradient,
        "change of the gradient": abs(math.log(gradient)),
    }


def measure(spec: RunSpec) -> tuple[int, float]:
    """Return the state size of a run's model, and the gradient that it keeps over a sequence before training."""
    with isolated():
        trainer = build_trainer(RunConfig(spec, Catalog()), CPU)
        batch = Batch.of(trainer.task.train, torch.arange(SEQUENCES))
        inputs = input_numbers(batch, trainer.task.signature.input_size)
        state = start(trainer.model, SEQUENCES)
        size = sum(part.shape[-1] for part in state)
        vectors = torch.randint(0, 2, (VECTORS, size), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
        # A few at a time, because 128 copies of mLSTM's memory at 200 steps took 10 GB.
        found = [products(trainer.model, inputs, state, some) for some in vectors.split(AT_ONCE)]
        rows = [each.double().square().mean() for each in found if each is not None]
        return size, float(torch.stack(rows).mean().sqrt()) if rows else 0.0


def correlation(cells: Sequence[Tuned], quantity: str) -> tuple[float, float, float]:
    """Return Spearman's correlation of a quantity with the score, and its 95 % bootstrap interval over the cells."""
    pairs = np.array([(cell.quantities[quantity], cell.score) for cell in cells])
    draws = np.random.default_rng(0).integers(0, len(cells), (RESAMPLES, len(cells)))
    low, high = np.quantile([spearmanr(pairs[chosen]).statistic for chosen in draws], LEVELS)
    return float(spearmanr(pairs).statistic), float(low), float(high)


def advantage(cells: Sequence[Tuned], quantities: Sequence[str]) -> tuple[float, float, float, float]:
    """Predict the cells of each family from those of all others, by a line in the ranks of quantities.

    The rank of a cell is its place among the others' values, because the quantities spread over many powers of ten.

    Returns:
        The mean absolute error of the prediction by the median of the other families' scores; by how much the line's
        error is smaller, below 0 if it is larger; and the 95 % interval of this advantage, from resampled families.
    """
    by_median, by_line = {}, {}
    for family in sorted({cell.family for cell in cells}):
        own = [cell for cell in cells if cell.family == family]
        others = [cell for cell in cells if cell.family != family]
        scores = np.array([cell.score for cell in others])
        weights, *_ = np.linalg.lstsq(_ranks(others, others, quantities), scores, rcond=None)
        predicted = np.clip(_ranks(own, others, quantities) @ weights, scores.min(), scores.max())
        truth = np.array([cell.score for cell in own])
        by_median[family] = np.abs(np.median(scores) - truth)
        by_line[family] = np.abs(predicted - truth)
    families = list(by_median)

    def difference(chosen: Sequence[int]) -> float:
        names = [families[int(each)] for each in chosen]
        return float(
            np.concatenate([by_median[name] for name in names]).mean()
            - np.concatenate([by_line[name] for name in names]).mean()
        )

    everyone = range(len(families))
    resampled = np.random.default_rng(0).integers(0, len(families), (RESAMPLES, len(families)))
    low, high = np.quantile([difference(chosen) for chosen in resampled], LEVELS)
    return float(np.concatenate(list(by_median.values())).mean()), difference(everyone), float(low), float(high)


def _ranks(cells: Sequence[Tuned], among: Sequence[Tuned], quantities: Sequence[str]) -> Values:
    """Return the rank of each cell's quantities among those of other cells, from 0 to 1, after a column of ones."""
    columns = [np.ones(len(cells))]
    for quantity in quantities:
        known = np.sort([cell.quantities[quantity] for cell in among])
        values = np.array([cell.quantities[quantity] for cell in cells])
        places = np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right")
        columns.append(places / (2 * len(known)))
    return np.stack(columns, 1)


def predictors_table(columns: Mapping[str, Sequence[Tuned]]) -> str:
    """Build the table: a row for each column of the protocol and each quantity."""
    rows = []
    for name, cells in columns.items():
        common = set.intersection(*(set(cell.quantities) for cell in cells))
        quantities = [quantity for quantity in cells[0].quantities if quantity in common]
        for chosen in [*([quantity] for quantity in quantities), quantities]:
            words = chosen[0] if len(chosen) == 1 else "all of them"
            related = "{:.2f} ({:.2f} to {:.2f})".format(*correlation(cells, chosen[0])) if len(chosen) == 1 else "–"
            median_error, gain, low, high = advantage(cells, chosen)
            rows.append(
                [
                    f"{name}: {words}",
                    str(len(cells)),
                    related,
                    f"{round(100 * median_error)}",
                    f"{round(100 * gain)} ({round(100 * low)} to {round(100 * high)})",
                ]
            )
    return table(
        ["column: quantity", "cells", "Spearman [95 %]", "error of the median", "the line's advantage [95 %]"], rows
    )
