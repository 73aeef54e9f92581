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
from orthobench.recurrence.plain_tensors import is_on_gpu

from .exprnn import EXPRNN, EXPRNNSettings

_NEWTON_STEPS = 3  # a distance of 0.01 from orthogonal becomes 1e-16


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

    base: Tensor
    steps: Tensor

    def __init__(self, settings: DTRIVSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.rebase_every, self.project_every = settings.rebase_every, settings.project_every
        self.register_buffer("base", torch.eye(settings.hidden_size))
        # A buffer, because a resumed run has to go on counting.
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
        if self.rebase_every is None:
            return
        if is_on_gpu(self.steps):
            self._rebase_if_due(self.rebase_every)
        elif self.steps % self.rebase_every == 0:
            self._rebase()
            if self.steps // self.rebase_every % self.project_every == 0:
                left, _, right = torch.linalg.svd(self.base)
                self.base.copy_(left @ right)

    def _rebase(self) -> None:
        self.base.copy_(self.weight())
        self.skew_entries.zero_()

    def _rebase_if_due(self, every: int) -> None:
        """Compute the next base point in every step, and take it over when it is due, without waiting for a GPU.

        A base that rounding has moved from the orthogonal matrices is so near to them that Newton's iteration for the
        nearest one doubles its digits each time.
        """
        moves, rest = self.steps // every, self.steps % every
        base = nearest = self.weight()
        for _ in range(_NEWTON_STEPS):
            nearest = torch.addmm(nearest, nearest, nearest.T @ nearest, beta=1.5, alpha=-0.5)
        base = torch.where(moves % self.project_every == 0, nearest, base)
        self.base.copy_(torch.where(rest == 0, base, self.base))
        self.skew_entries.copy_(torch.where(rest == 0, 0.0, self.skew_entries))
