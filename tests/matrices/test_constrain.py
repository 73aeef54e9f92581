"""Constrained weights of any module: closed forms in float64, starts, assignment, training."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from orthobench.errors import UsageError
from orthobench.matrices.constrain import constrain, rebase

CONSTRAINTS = ["cayley", "exponential", "householder", "dtriv"]
each_constraint = pytest.mark.parametrize("constraint", CONSTRAINTS)
N = 6


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def orthogonal(n: int, determinant: float, seed: int = 0) -> torch.Tensor:
    basis, _ = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator(seed)))
    basis[0] *= torch.linalg.det(basis).sign() * determinant
    return basis


def linear(weight: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], len(weight), bias=False, dtype=weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
    return layer


def parts(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The trained entries and what is fixed of a weight of one block."""
    held = layer.parametrizations["weight"]
    return held.original[0], held[0].fixed[0]


def skew(entries: torch.Tensor) -> torch.Tensor:
    a = torch.zeros(N, N, dtype=entries.dtype)
    a[tuple(torch.triu_indices(N, N, 1))] = entries
    return a - a.T


def closed_form(constraint: str, entries: torch.Tensor, fixed: torch.Tensor) -> torch.Tensor:
    identity = torch.eye(N, dtype=entries.dtype)
    if constraint == "cayley":
        return torch.linalg.solve(identity + skew(entries), identity - skew(entries)) @ torch.diag(fixed)
    if constraint == "exponential":
        return torch.matrix_exp(skew(entries)) @ torch.diag(fixed)
    if constraint == "dtriv":
        return torch.matrix_exp(skew(entries)) @ fixed
    lower = torch.zeros(N, N - 1, dtype=entries.dtype)
    lower[tuple(torch.tril_indices(N, N - 1))] = entries
    product = identity
    for u in lower.T:
        product = product @ (identity - 2 * torch.outer(u, u) / (u @ u))
    return product @ torch.diag(fixed)


@each_constraint
def test_weight_is_the_closed_form_and_has_its_gradient(constraint):
    layer = constrain(linear(orthogonal(N, 1.0)), "weight", constraint)
    entries, fixed = parts(layer)
    with torch.no_grad():
        entries += 0.3 * torch.randn(entries.shape, dtype=entries.dtype, generator=generator(1))
    expected = closed_form(constraint, entries, fixed)
    torch.testing.assert_close(layer.weight, expected, rtol=0, atol=1e-12)
    way = torch.randn(N, N, dtype=torch.float64, generator=generator(2))
    held = layer.parametrizations["weight"].original
    torch.testing.assert_close(*(torch.autograd.grad(weight, held, way) for weight in (layer.weight, expected)))


STARTS = {
    "rotation": orthogonal(N, 1.0),
    "reflection": orthogonal(N, -1.0),
    "identity": torch.eye(N, dtype=torch.float64),
    "minus identity": -torch.eye(N, dtype=torch.float64),
    "half turns": torch.diag(torch.tensor([1.0, -1, 1, -1, -1, 1], dtype=torch.float64)),
    "permutation": torch.eye(N, dtype=torch.float64).roll(1, 0),
}


@each_constraint
@pytest.mark.parametrize("start", STARTS)
def test_orthogonal_weight_is_kept_and_can_be_trained(constraint, start):
    layer = constrain(linear(STARTS[start]), "weight", constraint)
    torch.testing.assert_close(layer.weight, STARTS[start], rtol=0, atol=1e-12)
    layer.weight = STARTS["rotation"] @ STARTS[start]
    torch.testing.assert_close(layer.weight, STARTS["rotation"] @ STARTS[start], rtol=0, atol=1e-12)
    way = torch.randn(N, N, dtype=torch.float64, generator=generator(2))
    weight = layer.weight.detach()
    (gradient,) = torch.autograd.grad(layer.weight, layer.parametrizations["weight"].original, way)
    # Entries of A and reflections cover all directions of the manifold, so only a symmetric W^T G has no gradient.
    assert gradient.abs().max() > 1e-3 * (weight.T @ way - way.T @ weight).abs().max()


@each_constraint
def test_other_weights_start_at_the_nearest_orthogonal_matrix(constraint):
    given = torch.randn(N, N, dtype=torch.float64, generator=generator(3))
    left, _, right = torch.linalg.svd(given)
    torch.testing.assert_close(constrain(linear(given), "weight", constraint).weight, left @ right, rtol=0, atol=1e-12)


def test_few_reflections_keep_the_first_columns():
    start = orthogonal(N, -1.0)
    layer = constrain(linear(start), "weight", "householder", reflections=2)
    torch.testing.assert_close(layer.weight[:, :2], start[:, :2], rtol=0, atol=1e-12)
    torch.testing.assert_close(layer.weight @ layer.weight.T, torch.eye(N, dtype=torch.float64), rtol=0, atol=1e-12)
    assert layer.parametrizations["weight"].original.shape == (1, N + N - 1)


@each_constraint
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_layers_of_torch_train_and_stay_orthogonal(constraint, kind):
    torch.manual_seed(0)
    layer = constrain(kind(3, N), "weight_hh_l0", constraint)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    x = torch.randn(5, 4, 3, generator=generator(1))
    start, losses = layer.weight_hh_l0.detach().clone(), []
    for step in range(20):
        loss = (layer(x)[0] - 0.1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if constraint == "dtriv" and step % 5 == 0:
            rebase(layer, "weight_hh_l0")
        losses.append(loss.item())
    blocks = layer.weight_hh_l0.detach().unflatten(0, (-1, N))
    assert (blocks.mT @ blocks - torch.eye(N)).abs().max() < 5e-6
    assert (blocks - start.unflatten(0, (-1, N))).abs().amax(dim=(1, 2)).min() > 0.01
    assert losses[-1] < losses[0]


@each_constraint
def test_state_dict_and_copies_keep_the_weight(constraint):
    layer = constrain(linear(orthogonal(N, -1.0)), "weight", constraint)
    other = constrain(linear(orthogonal(N, 1.0, seed=1)), "weight", constraint)
    other.load_state_dict(layer.state_dict())
    assert other.weight.equal(layer.weight)
    assert copy.deepcopy(layer).weight.equal(layer.weight)


@each_constraint
def test_autocast_does_not_reach_the_weight(constraint):
    layer = constrain(linear(orthogonal(N, 1.0).float()), "weight", constraint)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weight = layer.weight
    assert weight.equal(layer.weight)
    torch.testing.assert_close(layer.bfloat16().weight, weight.bfloat16(), rtol=0, atol=0.02)


@each_constraint
@pytest.mark.parametrize("size", [pytest.param(0.3, marks=pytest.mark.slow), 5.0])
@pytest.mark.filterwarnings("ignore")
def test_constrained_module_compiles_as_a_whole(constraint, size):
    """A large A needs several squarings of exp(A), whose number the compiled program cannot depend on."""
    torch.compiler.reset()
    layer = constrain(linear(orthogonal(N, 1.0)), "weight", constraint)
    program = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x, results = torch.randn(3, N, dtype=torch.float64, generator=generator(1)), []
    with torch.no_grad():
        entries, _ = parts(layer)
        entries += size * torch.randn(entries.shape, dtype=entries.dtype, generator=generator(2))
    for run in (program, layer):
        output = run(x)
        results.append([output, *torch.autograd.grad(output.sin().sum(), list(layer.parameters()))])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("constraint", [None, "cayley"])
@pytest.mark.parametrize("name", ["weight_hh_l0", "weight_hh", "bias_hh_l0"])
def test_rebase_of_a_weight_without_base_is_refused_in_one_line(constraint, name):
    layer = nn.RNN(4, N)
    if constraint:
        constrain(layer, "weight_hh_l0", constraint)
    with pytest.raises(UsageError) as refusal:
        rebase(layer, name)
    line = f"{name} has no base to move: constrain a weight with constraint='dtriv' first"
    assert str(refusal.value) == line


def test_rebase_moves_the_base_and_not_the_weight():
    layer = constrain(linear(orthogonal(N, 1.0)), "weight", "dtriv")
    entries, base = parts(layer)
    with torch.no_grad():
        entries += 0.1
    weight = layer.weight.detach()
    rebase(layer, "weight")
    torch.testing.assert_close(layer.weight, weight, rtol=0, atol=1e-12)
    torch.testing.assert_close(base, weight, rtol=0, atol=1e-12)
    assert not parts(layer)[0].any()


@each_constraint
def test_modules_that_shared_the_weight_keep_it(constraint):
    first, second = linear(torch.randn(N, N, generator=generator())), nn.Linear(N, N, bias=False)
    second.weight = second.other = first.weight
    weight, x = first.weight.detach().clone(), torch.randn(2, N, generator=generator(1))
    for name in ("other", "weight"):
        constrain(second, name, constraint)
        torch.testing.assert_close(getattr(second, name).mT @ getattr(second, name), torch.eye(N), rtol=0, atol=1e-5)
    second(x).sum().backward()
    assert first.weight.equal(weight)
    assert first(x).equal(x @ weight.T)
    assert first.weight.grad is None


def test_weight_that_is_not_trained_stays_so():
    layer = linear(orthogonal(N, 1.0)).requires_grad_(False)
    assert not constrain(layer, "weight").parametrizations["weight"].original.requires_grad


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("weight_hh", {}, "unknown weight 'weight_hh': did you mean weight_hh_l0"),
        ("weight_ih_l0", {}, "weight_ih_l0 [6, 4] should be square, [n, n], or a stack of squares, [k * n, n]"),
        ("bias_hh_l0", {}, "bias_hh_l0 [6] should be square"),
        ("weight_hh_l0", {"constraint": "cayly"}, "unknown constraint 'cayly': did you mean cayley?"),
        ("weight_hh_l0", {"reflections": 2}, "reflections=2 should be from 1 to 5, for constraint='householder' alone"),
        ("weight_hh_l0", {"constraint": "householder", "reflections": 6}, "reflections=6 should be from 1 to 5"),
        ("weight_hh_l0", {"constraint": "householder", "reflections": 2.5}, "reflections=2.5 should be from 1 to 5"),
    ],
)
def test_what_cannot_be_constrained_is_refused_in_one_line(name, arguments, line):
    with pytest.raises(UsageError) as refusal:
        constrain(nn.RNN(4, N), name, **arguments)
    assert str(refusal.value).startswith(line)
    assert "\n" not in str(refusal.value)


def test_second_constraint_and_infinite_weight_are_refused():
    layer = constrain(nn.RNN(4, N), "weight_hh_l0")
    with pytest.raises(UsageError, match="weight_hh_l0 has a parametrisation already"):
        constrain(layer, "weight_hh_l0")
    with pytest.raises(UsageError, match="weight should have finite numbers"):
        constrain(linear(torch.full((2, 2), math.inf)), "weight")
