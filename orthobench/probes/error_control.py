"""How long a model keeps the states of a symbolic machine apart (Chung, Choi, Kim 2026, arXiv 2605.07755).

After a sequence, the machine is in one of k states. In the readout's coordinates, each state has a *mean*: the mean of
the model's outputs over training sequences that end in it. A level L is 90 % of the way from chance, 1 / k, to 1. At a
test length t,

    R(t) = the distance ||P (y_t - mean of the true state)|| that a share L of the sequences does not exceed,
    M    = the mean over states of the distance from a state's mean to the nearest other one,

where P projects on the span of the differences of means. The distinguishability ratio is R(t) / M. An affine step that
keeps every mean in place cannot contract errors in this span, so there R(t) grows until the decoder reads wrong states.

The decoder's readability threshold is the ratio up to which it reads a share L of the states if all of them are equally
far from their means. Their directions are those of the deviations on training sequences. The predicted horizon is the
greatest length up to which the ratio is at most this threshold. The measured horizon is the greatest length up to which
the decoder reads a share L of the states. The paper's program is not public, so the definitions of spread, separation
and threshold are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from orthobench.model import Model
from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.sequences import valid_steps
from orthobench.task import Batch, Split

LEVEL = 0.9
"""The share of the way from chance to 1 at which states count as read."""
TRAINING, TESTS, BATCH = 512, 2048, 256
"""The most sequences from which the means and the deviations are taken, of tests, and in one batch."""
FEWEST = 64
"""Neighbouring lengths are merged until this many states are measured."""


def state_means(outputs: Tensor, states: Tensor) -> Tensor:
    """Return the mean output of each state, `[k, n]`, from outputs `[N, n]` and states `[N]`, 0 to k - 1."""
    count = int(states.max()) + 1
    sums = outputs.new_zeros(count, outputs.shape[1]).index_add_(0, states, outputs)
    return sums / torch.bincount(states, minlength=count).unsqueeze(1)


def separation(means: Tensor) -> float:
    """Return the mean over states of the distance from a state's mean to the nearest other one, of means `[k, n]`."""
    distances = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(math.inf)
    return float(distances.min(1).values.mean())


def symbolic_projector(means: Tensor) -> Tensor:
    """Return the projector `[n, n]` on the span of the differences of means `[k, n]`."""
    _, sizes, directions = torch.linalg.svd(means - means.mean(0), full_matrices=False)
    kept: Tensor = directions[sizes > 1e-6 * sizes.max()]
    return kept.T @ kept


def readability_radius(means: Tensor, deviations: Tensor, states: Tensor, level: float) -> float:
    """Return how far from their means states can be so that the decoder still reads a share `level` of them.

    Every deviation, in both directions, is scaled to the same norm. The decoder reads the largest output.

    Args:
        means: `[k, k]`; column j is the output for state j.
        deviations: `[N, k]`, with their states `[N]`.
        level: an accuracy.
    """
    norms = deviations.norm(dim=1)
    moved = norms > 1e-12 * float(means.norm())
    directions, states = deviations[moved] / norms[moved].unsqueeze(1), states[moved]
    if not len(directions):
        return math.inf
    directions, states = torch.cat((directions, -directions)), states.repeat(2)
    rows = torch.arange(len(states))
    margins = means[states, states].unsqueeze(1) - means[states]
    approach = directions - directions[rows, states].unsqueeze(1)
    radii = torch.where(approach > 0, margins / approach, math.inf)
    radii[rows, states] = math.inf
    return float(radii.min(1).values.clamp_min(0).quantile(1 - level, interpolation="lower"))


def horizon(lengths: Sequence[int], holds: Sequence[bool]) -> float:
    """Return the greatest of the lengths before the first that does not hold; 0 for none, infinity for all."""
    first = next((number for number, held in enumerate(holds) if not held), None)
    if first is None:
        return math.inf
    return float(lengths[first - 1]) if first else 0.0


def merged_lengths(counts: Tensor, fewest: int = FEWEST) -> list[tuple[int, int]]:
    """Return neighbouring lengths as (last length, number of states), with at least `fewest` states if there are any.

    Args:
        counts: `counts[l]` states belong to length l.
    """
    ranges, before = [(0, 0)], 0
    for length, count in enumerate(counts.tolist()):
        before += count
        if before >= fewest:
            ranges.append((length, before))
            before = 0
    last, count = ranges.pop()
    return [*ranges[1:], (len(counts) - 1 if before else last, count + before)]


class ErrorControl(Probe):
    """The ratio and the share of read states over the test length, and both horizons; infinity: beyond every test.

    A state that no training sequence ends in is left out. The probe measures nothing on tasks whose targets are not
    states, or if the outputs are not finite.
    """

    title = "spread within a symbolic state over the distance between states, and the horizon of tracking"
    paper = "Chung, Choi, Kim 2026, figures 3 and 4"
    every_epochs = 0

    @torch.no_grad()
    def __call__(self, context: ProbeContext) -> ProbeResult:
        model, task = context.model, context.task
        if not task.tracks_states:
            return ProbeResult()
        outputs, states, _ = _answers(model, task.train, TRAINING)
        classes, states = states.unique(return_inverse=True)
        count = len(classes)
        if count < 2 or not outputs.isfinite().all():
            return ProbeResult()
        read = float((outputs.argmax(1) == classes[states]).double().mean())
        outputs = _centred(outputs, classes)
        means = state_means(outputs, states)
        projector, apart = symbolic_projector(means), separation(means)
        level = 1 / count + LEVEL * (1 - 1 / count)
        threshold = readability_radius(means, (outputs - means[states]) @ projector, states, level) / apart

        outputs, states, lengths = _answers(model, task.test, TESTS)
        known = torch.isin(states, classes)
        outputs, lengths, states = outputs[known], lengths[known], torch.searchsorted(classes, states[known])
        is_read = (outputs.argmax(1) == classes[states]).double()
        distances = ((_centred(outputs, classes) - means[states]) @ projector).norm(dim=1)
        order = lengths.argsort(stable=True)
        ranges = merged_lengths(torch.bincount(lengths))
        ends, sizes = [last for last, _ in ranges], [size for _, size in ranges]
        ratios = [float(part.quantile(level)) / apart for part in distances[order].split(sizes)]
        accuracies = [float(part.mean()) for part in is_read[order].split(sizes)]
        values = {
            "error_control/threshold": threshold,
            "error_control/separation": apart,
            "error_control/trained_accuracy": read,
            "error_control/predicted_horizon": horizon(ends, [ratio <= threshold for ratio in ratios]),
            "error_control/measured_horizon": horizon(ends, [accuracy >= level for accuracy in accuracies]),
        }
        vectors: dict[str, Sequence[float]] = {"lengths": ends, "ratio": ratios, "accuracy": accuracies}
        return ProbeResult(values, {f"error_control/{name}": vector for name, vector in vectors.items()})


def _answers(model: Model, split: Split, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs in float64 `[N, p]`, targets `[N]` and lengths `[N]` of at most this many sequences.

    If a model answers at every step, each beginning of a sequence counts, with its own length. The sequences are spread
    evenly over the split.
    """
    examples = torch.linspace(0, len(split) - 1, min(most, len(split)), dtype=torch.float64).long()
    parts = [_answers_of(model, split.batch(numbers)) for numbers in examples.split(BATCH)]
    outputs, targets, lengths = (torch.cat(part) for part in zip(*parts, strict=True))
    return outputs, targets, lengths


def _answers_of(model: Model, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    outputs, _ = batch.through(model)
    steps, size = batch.inputs.shape[:2]
    lengths = torch.full((size,), steps) if batch.lengths is None else batch.lengths
    outputs, targets, lengths = outputs.double().cpu(), batch.targets.cpu(), lengths.cpu()
    if outputs.ndim == 2:
        return outputs, targets, lengths
    valid = valid_steps(lengths, steps)
    each = torch.arange(1, steps + 1).unsqueeze(1).expand(steps, size)
    return outputs[valid], targets[valid], each[valid]


def _centred(outputs: Tensor, classes: Tensor) -> Tensor:
    """Return the outputs for these classes without their mean, on which the softmax does not depend."""
    chosen = outputs[:, classes]
    return chosen - chosen.mean(1, keepdim=True)
