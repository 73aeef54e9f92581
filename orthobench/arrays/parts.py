"""Divide sequences, or one long series, into training, validation and test data."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from orthobench.arrays.arrange import Sequences
from orthobench.errors import UsageError, counted
from orthobench.task import seeded_generator

PART_NAMES = ("training", "validation", "test")
WINDOW = 100
"""The usual number of steps of a window; a tenth of the series if that is shorter."""
Numbers = NDArray[np.int64]


class Divided(NamedTuple):
    """Sequences or windows, and those of each part.

    Attributes:
        starts, lengths: the first step in the table of steps, and the number of steps, of each, `[N]`.
        parts: the numbers of those of each part, in the order of `PART_NAMES`.
    """

    starts: Numbers
    lengths: Numbers
    parts: list[Numbers]

    def rows(self, part: int) -> Numbers:
        """Return the numbers of the steps of a part, `[steps]`."""
        starts, lengths = self.starts[self.parts[part]], self.lengths[self.parts[part]]
        rows: Numbers = np.arange(lengths.sum()) + (starts - lengths.cumsum() + lengths).repeat(lengths)
        return rows


def divide(sequences: Sequences, settings: Any) -> Divided:
    """Return the sequences, or the windows of a series, divided into three parts.

    Raises:
        UsageError: there are too few for a part.
    """
    ahead = getattr(settings, "horizon", 0)
    if sequences.is_series:
        return _windows(len(sequences.steps), settings, ahead)
    if settings.window is not None:
        raise UsageError("window is for one long series, and the data has sequences: leave it out")
    lengths = sequences.lengths - ahead
    if (lengths < 1).any():
        raise UsageError(f"horizon={ahead} is as long as the shortest sequence, {sequences.lengths.min()} steps")
    needs_validation = sequences.split is None and settings.validation_share
    split = _dealt(sequences, settings) if sequences.split is None else sequences.split
    parts = [np.flatnonzero(split == part) for part in range(3)]
    for name, own in zip(PART_NAMES, parts, strict=True):
        if not len(own) and (name != "validation" or needs_validation):
            raise UsageError(f"{counted(len(lengths), 'sequence')} leave none for {name}: give more, or other shares")
    return Divided(sequences.lengths.cumsum() - sequences.lengths, lengths, parts)


def _dealt(sequences: Sequences, settings: Any) -> Numbers:
    """Return the part of each sequence, with equal shares of each class."""
    count = len(sequences.lengths)
    order, groups = np.arange(count), np.zeros(count, np.int64)
    if settings.split_seed is not None:
        order = torch.randperm(count, generator=seeded_generator(settings.split_seed, "split")).numpy()
        if sequences.classes and not sequences.by_step and sequences.targets is not None:
            groups = sequences.targets
    # Spread each class evenly over 0 to 1, and cut there, so that the sizes of the parts do not depend on the classes.
    by_class = order[np.argsort(groups[order], kind="stable")]
    sizes = np.bincount(groups)
    places = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes if size])
    spread = by_class[np.argsort(places, kind="stable")]
    test = max(1, round(settings.test_share * count))
    validation = max(1, round(settings.validation_share * count)) if settings.validation_share else 0
    trained = max(0, count - test - validation)
    parts = np.empty(count, np.int64)
    parts[spread] = np.arange(count) >= trained
    parts[spread[trained + validation :]] = 2
    return parts


def _sizes(steps: int, settings: Any) -> tuple[int, int, int]:
    """Return the steps of each part of a series."""
    test, validation = round(settings.test_share * steps), round(settings.validation_share * steps)
    return steps - test - validation, validation, test


def _longest_window(steps: int, settings: Any) -> int:
    """Return the steps of the longest window of a series that each of its parts has, with those ahead of it."""
    training, validation, test = _sizes(steps, settings)
    return min(training, test, validation if settings.validation_share else test) - getattr(settings, "horizon", 0)


def usual_window(steps: int, settings: Any) -> int:
    """Return the usual window of a series: a tenth of it, or what leaves two in its smallest part."""
    window, longest = min(WINDOW, steps // 10), _longest_window(steps, settings)
    return max(2, window if window <= longest else longest // 2)


def _windows(steps: int, settings: Any, ahead: int) -> Divided:
    """Return the windows of a series, cut one after the other in each part.

    Raises:
        UsageError: the series is too short.
    """
    window, longest = settings.window, _longest_window(steps, settings)
    if window > longest:
        least = f"{window} steps" + (f" and horizon={ahead}" if ahead else "")
        fix = f"give at most window={longest}" if longest > 1 else "give more steps"
        raise UsageError(f"the {steps} steps of the series leave no window of {least} in each part: {fix}")
    borders = pairwise([0, *np.cumsum(_sizes(steps, settings)).tolist()])
    starts = [np.arange(first, last - window - ahead + 1, window) for first, last in borders]
    counts = np.cumsum([len(own) for own in starts])
    return Divided(np.concatenate(starts), np.full(counts[-1], window), np.split(np.arange(counts[-1]), counts[:-1]))
