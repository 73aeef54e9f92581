"""Arjovsky's unitary matrix W = D_3 R_2 F^-1 D_2 P R_1 F D_1, applied in O(n log n): the uRNN of restricted capacity.

D_k = diag(e^{i theta_k}), R_k = I - 2 u_k u_k* / u_k* u_k, F the unitary Fourier transform, P a permutation. The
rightmost factor acts first (Arjovsky, Shah, Bengio, ICML 2016, equation 6). The program stores the conjugates of these
u_k.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from orthobench.matrices.complex_form import as_complex


def draw_unitary_chain(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw theta `[3, n]` ~ U(-pi, pi), u `[2, n, 2]` Glorot-uniform as `[2, 2n]`, and P `[n]`, as in the program."""
    phases = torch.empty(3, n).uniform_(-math.pi, math.pi, generator=generator)
    reflections = nn.init.xavier_uniform_(torch.empty(2, 2 * n), generator=generator).view(2, n, 2)
    return phases, reflections, torch.randperm(n, generator=generator)


def reflect(rows: Tensor, unit: Tensor) -> Tensor:
    """Map rows h `[..., n]` to (I - 2 u u*) h; u `[n]` has length 1."""
    return rows - 2 * (rows @ unit.conj()).unsqueeze(-1) * unit


def unitary_chain(phases: Tensor, reflections: Tensor, permutation: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function that maps complex rows h `[..., n]` to h W^T.

    Args:
        phases: theta_1, theta_2, theta_3, `[3, n]`.
        reflections: u_1 and u_2, `[2, n, 2]` with real and imaginary parts last, of any length but 0.
        permutation: entry j of P h is entry permutation[j] of h, `[n]`.
    """
    d1, d2, d3 = torch.polar(torch.ones_like(phases), phases).unbind(0)
    u1, u2 = nn.functional.normalize(as_complex(reflections), dim=-1).unbind(0)

    def apply(rows: Tensor) -> Tensor:
        rows = reflect(torch.fft.fft(rows * d1, norm="ortho"), u1)
        return d3 * reflect(torch.fft.ifft(d2 * rows[..., permutation], norm="ortho"), u2)

    return apply


def unitary_chain_matrix(phases: Tensor, reflections: Tensor, permutation: Tensor) -> Tensor:
    """Return W, complex `[n, n]`."""
    identity = torch.eye(phases.shape[-1], dtype=phases.dtype.to_complex(), device=phases.device)
    transposed: Tensor = unitary_chain(phases, reflections, permutation)(identity)
    return transposed.T
