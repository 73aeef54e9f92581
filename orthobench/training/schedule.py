"""The learning rate of an iteration: warm-up, cosine, decays.

A rate is a function of the iteration alone, so a resumed run has the rates of an uncut one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orthobench.task import TrainingSettings


def learning_rate(rate: float, iteration: int, total: int, training: TrainingSettings) -> float:
    """Return the learning rate of an iteration, before the decays of epochs and plateaus.

    With w iterations of warm-up, n iterations in all, the rate r and the final rate f, iteration i from 0 on has

        r_i = r i / w                                       for i < w
        r_i = f + (r - f) (1 + cos(pi (i - w) / (n - w))) / 2   from then on, with a cosine; else r

    as in the programs of xLSTM (`experiments/lr_scheduler.py`) and SLiCE (`train.py`). So the first step of a warm-up
    has the rate 0. A final rate above r counts as r: no rate rises at the end.

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
    """Return the iterations of the warm-up: a share of all is rounded down."""
    return int(training.warmup * total if training.warmup < 1 else training.warmup)


def length_dependence(training: Mapping[str, Any]) -> str:
    """Return the setting by which the rates of a run depend on its length, such as "schedule=cosine"; "" without one.

    Args:
        training: the settings of training in canonical form.
    """
    if training.get("schedule", "constant") != "constant":
        return f"schedule={training['schedule']}"
    warmup = training.get("warmup", 0.0)
    return f"warmup={warmup:g}, a share of all iterations" if 0 < warmup < 1 else ""
