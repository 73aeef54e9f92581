"""DeltaNet: memories corrected by the delta rule, whose transitions are generalised Householder matrices.

    S_t = (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T,   y_t = q_t^T S_t

q_t and k_t (of unit length), v_t, and beta_t in (0, 1) depend on the inputs; each head has a matrix S. S. Yang, B.
Wang, Y. Zhang, Y. Shen, Y. Kim, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", NeurIPS
2024; introduced by I. Schlag, K. Irie, J. Schmidhuber, "Linear Transformers Are Secretly Fast Weight Programmers", ICML
2021. With `negative_eigenvalues` beta_t is in (0, 2), and a step can reflect: R. Grazzi, J. Siems, A. Zela, J. Franke,
F. Hutter, M. Pontil, "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues", ICLR 2025.

hidden_size n is the number of heads times the size of a value. `models/_delta.py` describes the layer. By default there
is no output gate, as in the library's layer of this name.
"""

from __future__ import annotations

from pydantic import Field

from orthobench.model import Learns

from ._delta import DeltaModel, DeltaSettings
from ._eigenvalues import EIGENVALUES


class DeltaNetSettings(DeltaSettings):
    output_gate: bool = Field(False, description="multiply the normalised memory outputs by SiLU(G x)")


class DeltaNet(DeltaModel):
    version = 1
    title = "DeltaNet"
    paper = "Yang et al. Parallelizing Linear Transformers with the Delta Rule over Sequence Length. NeurIPS 2024"
    cites = "yang2024, schlag2021, grazzi2025"
    look = "longdashdot square"
    family = "linear"
    learns = Learns("adding", 0.1)
    second_axis = EIGENVALUES
    Settings = DeltaNetSettings
