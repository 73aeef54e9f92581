"""A probe with a number and a vector."""

from __future__ import annotations

import torch

from orthobench.probe import Probe, ProbeResult


class Activity(Probe):
    title, paper = "mean absolute value of the final state", "none"

    @torch.no_grad()
    def __call__(self, context):
        _, (h, *_) = context.model(context.batch.inputs)
        units = h.abs().mean(0)
        return ProbeResult({"activity/mean": float(units.mean())}, {"activity/unit": units.tolist()})
