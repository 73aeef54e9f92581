"""Gated DeltaProduct: DeltaProduct whose memories also decay, at a rate that depends on the inputs.

    S_t = H_r ... H_2 H_1 a_t S_{t-1} + what the values add,   H_j = I - beta_j k_j k_j^T,   y_t = q_t^T S_t
    a_t = exp(-exp(A) softplus(D x_t + d))

This is `deltaproduct` with `decay=true`, under the name that papers give it. J. Siems, T. Carstensen, A. Zela, F.
Hutter, M. Pontil, R. Grazzi, "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products", NeurIPS
2025. The decay is Gated DeltaNet's (S. Yang, J. Kautz, A. Hatamizadeh, ICLR 2025), and where it is 1 the model is
DeltaProduct.

hidden_size n is the number of heads times the size of a value. The authors' layer (`fla/layers/gated_deltaproduct.py`)
has values twice as long as keys, which is `key_size` = n / (2 heads); here both are n / heads. `models/_delta.py`
describes the layer.
"""

from __future__ import annotations

from pydantic import Field

from orthobench.model import Learns

from .deltaproduct import DeltaProduct, DeltaProductSettings


class GatedDeltaProductSettings(DeltaProductSettings):
    decay: bool = Field(True, description="let the memories decay, depending on the inputs; false: DeltaProduct")


class GatedDeltaProduct(DeltaProduct):
    version = 1
    title = "Gated DeltaProduct"
    cites = "siems2025, yang2025"
    look = "longdashdot diamond-open"
    learns = Learns("adding", 0.2, {"epochs": 10})
    Settings = GatedDeltaProductSettings
