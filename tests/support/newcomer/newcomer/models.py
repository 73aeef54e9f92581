"""Two models: one on the operation of orthobench, one with a loop of its own."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import nn

from newcomer.starts import small_weight
from orthobench.model import Model, ModelSettings
from orthobench.recurrence import TANH, recurrence


class LeakySettings(ModelSettings):
    leak: float = Field(0.5, gt=0, le=1, description="share of the new state in each step")


class Leaky(Model):
    """h_t = tanh(W h_{t-1} + U x_t) with W = (1 - leak) I + leak V, from V = 0."""

    title, paper = "leaky RNN", "none"
    Settings = LeakySettings

    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        self.leak = settings.leak
        self.input_weight = small_weight(settings.hidden_size, signature.input_size, generator)
        self.inner_weight = nn.Parameter(torch.zeros(settings.hidden_size, settings.hidden_size))

    def weight(self):
        return (1 - self.leak) * torch.eye(self.hidden_size) + self.leak * self.inner_weight

    def states(self, inputs, state, trace):
        return recurrence(nn.functional.linear(inputs, self.input_weight), self.weight(), state, trace, TANH)

    def recurrent_matrices(self):
        return {"W": self.weight()}


class Looped(Model):
    """h_t = sin(W h_{t-1} + U x_t), in a loop of its own."""

    title, paper = "sine RNN", "none"

    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        self.input_weight = small_weight(settings.hidden_size, signature.input_size, generator)
        self.recurrent_weight = small_weight(settings.hidden_size, settings.hidden_size, generator)

    def states(self, inputs, state, trace):
        (h,) = state
        steps = []
        for x in inputs:
            h = torch.sin(h @ self.recurrent_weight.T + x @ self.input_weight.T)
            steps.append(h)
        if trace is not None:
            trace.watch("h", steps)
        return torch.stack(steps), (h,)

    def recurrent_matrices(self):
        return {"W": self.recurrent_weight}
