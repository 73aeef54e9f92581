"""Gated DeltaNet: DeltaNet whose memories also decay, at a rate that depends on the inputs.

    S_t = a_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T,   y_t = q_t^T S_t
    a_t = exp(-exp(A) softplus(D x_t + d))

Each head has its own numbers A and d; exp(A) starts as U(0, 16), and softplus(d) log-uniform in [0.001, 0.1]. S. Yang,
J. Kautz, A. Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", ICLR 2025. hidden_size n is the
number of heads times the size of a value. `models/_delta.py` describes the layer.
"""

from __future__ import annotations

from orthobench.model import Learns

from ._delta import DeltaModel, DeltaSettings
from ._eigenvalues import EIGENVALUES


class GatedDeltaNetSettings(DeltaSettings):
    @property
    def has_decay(self) -> bool:
        return True


class GatedDeltaNet(DeltaModel):
    version = 1
    title = "Gated DeltaNet"
    paper = "Yang, Kautz, Hatamizadeh. Gated Delta Networks: Improving Mamba2 with Delta Rule. ICLR 2025"
    cites = "yang2025"
    look = "longdashdot triangle-up"
    family = "linear"
    learns = Learns("adding", 0.2)
    second_axis = EIGENVALUES
    Settings = GatedDeltaNetSettings
