r"""Keep the square weights of any module orthogonal, by `torch.nn.utils.parametrize`.

| kind | W | trained |
| --- | --- | --- |
| cayley | (I + A)^{-1} (I - A) D, as in scoRNN | A above its diagonal |
| exponential | exp(A) D, as in EXPRNN | A above its diagonal |
| householder | H(u_1) ... H(u_k) D, as in oRNN | the u_j |
| dtriv | exp(A) B, as in DTRIV | A above its diagonal |

D is a fixed diagonal of signs. Together with the k = n - 1 reflections, or with A, it reaches every orthogonal matrix.

The weight starts at the orthogonal matrix Q that is nearest to it. For the Cayley transform Q + D is eliminated without
pivoting. Each sign of D is that of its pivot, so every pivot is at least 1 in size (Ballard et al., "Reconstructing
Householder Vectors from Tall-Skinny QR", IPDPS 2014). The logarithm of Q D follows from its real Schur form, whose
blocks are rotations.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
import scipy.linalg
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from orthobench.errors import UsageError, unknown
from orthobench.matrices.exponential import exponential
from orthobench.matrices.householder import falling_entries, falling_vectors, householder_product
from orthobench.matrices.skew import scaled_cayley, upper_entries
from orthobench.recurrence.backends import outside_autocast

Constraint = Literal["cayley", "exponential", "householder", "dtriv"]


def constrain(
    module: nn.Module, name: str, constraint: Constraint = "cayley", reflections: int | None = None
) -> nn.Module:
    """Keep a weight of a module orthogonal while any optimiser of torch trains it.

    The weight starts at the nearest orthogonal matrix, and so does one that is assigned to it later. A stack of square
    blocks `[k * n, n]`, such as the gates of `torch.nn.GRU`, is constrained block by block. Create the optimiser
    afterwards, because the weight's place is taken by another parameter, `module.parametrizations[name].original`. A
    module that shared the weight keeps the old parameter, free and as it was.

    Args:
        module: any module; it is changed.
        name: the name of a weight `[n, n]` or `[k * n, n]`, such as "weight_hh_l0".
        constraint: the map that computes the weight; see the table of the module `orthobench.matrices.constrain`.
        reflections: for "householder" the number k of reflections; None: n - 1, for all orthogonal matrices. With
            fewer, the weight keeps the first k columns of its start.

    Returns:
        The module.

    Raises:
        UsageError: the weight does not exist, is not square or is not finite, or an argument is invalid.
    """
    kinds = get_args(Constraint)
    if constraint not in kinds:
        raise unknown("constraint", constraint, kinds)
    weights = [own for own, _ in module.named_parameters(recurse=False, remove_duplicate=False)]
    if parametrize.is_parametrized(module, name):
        raise UsageError(f"{name} has a parametrisation already: constrain another weight, or a new module")
    if name not in weights:
        raise unknown("weight", name, weights)
    weight: Tensor = getattr(module, name)
    if weight.dim() != 2 or not weight.numel() or len(weight) % weight.shape[1]:
        raise UsageError(f"{name} {list(weight.shape)} should be square, [n, n], or a stack of squares, [k * n, n]")
    if not weight.isfinite().all():
        raise UsageError(f"{name} should have finite numbers, because no orthogonal matrix is nearest to it")
    blocks, n = len(weight) // weight.shape[1], weight.shape[1]
    most = max(1, n - 1)
    is_whole = isinstance(reflections, Integral)
    if reflections is not None and (constraint != "householder" or not is_whole or not 1 <= reflections <= most):
        raise UsageError(f"reflections={reflections} should be from 1 to {most}, for constraint='householder' alone")
    kind = {"cayley": _Cayley, "exponential": _Exponential, "householder": _Householder, "dtriv": _Trivialisation}
    options = {"reflections": n - 1 if reflections is None else int(reflections)} if constraint == "householder" else {}
    # torch would give the parameter itself the entries, also in modules that share it.
    setattr(module, name, nn.Parameter(weight.detach().clone(), requires_grad=weight.requires_grad))
    parametrize.register_parametrization(module, name, kind[constraint](blocks, n, weight, **options))
    return module


def rebase(module: nn.Module, name: str) -> None:
    """Move the base of a weight with the constraint "dtriv" to where the weight is, as DTRIV does after some steps.

    Raises:
        UsageError: the weight does not have this constraint.
    """
    parametrizations: Any = getattr(module, "parametrizations", {})
    if not parametrize.is_parametrized(module, name) or not isinstance(parametrizations[name][0], _Trivialisation):
        raise UsageError(f"{name} has no base to move: constrain a weight with constraint='dtriv' first")
    weight: Tensor = getattr(module, name)
    parametrizations[name].right_inverse(weight.detach())


class _Map(nn.Module):
    """A map from free entries, `[blocks, entries]`, to a stack of orthogonal matrices, `[blocks * n, n]`."""

    fixed: Tensor

    def __init__(self, fixed: Tensor) -> None:
        super().__init__()
        self.register_buffer("fixed", fixed)

    def forward(self, entries: Tensor) -> Tensor:
        with outside_autocast(entries.device):
            # At least float32, because torch's solvers take no half precision.
            wide = entries if entries.dtype == torch.float64 else entries.float()
            pairs = zip(wide.unbind(), self.fixed.to(wide.dtype).unbind(), strict=True)
            return torch.cat([self.weight(block, fixed) for block, fixed in pairs]).to(entries.dtype)

    @torch.no_grad()
    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return the entries of the nearest weight, and fix what is not trained."""
        left, _, right = torch.linalg.svd(weight.double().unflatten(0, (-1, weight.shape[1])))
        entries, fixed = zip(*(self.inverse(block) for block in left @ right), strict=True)
        self.fixed.copy_(torch.stack(fixed))
        return torch.stack(entries).to(weight)

    def weight(self, entries: Tensor, fixed: Tensor) -> Tensor:
        """Return W `[n, n]` of one block."""
        raise NotImplementedError

    def inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the entries and what is fixed for an orthogonal W, float64."""
        raise NotImplementedError


class _Signed(_Map):
    """A map with a diagonal D of signs `[blocks, n]`."""

    def __init__(self, blocks: int, n: int, like: Tensor) -> None:
        super().__init__(like.new_ones(blocks, n))


class _Cayley(_Signed):
    def weight(self, entries: Tensor, fixed: Tensor) -> Tensor:
        return scaled_cayley(entries, fixed)

    def inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        signs, rest = torch.ones_like(weight[0]), weight.clone()
        for j in range(len(weight)):
            signs[j] = 1.0 if rest[j, j] >= 0 else -1.0
            column = rest[j + 1 :, j] / (rest[j, j] + signs[j])
            rest[j + 1 :, j + 1 :] -= torch.outer(column, rest[j, j + 1 :])
        identity = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
        return upper_entries(2 * torch.linalg.inv(identity + weight * signs) - identity), signs


class _Exponential(_Signed):
    def weight(self, entries: Tensor, fixed: Tensor) -> Tensor:
        return exponential(entries, len(fixed)) * fixed

    def inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        signs = torch.ones_like(weight[0])
        signs[-1] = torch.linalg.det(weight).sign()
        return upper_entries(_logarithm(weight * signs)), signs


class _Householder(_Signed):
    def __init__(self, blocks: int, n: int, like: Tensor, reflections: int) -> None:
        super().__init__(blocks, n, like)
        self.reflections = min(reflections, n - 1)

    def weight(self, entries: Tensor, fixed: Tensor) -> Tensor:
        return householder_product(falling_vectors(entries, len(fixed), self.reflections)) * fixed

    def inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        rest, vectors = weight.clone(), weight.new_zeros(len(weight), self.reflections)
        for j in range(self.reflections):
            u = rest[j:, j].clone()
            u[0] += torch.linalg.vector_norm(u).copysign(u[0])  # never zero, where the gradient would vanish
            u /= torch.linalg.vector_norm(u)
            rest[j:] -= 2 * torch.outer(u, u @ rest[j:])
            vectors[j:, j] = u
        signs = torch.ones_like(weight[0])
        known = len(signs) if self.reflections == len(signs) - 1 else self.reflections
        signs[:known] = rest.diagonal()[:known].sign()
        return falling_entries(vectors), signs


class _Trivialisation(_Map):
    """A map with a base B `[blocks, n, n]`, which `rebase` moves."""

    def __init__(self, blocks: int, n: int, like: Tensor) -> None:
        super().__init__(like.new_zeros(blocks, n, n))

    def weight(self, entries: Tensor, fixed: Tensor) -> Tensor:
        return exponential(entries, len(fixed)) @ fixed

    def inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        n = len(weight)
        return weight.new_zeros(n * (n - 1) // 2), weight


def _logarithm(rotation: Tensor) -> Tensor:
    """Return a skew-symmetric A with exp(A) = Q `[n, n]`, for a Q of determinant 1."""
    # By SciPy on the host, because torch has no Schur decomposition; this runs once, when the weight gets its start.
    blocks, basis = scipy.linalg.schur(rotation.cpu().numpy())
    angles, half_turns, i = np.zeros_like(blocks), [], 0
    while i < len(blocks):
        if i + 1 < len(blocks) and abs(blocks[i + 1, i]) > np.finfo(blocks.dtype).eps:
            angles[i + 1, i] = np.arctan2(blocks[i + 1, i], blocks[i, i])
            i += 2
            continue
        if blocks[i, i] < 0:
            half_turns.append(i)
        i += 1
    for first, second in zip(half_turns[::2], half_turns[1::2], strict=True):
        angles[second, first] = np.pi
    return torch.from_numpy(basis @ (angles - angles.T) @ basis.T).to(rotation)
