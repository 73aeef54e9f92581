"""Readouts over sequences of several lengths, and symbols as inputs, of every model."""

from __future__ import annotations

import itertools

import pytest
import torch
from support.models import make

from orthobench.model import Signature
from orthobench.model.build import build_model
from orthobench.plugins import Catalog
from orthobench.sequences import last_valid, mean_of_valid, one_hot, steps_at

pytestmark = pytest.mark.grid

NAMES = Catalog().names("model")
STEPS, BATCH, INPUTS, OUTPUTS, SYMBOLS = 6, 3, 4, 5, 9
LENGTHS = torch.tensor([6, 1, 4])
POSITIONS = torch.tensor([[2, 0, 3], [5, 0, 1]])


def inputs() -> torch.Tensor:
    return torch.randn(STEPS, BATCH, INPUTS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def expected(readout: str, outputs: torch.Tensor) -> torch.Tensor:
    """Literal loops over the sequences of `[T, B, p]`."""
    columns = outputs.unbind(1)
    match readout:
        case "last":
            return torch.stack([column[STEPS - 1] for column in columns])
        case "last_valid":
            return torch.stack([column[int(length) - 1] for column, length in zip(columns, LENGTHS, strict=True)])
        case "mean":
            return torch.stack([column[: int(n)].sum(0) / int(n) for column, n in zip(columns, LENGTHS, strict=True)])
        case "positions":
            rows = [[columns[b][int(row[b])] for b in range(BATCH)] for row in POSITIONS]
            return torch.stack([torch.stack(row) for row in rows])
    return outputs


@pytest.mark.parametrize(
    ("name", "readout"),
    [
        *itertools.product(NAMES, ["last", "last_valid"]),
        *(
            pytest.param(name, readout, marks=() if name in NAMES[::4] else pytest.mark.slow)
            for name in NAMES
            for readout in ("mean", "positions")
        ),
    ],
)
def test_values_and_gradients_match_the_outputs_of_all_steps(name, readout):
    """The loss weighs every output differently, so a wrong step or a wrong sequence is seen."""
    results = []
    for own in (readout, "all"):
        model = make(name, own, hidden_size=8, inputs=INPUTS, outputs=OUTPUTS).double()
        x = inputs().requires_grad_()
        outputs, final = model(x, lengths=LENGTHS, positions=POSITIONS)
        assert outputs.shape == model.signature.output_shape(STEPS, BATCH, 2)
        if own != readout:
            outputs = expected(readout, outputs)
        weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        parameters = [p for p in model.parameters() if p.requires_grad]
        gradients = torch.autograd.grad((outputs * weights).sum(), (x, *parameters), allow_unused=True)
        results.append((outputs, *final, *(g for g in gradients if g is not None)))
    for value, other in zip(*results, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("readout", ["last_valid", "mean"])
def test_without_lengths_every_step_is_valid(readout):
    model, x = make("lstm", readout).double(), inputs()
    whole, _ = model(x, lengths=torch.full((BATCH,), STEPS))
    torch.testing.assert_close(model(x)[0], whole, rtol=1e-12, atol=1e-14)


def test_readout_of_positions_requires_positions():
    with pytest.raises(ValueError, match="needs positions"):
        make("rnn", "positions")(inputs().float())


def symbols() -> torch.Tensor:
    return torch.randint(SYMBOLS, (STEPS, BATCH), generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("settings", [{}, {"embedding_size": 3}], ids=["one_hot", "embedding"])
@pytest.mark.parametrize("name", NAMES)
def test_symbols_equal_one_hot_vectors_in_value_and_gradient(name, settings):
    cls = Catalog().load("model", name)
    read = cls.Settings.read({"hidden_size": 8, **settings})
    numbers = symbols()
    vectors = torch.eye(SYMBOLS, dtype=torch.float64)[numbers]
    results = []
    for x, tokens in ((numbers, True), (vectors, False)):
        signature = Signature(SYMBOLS, OUTPUTS, "last_valid", tokens)
        model = build_model(cls, read, signature, torch.Generator().manual_seed(0)).double()
        outputs, _ = model(x, lengths=LENGTHS)
        outputs.square().sum().backward()
        results.append((outputs, *(p.grad for p in model.parameters() if p.grad is not None)))
    for value, other in zip(*results, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-9, atol=1e-11)


def test_selection_matches_a_loop():
    outputs = torch.arange(12.0).view(3, 2, 2)  # step t, sequence b: 4 t + 2 b, 4 t + 2 b + 1
    lengths = torch.tensor([2, 3])
    assert last_valid(outputs, lengths).tolist() == [[4, 5], [10, 11]]
    assert mean_of_valid(outputs, lengths).tolist() == [[2, 3], [6, 7]]
    assert steps_at(outputs, torch.tensor([[2, 0]])).tolist() == [[[8, 9], [2, 3]]]
    assert one_hot(torch.tensor([[1, 0]]), 3, torch.float32).tolist() == [[[0, 1, 0], [1, 0, 0]]]
