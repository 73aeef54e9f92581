"""DTRIV: EXPRNN around a base that moves (dynamic trivialisation).

    W = exp(A) B;   after every K steps B <- exp(A) B, A <- 0

M. Lezcano-Casado, "Trivializations for Gradient-Based Optimization on Manifolds", NeurIPS 2019. The base starts at A's
initial value. K = 1 is Riemannian gradient descent; without K the base never moves. After every M moves B is replaced
by the nearest orthogonal matrix. The optimiser's averages are kept across moves.

It matters on which side B stands, because the optimiser works on each entry of A. The program has states as rows and
multiplies them by base exp(A), the transpose of exp(-A) base^T. The paper has B on the left of exp(A), for states as
columns (D-40).
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from orthobench.matrices.exponential import exponential
from orthobench.model import Count, Learns, Signature

from .exprnn import EXPRNN, EXPRNNSettings


class DTRIVSettings(EXPRNNSettings):
    rebase_every: Count | None = Field(
        100, description="K, optimiser steps between changes of the base point; none: the base point stays"
    )
    project_every: Count = Field(
        100, description="M, changes of the base point between its projections onto the orthogonal matrices"
    )


class DTRIV(EXPRNN):
    version = 2
    title = "DTRIV"
    paper = "Lezcano-Casado. Trivializations for Gradient-Based Optimization on Manifolds. NeurIPS 2019"
    cites = "lezcano2019trivializations"
    look = "dashdot triangle-up"
    family = "orthogonal"
    learns = Learns("copying", 0.2, gate={"recurrent_learning_rate": 2e-3})
    Settings = DTRIVSettings
    waits = "the number of steps, which is a tensor of the model, decides when the base point moves"

    base: Tensor
    steps: Tensor

    def __init__(self, settings: DTRIVSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.rebase_every, self.project_every = settings.rebase_every, settings.project_every
        self.register_buffer("base", torch.eye(settings.hidden_size))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        with torch.no_grad():
            self._rebase()

    def weight(self) -> Tensor:
        return exponential(self.skew_entries, self.hidden_size) @ self.base

    @property
    def needs_step_end(self) -> bool:
        return self.rebase_every is not None

    def after_step(self) -> None:
        self.steps += 1
        if self.rebase_every is None or self.steps % self.rebase_every:
            return
        self._rebase()
        if self.steps // self.rebase_every % self.project_every == 0:
            left, _, right = torch.linalg.svd(self.base)
            self.base.copy_(left @ right)

    def _rebase(self) -> None:
        self.base.copy_(self.weight())
        self.skew_entries.zero_()
