r"""Skew-symmetric matrices A^T = -A, and their scaled Cayley transform W = (I + A)^{-1} (I - A) D, D = diag(+-1).

A is given by its n (n - 1) / 2 entries above the diagonal, row by row. Every orthogonal matrix is reached for a
suitable D with all |a_ij| <= 1 (Helfrich, Willmott, Ye, ICML 2018, theorem 3.1). The derivative is their theorem 3.2:
with G = dL/dW and V = (I + A)^{-T} G (D + W^T), dL/dA = V^T - V. Here dL/dA_ij is the derivative when a_ij grows by d
and a_ji by -d at once.

With M = (I + A)^{-1} the program computes W = (2 M - I) D and V = 2 M^T G D M^T. The inverse is computed in float64, so
that W is orthogonal to the rounding of its own type; the gradient takes two products in that type.

torch's `parametrizations.orthogonal` has a Cayley map without D, so its W never has an eigenvalue -1. It computes in
the parameter's own precision and differentiates through the solve.

A matrix whose Hermitian part is positive definite, such as I + A, has LU factors without pivoting, and so do its Schur
complements, because their Hermitian parts are positive definite too. The entries of the factors grow by at most about
the norm of the skew part (Golub, Van Loan, Linear Algebra Appl. 28, 1979). In float64 the resulting error is far below
the rounding of W's own type. On a GPU the search for a pivot in each column costs more than the arithmetic, because it
waits for the whole column. On the CPU torch has no factorisation without pivoting, so a large matrix is inverted
blockwise, by halves. The products of halves take less time than LAPACK's inverse, and no rows need to be exchanged
between the halves.

Hand-written derivatives, here and in the other modules, take less time and memory than autograd's. Where such a
derivative is differentiated again, and where programs are traced or transformed, autograd differentiates the map in
plain operations of torch instead (`applied`, `derivative_of`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orthobench.recurrence.backends import outside_autocast
from orthobench.recurrence.cpu import call_c, cayley
from orthobench.recurrence.plain_tensors import are_plain, in_torch, needs_torch
from orthobench.recurrence.projection import matrix_product

Plain = Callable[..., Tensor]
"""A map in plain operations, of the tensors that an autograd function saves first, and of its `ctx.options`."""


def applied(function: type[torch.autograd.Function], plain: Plain, *inputs: Any) -> Tensor:
    """Return the function's value at these inputs, by the plain map where programs are traced or transformed.

    The matrix has the type of the first input, under autocast too.
    """
    with outside_autocast(inputs[0].device):
        is_usual = (torch.compiler.is_dynamo_compiling() or are_plain(inputs)) and not needs_torch()
        result: Tensor = function.apply(*inputs) if is_usual else plain(*inputs)
    return result


def derivative_of(plain: Plain, tensors: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a hand-written `backward`, so that it can be differentiated; it is never computed under autocast.

    Args:
        plain: the same map.
        tensors: the number of its arguments that are tensors; the other ones are `ctx.options`, if there are any.
    """

    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(backward)
        def run(ctx: Any, gradient: Tensor) -> Any:
            with outside_autocast(gradient.device):
                if not torch.is_grad_enabled():
                    return backward(ctx, gradient)
                options, inputs = getattr(ctx, "options", ()), ctx.saved_tensors[:tensors]
                product: Callable[..., Any] = torch.func.vjp(lambda *each: plain(*each, *options), *inputs)[1]
                return *product(gradient), *[None for _ in options]

        return run

    return decorate


def index_table(
    count: Callable[..., int],
) -> Callable[[Callable[..., np.ndarray]], Callable[..., Tensor]]:
    """Decorate a function from sizes to indices, so that it takes a device too and returns a cached tensor.

    The latest 16 tensors are kept. Tensors created while a program is traced or transformed are not, because later
    calls would get traced tensors.

    Args:
        count: the number of indices for these sizes; on the device meta, which has only shapes, none are computed.
    """

    def decorate(make: Callable[..., np.ndarray]) -> Callable[..., Tensor]:
        @torch.inference_mode(mode=False)  # because autograd saves no tensor of this mode, not even later
        def table(*sizes: int, device: torch.device) -> Tensor:
            if device.type == "meta":
                return torch.empty(count(*sizes), dtype=torch.int64, device=device)
            return torch.from_numpy(make(*sizes)).to(device)

        cached = lru_cache(maxsize=16)(table)

        @wraps(make)
        def tensor(*sizes: int, device: torch.device) -> Tensor:
            sizes = tuple(map(int, sizes))  # `torch.jit.trace` turns sizes into tensors
            return table(*sizes, device=device) if needs_torch() else cached(*sizes, device=device)

        return tensor

    return decorate


@index_table(lambda n: n * (n - 1) // 2)
def above_diagonal(n: int) -> np.ndarray:
    """Return the flat indices in `[n, n]` of the entries above the diagonal, which gather faster than pairs."""
    rows, columns = np.triu_indices(n, 1)
    return rows * n + columns


@index_table(lambda n: n * (n - 2) // 2)
def above_blocks(n: int) -> np.ndarray:
    """Return the flat indices in `[n, n]`, n even, of the entries above the diagonal blocks of two rows."""
    rows, columns = np.triu_indices(n, 1)
    return (rows * n + columns)[rows // 2 < columns // 2]


def skew(upper: Tensor, n: int) -> Tensor:
    """Return the skew-symmetric `[n, n]` matrix with these entries above its diagonal."""
    matrix = upper.new_zeros(n * n).scatter_(0, above_diagonal(n, device=upper.device), upper).view(n, n)
    return matrix - matrix.T


def upper_entries(matrix: Tensor) -> Tensor:
    """Return the entries above the diagonal, row by row, `[n (n - 1) / 2]`."""
    n = matrix.shape[-1]
    return matrix.reshape(-1).index_select(0, above_diagonal(n, device=matrix.device))


@index_table(lambda n, width: n * width - width * (width + 1) // 2)
def _in_band(n: int, width: int) -> np.ndarray:
    """Return the indices of the upper entries that are at most `width` columns from the diagonal."""
    rows, columns = np.triu_indices(n, 1)
    return np.flatnonzero(columns - rows <= width)


def band_entries(upper: Tensor, n: int, width: int) -> Tensor:
    """Return the upper entries that are at most `width` columns from the diagonal, row by row."""
    return upper.index_select(0, _in_band(n, width, device=upper.device))


def from_band(entries: Tensor, n: int, width: int) -> Tensor:
    """Return all upper entries `[n (n - 1) / 2]` of the matrix with these entries in its band and zeros outside."""
    return entries.new_zeros(n * (n - 1) // 2).scatter_(0, _in_band(n, width, device=entries.device), entries)


def block_rotation_entries(values: Tensor, n: int) -> Tensor:
    """Return the upper entries of A with diagonal blocks [[0, v_j], [-v_j, 0]]; an odd last row is zero."""
    matrix = values.new_zeros(n, n)
    even = torch.arange(0, 2 * (n // 2), 2)
    matrix[even, even + 1] = values
    return upper_entries(matrix)


_LEAST = 400  # rows up to which LAPACK inverts the whole matrix


def lu_factors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the LU factors and pivots of `[n, n]`, whose Hermitian part is positive definite."""
    # The `_ex` form, because the plain one waits for the GPU to read an error code.
    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix, pivot=not matrix.is_cuda)
    return factors, pivots


def inverse_of_shifted(a: Tensor) -> Tensor:
    """Return (I + A)^{-1} `[n, n]` of a skew-Hermitian A; the Hermitian part of I + A is I."""
    identity = torch.eye(len(a), dtype=a.dtype, device=a.device)
    shifted = a + identity  # in place, `torch.func.linearize` would add it to its constants at every call
    if not a.is_cuda:
        return _inverse(shifted)
    solved: Tensor = torch.linalg.lu_solve(*lu_factors(shifted), identity)
    return solved


def _inverse(matrix: Tensor) -> Tensor:
    """Return the inverse `[n, n]` of a matrix whose Hermitian part is positive definite.

    Its blocks are [[P, B], [C, Q]]. S = Q - C P^{-1} B is the Schur complement, and the inverse is

        [P^{-1} + P^{-1} B S^{-1} C P^{-1}    -P^{-1} B S^{-1}]
        [-S^{-1} C P^{-1}                      S^{-1}         ]
    """
    n = matrix.shape[0]
    if n <= _LEAST:
        inverse: Tensor = torch.linalg.inv_ex(matrix).inverse
        return inverse
    half = (n // 2 + 31) // 32 * 32  # multiples of the vector width make products faster
    (p, b), (c, q) = ((part[:, :half], part[:, half:]) for part in (matrix[:half], matrix[half:]))
    p = _inverse(p)
    right, left = p @ b, c @ p
    s = _inverse(torch.addmm(q, c, right, alpha=-1))
    right = right @ s
    inverse = torch.empty_like(matrix)
    inverse[:half, :half] = torch.addmm(p, right, left)
    inverse[:half, half:] = -right
    inverse[half:, :half] = -(s @ left)
    inverse[half:, half:] = s
    return inverse


def _plain(upper: Tensor, signs: Tensor) -> Tensor:
    inverse = inverse_of_shifted(skew(upper, signs.numel()).double())
    return (2 * inverse * signs - torch.diag(signs)).to(upper.dtype)


def _is_in_c(*tensors: Tensor) -> bool:
    """Return whether C computes all but the inverse, in the same numbers as torch's operations and `matrix_product`."""
    fit = all(each.dtype is torch.float32 and each.is_cpu and each.numel() for each in tensors) and are_plain(tensors)
    return fit and not in_torch() and not call_c.missing()


class _ScaledCayley(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, upper: Tensor, signs: Tensor) -> Tensor:
        n = signs.shape[0]
        if upper.shape == (n * (n - 1) // 2,) and _is_in_c(upper, signs):
            weight, kept = cayley.cayley_weight(_inverse(cayley.shifted_skew(upper, n)), signs.contiguous())
            ctx.save_for_backward(upper, signs, kept.T, signs.contiguous())
            return weight
        inverse = inverse_of_shifted(skew(upper, n).double())
        # Copied also if the type is the same, because the next line changes the inverse in place.
        ctx.save_for_backward(upper, signs, inverse.to(upper.dtype, copy=True), signs.to(upper.dtype))
        inverse *= 2 * signs.double()  # in place: fresh memory would cost more time than the arithmetic
        inverse.diagonal().sub_(signs)
        return inverse.to(upper.dtype).contiguous()

    @staticmethod
    @derivative_of(_plain, tensors=2)
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        _, _, inverse, signs = ctx.saved_tensors
        if _is_in_c(gradient, inverse) and inverse.stride(0) == 1:
            return cayley.cayley_gradient(gradient, inverse.T, signs), None
        v = matrix_product(matrix_product(inverse.T, 2 * gradient * signs), inverse.T)
        return upper_entries(v.T - v), None


def scaled_cayley(upper: Tensor, signs: Tensor) -> Tensor:
    """Return W `[n, n]`, orthogonal to the rounding of its own type.

    Args:
        upper: the entries of A above its diagonal, `[n (n - 1) / 2]`.
        signs: the diagonal of D, `[n]`, each +1 or -1.
    """
    return applied(_ScaledCayley, _plain, upper, signs)


def minus_ones_last(n: int, negative_ones: int) -> Tensor:
    """Return the diagonal of D `[n]`: +1, then `negative_ones` times -1, in the order of the scoRNN program."""
    signs = torch.ones(n)
    signs[n - negative_ones :] = -1
    return signs
