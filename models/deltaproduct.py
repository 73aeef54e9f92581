"""DeltaProduct: several corrections of the memories at each step, so that a step can be any product of reflections.

    S_t = H_r ... H_2 H_1 a_t S_{t-1} + what the values add,   H_j = I - beta_j k_j k_j^T,   y_t = q_t^T S_t

For j = 1 to r: S <- S + beta_j k_j (v_j - S^T k_j)^T. Keys, values and betas of each j depend on x_t. With
`negative_eigenvalues` beta_j is in (0, 2). At 2, H_j is a reflection, and the product of two reflections is a rotation.
Without `decay`, a_t = 1; with it, a_t is computed as in Gated DeltaNet. J. Siems, T. Carstensen, A. Zela, F. Hutter, M.
Pontil, R. Grazzi, "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products", NeurIPS 2025.

hidden_size n is the number of heads times the size of a value. `models/_delta.py` describes the layer.
"""

from __future__ import annotations

from pydantic import Field

from orthobench.model import Count, Learns

from ._delta import DeltaModel, DeltaSettings


class DeltaProductSettings(DeltaSettings):
    negative_eigenvalues: bool = Field(
        True, description="beta = 2 sigmoid(.) instead of sigmoid(.): a step's eigenvalues reach from 1 to -1, not to 0"
    )
    householders: Count = Field(2, description="r, corrections of the memory at each step")
    decay: bool = Field(False, description="let the memories decay, depending on the inputs: Gated DeltaProduct")

    @property
    def steps_of_token(self) -> int:
        return self.householders

    @property
    def has_decay(self) -> bool:
        return self.decay


class DeltaProduct(DeltaModel):
    version = 1
    title = "DeltaProduct"
    paper = "Siems et al. DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products. NeurIPS 2025"
    cites = "siems2025"
    look = "longdashdot diamond"
    family = "linear"
    learns = Learns("adding", 0.2, {"epochs": 10})
    cost = "r = 2 keys and values per step: (2r + 1)n features pass through a convolution and a memory"
    Settings = DeltaProductSettings
