"""The recurrence of sparse layers: every number of taps, sums over more steps than are kept, and threads."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from orthobench.recurrence import RELU, Activation, Kind, SparseLayers, kernel_case, reference, sparse_recurrence
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu

COMPLEX = Activation(Kind.COMPLEX_MODRELU_SMOOTH, epsilon=1e-2)


def random_layers(units: int, taps: tuple[int, ...], is_complex: bool) -> SparseLayers:
    """Layers that read units in random orders, sometimes one of them twice."""
    generator = torch.Generator().manual_seed(0)
    orders = [[torch.randperm(units, generator=generator) for _ in range(count)] for count in taps]
    return SparseLayers(tuple(map(torch.stack, orders)), is_complex)


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("taps", [(1,), (2, 3, 4), (5, 8), (9,)], ids=str)
def test_every_number_of_taps_agrees(taps: tuple[int, ...], is_complex: bool) -> None:
    layers = random_layers(21, taps, is_complex)
    form = {"layers": layers, "activation": COMPLEX if is_complex else RELU}
    arguments = kernel_case.problem(sparse_recurrence, form, layers.shape[1], batch=19, steps=21)
    case = sparse_recurrence, form, ()
    expected = kernel_case.evaluate(reference.run, *case, arguments, torch.float64)
    actual = kernel_case.evaluate(cpu.run, *case, arguments, torch.float32)
    errors = {name: kernel_case.distance(actual[name], value) for name, value in expected.items()}
    assert {name: error for name, error in errors.items() if not error <= 1e-5} == {}


@pytest.mark.parametrize("name", ["sparse-relu", "sparse-complex_modrelu"])
def test_thread_count_changes_no_number(name: str, case_named: Any, same_with_threads: Any) -> None:
    case = case_named(name)
    arguments = case.arguments(steps=70, batch=37, n=200, seed=6)
    assert 70 * 37 * arguments[1].numel() > call_c.SMALL
    same_with_threads(case, arguments)
