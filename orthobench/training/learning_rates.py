"""The learning rates of a run: warm-up, cosine.

A rate depends only on the iteration, so a resumed run has the same rates as an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orthobench.task import TrainingSettings


def learning_rate(rate: float, iteration: int, total: int, training: TrainingSettings) -> float:
    """Return the learning rate of an iteration, before the decays of epochs and plateaus.

    With w iterations of warm-up, n iterations in total, rate r and final rate f, iteration i (counted from 0) has

        r_i = r i / w                                       for i < w
        r_i = f + (r - f) (1 + cos(pi (i - w) / (n - w))) / 2   from then on, with a cosine; else r

    as in the programs of xLSTM (`experiments/lr_scheduler.py`) and SLiCE (`train.py`). The first step of a warm-up thus
    has the rate 0. A final rate above r counts as r, so that no rate rises at the end.

    Args:
        rate: the learning rate r of a group of parameters.
        total: iterations of the whole run, n.
    """
    warmup = warmup_iterations(total, training)
    if iteration < warmup:
        return rate * iteration / warmup
    if training.schedule == "constant":
        return rate
    final = rate * training.final_share if training.final_rate is None else min(training.final_rate, rate)
    share = (iteration - warmup) / (total - warmup)
    return final + (rate - final) * (1 + math.cos(math.pi * share)) / 2


def warmup_iterations(total: int, training: TrainingSettings) -> int:
    """Return the number of warm-up iterations, rounded down if it is a fraction of all iterations."""
    return int(training.warmup * total if training.warmup < 1 else training.warmup)


def length_dependence(training: Mapping[str, Any]) -> str:
    """Return the setting that makes a run's rates depend on its length, such as "schedule=cosine", or "" without one.

    Args:
        training: the training settings in canonical form.
    """
    if training.get("schedule", "constant") != "constant":
        return f"schedule={training['schedule']}"
    warmup = training.get("warmup", 0.0)
    return f"warmup={warmup:g}, a share of all iterations" if 0 < warmup < 1 else ""
