r"""Products of reflections W = H(u_1) ... H(u_k), H(u) = I - 2 u u^T / (u^T u) (oRNN; Spectral RNN).

The product is I - V S^{-1} V^T with V = [u_1 ... u_k] and S upper triangular, S = triu(V^T V, 1) + diag(V^T V) / 2
(the UT transform; Joffrain et al., ACM TOMS 32, 2006): three matrix products and a triangular solve, where reflection
by reflection is k passes over the matrix. torch's `householder_product` asks for vectors that are 1 in their own row,
and a vector whose entry there is near zero cannot be scaled to that.
"""

from __future__ import annotations

import torch
from torch import Tensor


def householder_product(vectors: Tensor) -> Tensor:
    """H(u_1) H(u_2) ... H(u_k) `[n, n]` of the columns `[n, k]`, none of them zero; k = 0 gives the identity."""
    n, k = vectors.shape
    identity = torch.eye(n, dtype=vectors.dtype, device=vectors.device)
    if k == 0:
        return identity
    gram = vectors.T @ vectors
    s = gram.triu(1) + torch.diag(gram.diagonal() / 2)
    product: Tensor = identity - vectors @ torch.linalg.solve_triangular(s, vectors.T, upper=True)
    return product
