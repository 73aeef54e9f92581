r"""Products of reflections W = H(u_1) ... H(u_k), H(u) = I - 2 u u^T / (u^T u) (oRNN; Spectral RNN).

The product is I - V S^{-1} V^T with V = [u_1 ... u_k] and S upper triangular, S = triu(V^T V, 1) + diag(V^T V) / 2 (the
UT transform; Joffrain et al., ACM TOMS 32, 2006). It takes three matrix products and a triangular solve, whereas single
reflections take k passes over the matrix. The derivative, with Y = V S^{-1} and P = G V S^{-T} for G = dL/dW, is

    dL/dV = -P - G^T Y + V (K + K^T),   K = triu(Y^T P, 1) + diag(Y^T P) / 2.

torch's `householder_product` needs vectors that are 1 in their own row. A vector whose entry in this row is near zero
cannot be scaled like that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from orthobench.matrices.aligned import aligned
from orthobench.matrices.skew import applied, derivative_of, index_table


def _transform(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the product, S, and S^{-1} V^T."""
    gram = vectors.T @ vectors
    lengths = gram.diagonal()
    triangle = _upper(gram) + torch.diag((lengths == 0).to(gram.dtype))  # a vector of zeros gives the identity
    solved = torch.linalg.solve_triangular(triangle, vectors.T, upper=True)
    product: Tensor = (vectors @ solved).neg_()
    product.diagonal().add_(1)
    return product, triangle, solved


def _plain(vectors: Tensor) -> Tensor:
    return _transform(vectors)[0]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        product, triangle, solved = _transform(vectors)
        ctx.save_for_backward(vectors, triangle, solved)
        return product

    @staticmethod
    @derivative_of(_plain, tensors=1)
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        vectors, triangle, solved = ctx.saved_tensors
        y = torch.linalg.solve_triangular(triangle, vectors, upper=True, left=False)
        p = gradient @ solved.T
        k = _upper(y.T @ p)
        derivative = torch.addmm(p, gradient.T, y).neg_()
        return derivative.addmm_(vectors, k + k.T)


def _upper(matrix: Tensor) -> Tensor:
    """Return the entries above the diagonal and half the diagonal, `[k, k]`."""
    upper = matrix.triu()
    upper.diagonal().div_(2)
    return upper


def householder_product(vectors: Tensor) -> Tensor:
    """Return H(u_1) H(u_2) ... H(u_k) `[n, n]` of the columns `[n, k]`; a column of zeros gives the identity."""
    n, k = vectors.shape
    if k == 0:
        return torch.eye(n, dtype=vectors.dtype, device=vectors.device)
    return applied(_Product, _plain, aligned(vectors))[:n, :n]


# In vectors of falling support, u_j is zero in its first j - 1 entries; the others are parameters, row by row. Their
# number is the dimension of the set of products of k reflections, plus k for the lengths of the vectors.


def falling_size(n: int, k: int) -> int:
    """Return the number of entries of k such vectors of length n."""
    return n * k - k * (k - 1) // 2


@index_table(falling_size)
def _falling_positions(n: int, k: int) -> np.ndarray:
    rows, columns = np.tril_indices(n, m=k)
    return rows * k + columns


def falling_vectors(entries: Tensor, n: int, k: int) -> Tensor:
    """Return u_1 ... u_k, the columns of a lower triangular `[n, k]`."""
    return entries.new_zeros(n * k).scatter_(0, _falling_positions(n, k, device=entries.device), entries).view(n, k)


def falling_entries(vectors: Tensor) -> Tensor:
    """Return the entries of the columns of a lower triangular `[n, k]`."""
    return vectors.reshape(-1).index_select(0, _falling_positions(*vectors.shape, device=vectors.device))


def unit_entries(entries: Tensor, n: int, k: int) -> Tensor:
    """Return the entries with every vector scaled to length 1; vectors of zeros do not change."""
    vectors = nn.functional.normalize(falling_vectors(entries, n, k), dim=0)
    return falling_entries(vectors)
