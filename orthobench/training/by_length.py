"""A metric over the length of the test sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from orthobench.metric import LENGTHS, TRAINED_LENGTHS, by_length
from orthobench.sequences import valid_steps
from orthobench.settings import Settings
from orthobench.task import Batch, Task


class ScoresByLength:
    """The sum and the number of scores at every length, batch by batch. Sums are in float64.

    Args:
        task: a task with a `length_metric`.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.sums = torch.zeros(0, dtype=torch.float64)  # index l holds the sum for length l
        self.counts = torch.zeros(0, dtype=torch.float64)

    def add(self, outputs: Tensor, batch: Batch) -> None:
        """Add the scores of a batch, for which the model computed these outputs."""
        lengths, scores = lengths_and_scores(self.task, outputs, batch)
        index = self.task.length_bins(lengths).cpu()
        size = max(len(self.sums), int(index.max()) + 1)
        self.sums, self.counts = (
            torch.cat((old, old.new_zeros(size - len(old)))) + torch.bincount(index, weights, size)
            for old, weights in ((self.sums, scores.double().cpu()), (self.counts, torch.ones(len(index)).double()))
        )

    def means(self) -> dict[int, float]:
        """Return the mean score by length, from the shortest to the longest."""
        lengths = self.counts.nonzero().squeeze(1)
        means = self.sums[lengths] / self.counts[lengths]
        return dict(zip(lengths.tolist(), means.tolist(), strict=True))


def lengths_and_scores(task: Task, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the lengths and the scores of a batch's sequences, or of their valid steps, `[N]`.

    Raises:
        ValueError: the shape of the scores is neither `[batch]` nor `[time, batch]`.
    """
    steps, size = batch.inputs.shape[:2]
    lengths = torch.full((size,), steps, device=batch.inputs.device) if batch.lengths is None else batch.lengths
    scores = task.score(outputs, batch.targets)
    if scores.shape == (size,):
        return lengths, scores
    if scores.shape != (steps, size):
        raise ValueError(f"scores are {list(scores.shape)}, neither [batch] = {[size]} nor [time, batch]")
    valid = valid_steps(lengths, steps)
    each = torch.arange(1, steps + 1, device=lengths.device).unsqueeze(1).expand(steps, size)
    return each[valid], scores[valid]


def length_vectors(task: Task, settings: Settings, means: Mapping[int, float]) -> dict[str, Sequence[float]]:
    """Return the vectors for the database: the lengths, the metric at each length, and the lengths of training."""
    assert task.length_metric is not None
    return {
        LENGTHS: [*means],
        by_length(task.length_metric): [*means.values()],
        TRAINED_LENGTHS: task.trained_lengths(settings),
    }
