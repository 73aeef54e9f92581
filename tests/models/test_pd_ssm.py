"""PD-SSM against a literal transcription, and as an automaton that tracks a group."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from support.models import assert_kernels_are_the_definition, make
from torch import Tensor
from torch.nn.functional import gelu

from orthobench.model.base import Readout
from orthobench.recurrence import distinct_inputs


def transcribed(model: Any, inputs: Tensor) -> Tensor:
    """The outputs of every step in complex numbers, one row of the batch at a time, as the program computes them."""
    n, rows = model.hidden_size, []
    b = torch.complex(model.input_weight[0::2], model.input_weight[1::2])
    c_re, c_im = model.state_weight[:, 0::2], model.state_weight[:, 1::2]
    for row in range(inputs.shape[1]):
        h, outputs = torch.zeros(n, dtype=torch.complex128), []
        h[0] = 1
        for x in inputs[:, row]:
            s = torch.softmax(model.selection_weight @ x, dim=0)
            m: Any = sum(share * matrix for share, matrix in zip(s, model.dictionary, strict=True))
            soft = torch.stack([torch.softmax(entries, dim=0) for entries in m])
            hard: Any = torch.zeros(n, n).double()
            for j in range(n):
                hard[j, int(m[j].argmax())] = 1
            p = soft + (hard - soft.detach())
            inner = gelu(model.inner_weight @ x + model.inner_bias)
            size = torch.sigmoid(model.size_weight @ inner[: 2 * n] + model.size_bias)
            phase = 2 * math.pi * torch.sigmoid(model.phase_weight @ inner[2 * n :] + model.phase_bias)
            h = (torch.diag(torch.polar(size, phase)) @ p.to(torch.complex128)) @ h + b @ x.to(torch.complex128)
            o = c_re @ h.real + c_im @ h.imag + model.state_bias
            outputs.append(model.output_weight @ o + model.output_bias)
        rows.append(torch.stack(outputs))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize(("readout", "steps"), [("all", 6), ("last", 70)])
def test_matches_a_literal_transcription(readout: Readout, steps: int) -> None:
    """In value and in every gradient; 70 steps are computed in pieces."""
    model = make("pd_ssm", inputs=3, hidden_size=5, readout=readout, dictionary_size=4).double()
    inputs = torch.randn(steps, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = transcribed(model, inputs) if readout == "all" else transcribed(model, inputs)[-1]
    outputs, _ = model(inputs)
    torch.testing.assert_close(outputs, expected, rtol=1e-9, atol=1e-12)
    names, parameters = zip(*model.named_parameters(), strict=True)
    actual, wanted = (torch.autograd.grad(y.square().sum(), parameters) for y in (outputs, expected))
    for name, one, other in zip(names, actual, wanted, strict=True):
        assert float(other.abs().max()) > 0, name
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-11, msg=f"{name}: {{}}".format)


@pytest.mark.parametrize("steps", [20, 1000])
def test_permutations_track_a_group_at_every_length(steps: int) -> None:
    """The words of S3 in its regular representation: the state is the product so far, to the last bit."""
    elements = list(itertools.permutations(range(3)))
    product = {(a, b): elements.index(tuple(elements[a][i] for i in elements[b])) for a in range(6) for b in range(6)}
    model = make("pd_ssm", inputs=6, outputs=6, hidden_size=6, dictionary_size=6, readout="all")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.selection_weight.copy_(40 * torch.eye(6))  # symbol k selects matrix k
        for k, after in itertools.product(range(6), range(6)):
            before = next(a for a in range(6) if product[a, k] == after)
            model.dictionary[k, after, before] = 1
        model.size_bias.fill_(40)
        model.phase_bias.fill_(-100)
        model.state_weight[:, 0::2].copy_(torch.eye(6))
        model.output_weight.copy_(torch.eye(6))
    words = torch.randint(6, (steps, 4), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        outputs, _ = model(torch.nn.functional.one_hot(words, 6).float())
    states = np.zeros(4, dtype=int) + elements.index((0, 1, 2))
    for t, symbols in enumerate(words.tolist()):
        states = np.array([product[state, symbol] for state, symbol in zip(states, symbols, strict=True)])
        expected = torch.nn.functional.one_hot(torch.from_numpy(states), 6).float()
        assert torch.equal(outputs[t], expected), t


def test_state_starts_at_the_first_unit_and_is_carried_on() -> None:
    model = make("pd_ssm", inputs=3, hidden_size=5, readout="all").double()
    assert model.initial_state(2)[0].tolist() == 2 * [[1.0] + 9 * [0.0]]
    inputs = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    whole, (final,) = model(inputs)
    first, state = model(inputs[:4])
    second, (end,) = model(inputs[4:], state)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    torch.testing.assert_close(end, final)


def test_kernels_match_the_reference() -> None:
    assert_kernels_are_the_definition(make("pd_ssm", inputs=3, hidden_size=18, readout="all"), steps=20)


@pytest.mark.parametrize("symbols", [2, 5])
def test_repeated_inputs_have_the_gradients_of_a_transcription(symbols: int) -> None:
    """Steps with the same symbol share their transition, in C and in the reference."""
    model = make("pd_ssm", inputs=3, hidden_size=18, readout="all", dictionary_size=3)
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(symbols, (40, 2), generator=generator)
    inputs = torch.randn(symbols, 3, generator=generator)[words]
    distinct, places = distinct_inputs(inputs)
    assert len(distinct) == symbols
    assert torch.equal(distinct[places[..., 0].long(), 0], inputs)
    double = copy.deepcopy(model).double()
    expected = transcribed(double, inputs.double())
    wanted = torch.autograd.grad(expected.square().sum(), [*double.parameters()])
    for each, tolerance in ((model, 1e-4), (double, 1e-8)):
        outputs, _ = each(inputs.to(each.dictionary.dtype))
        torch.testing.assert_close(outputs.double(), expected, rtol=tolerance, atol=tolerance)
        gradients = torch.autograd.grad(outputs.square().sum(), [*each.parameters()])
        for one, other in zip(gradients, wanted, strict=True):
            assert float((one.double() - other).norm()) < tolerance * float(other.norm())


def test_inputs_that_differ_or_need_a_gradient_are_kept() -> None:
    inputs = torch.randn(7, 2, 3, generator=torch.Generator().manual_seed(4))
    for each in (inputs, inputs[:1].expand(7, 2, 3).clone().requires_grad_()):
        distinct, places = distinct_inputs(each)
        assert torch.equal(distinct[:, 0], each.flatten(0, 1))
        assert places.flatten().tolist() == [*range(14)]


def test_starts_match_the_program() -> None:
    model = make("pd_ssm", inputs=9, hidden_size=64)
    for weight, variance in ((model.dictionary, 1 / 64), (model.input_weight, 1 / 128)):
        assert float(weight.detach().square().mean()) == pytest.approx(variance, rel=0.15)
    assert model.dictionary.shape == (8, 64, 64)
