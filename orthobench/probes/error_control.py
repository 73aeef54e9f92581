"""How long a model keeps the states of a symbolic machine apart (Chung, Choi, Kim 2026, arXiv 2605.07755).

After a sequence, the machine is in one of k states. In the readout's coordinates, the outputs of the model, a sequence
has a *margin*: the output for its true state minus the largest output for any other state. The decoder reads the state
if it is positive. At a test length t, and for the states s of the sequences,

    M_s(t) = mean margin of the state s, which is how far it is separated from the states next to it,
    R(t)   = root mean square over sequences of (margin - M_s(t)) / M_s(t).

R(t) is the distinguishability ratio: the spread within a state over its separation. It is infinite if a state has a
mean margin of 0 or less. An affine step that keeps every state in place cannot contract errors between the states, so
there the ratio grows with the length, until the decoder reads wrong states.

A level L is 90 % of the way from chance, 1 / k, to 1. On training sequences, a share L of the deviations, in units of
their root mean square, is at least -K. The decoder's readability threshold is 1 / K, because a share L of margins with
this distribution is positive up to this ratio. A state whose mean margin in training is 0 or less is left out, as long
as a share q of at least L of the training sequences ends in the others. Of those, a share L / q then has to be read.

The predicted horizon is the greatest length up to which the ratio is at
most the threshold. The measured horizon is the greatest length up to which the decoder reads a share L of the states.
The paper's program is not public, so the definitions of spread, separation and threshold are our own.
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
"""The most training sequences that give the threshold, the most of tests, and the most in one batch."""
FEWEST = 64
"""Neighbouring lengths are merged until this many states are measured."""


def margins(outputs: Tensor, states: Tensor) -> Tensor:
    """Return by how much each true state's output exceeds all others, `[N]`, from outputs `[N, p]`, states `[N]`."""
    true = states.unsqueeze(1)
    others = outputs.scatter(1, true, -math.inf)
    return outputs.gather(1, true).squeeze(1) - others.max(1).values


def relative_deviations(margin: Tensor, states: Tensor) -> Tensor | None:
    """Return each margin's distance from its state's mean, over that mean, `[N]`; None if a mean is not positive.

    Args:
        margin: `[N]`, of `states` `[N]`, which are numbers from 0 on.
    """
    counts = torch.bincount(states).clamp_min(1)
    means = (torch.bincount(states, margin, len(counts)) / counts)[states]
    return (margin - means) / means if bool((means > 0).all()) else None


def read_states(margin: Tensor, states: Tensor) -> Tensor:
    """Return the states whose mean margin is positive, from margins `[N]` of `states` `[N]`."""
    return torch.bincount(states, margin).gt(0).nonzero().squeeze(1)


def ratio_of(deviations: Tensor | None) -> float:
    """Return the root mean square of relative deviations `[N]`, the distinguishability ratio."""
    return math.inf if deviations is None or not len(deviations) else float(deviations.square().mean().sqrt())


def readability_threshold(deviations: Tensor | None, level: float) -> float:
    """Return the ratio up to which a share `level` of the margins is positive, if only their spread grows.

    Without any deviation there is nothing that could grow, and the threshold is infinite. If the decoder reads some
    state wrong on average, no ratio is readable.
    """
    if deviations is None:
        return 0.0
    least = -float(deviations.quantile(1 - level, interpolation="lower"))
    return ratio_of(deviations) / least if least > 0 else math.inf


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

    title = "spread within a symbolic state over the separation of the states, and the horizon of tracking"
    paper = "Chung, Choi, Kim 2026, figures 3 and 4"
    every_epochs = 0

    @torch.no_grad()
    def __call__(self, context: ProbeContext) -> ProbeResult:
        model, task = context.model, context.task
        if not task.tracks_states:
            return ProbeResult()
        outputs, states, _ = _answers(model, task.train, TRAINING)
        known = states.unique()
        if len(known) < 2 or not outputs.isfinite().all():
            return ProbeResult()
        level = 1 / len(known) + LEVEL * (1 - 1 / len(known))
        margin = margins(outputs, states)
        is_read = torch.isin(states, read_states(margin, states))
        if (share := float(is_read.double().mean())) < level:
            is_read, share = torch.ones_like(is_read), 1.0
        compared = states[is_read].unique()
        threshold = readability_threshold(relative_deviations(margin[is_read], states[is_read]), level / share)
        values = {
            "error_control/threshold": threshold,
            "error_control/margin": float(margin.mean()),
            "error_control/trained_accuracy": float((margin > 0).double().mean()),
        }
        outputs, states, lengths = _answers(model, task.test, TESTS)
        order = lengths.argsort(stable=True)
        order = order[torch.isin(states[order], known)]
        ranges = merged_lengths(torch.bincount(lengths[order]))
        ends, sizes = [last for last, _ in ranges], [size for _, size in ranges]
        margin, states = margins(outputs, states)[order], states[order]
        is_compared = torch.isin(states, compared)
        parts = list(zip(margin.split(sizes), states.split(sizes), is_compared.split(sizes), strict=True))
        ratios = [ratio_of(relative_deviations(part[kept], true[kept])) for part, true, kept in parts]
        accuracies = [float((part > 0).double().mean()) for part, _, _ in parts]
        values |= {
            "error_control/predicted_horizon": horizon(ends, [ratio <= threshold for ratio in ratios]),
            "error_control/measured_horizon": horizon(ends, [accuracy >= level for accuracy in accuracies]),
        }
        vectors: dict[str, Sequence[float]] = {
            "lengths": ends,
            "counts": sizes,
            "ratio": ratios,
            "accuracy": accuracies,
        }
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
