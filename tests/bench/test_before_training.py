"""What a model does before it trains: its gradient through time, unused parameters, and the cost of a step."""

from __future__ import annotations

import json

import pytest

from orthobench.bench import before_training
from orthobench.bench.before_training import BATCH, INPUTS, LENGTHS, STEPS, diagnose
from orthobench.plugins import Catalog

CELLS = '''
import torch
from torch import nn


class Decaying(nn.Module):
    """h_t = 0.5 h_{t-1} + U x_t, whose gradient halves with each step."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.map = nn.Linear(input_size, hidden_size)

    def forward(self, x, h):
        return 0.5 * h + self.map(x)


class Summing(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.map = nn.Linear(input_size, hidden_size)

    def forward(self, x):
        return torch.tanh(self.map(x).cumsum(0))


class Short(Decaying):
    def forward(self, x, h):
        self.count = 1 if not h.any() else self.count + 1
        if self.count > 150:
            raise ValueError("too long")
        return super().forward(x, h)


class Detached(Decaying):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.unused = nn.Linear(2, 2)

    def forward(self, x, h):
        return super().forward(x, h.detach())
'''


@pytest.fixture
def of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cell.py").write_text(CELLS)
    monkeypatch.setattr(before_training, "SHORTEST", 1e-3)

    def diagnosed(name):
        catalog = Catalog()
        model = catalog.load("model", catalog.named(f"./cell.py:{name}"))
        return diagnose(model, catalog.load("model", "lstm"))

    return diagnosed


def test_gradient_of_a_known_recurrence(of):
    found = of("Decaying")
    assert found["missing"] == []
    assert found["defined"] == "cell.py:6"
    assert [row["steps"] for row in found["gradients"]] == list(LENGTHS)
    for row in found["gradients"]:
        assert row["model"]["factor"] == pytest.approx(0.5, rel=1e-3)
    first = found["gradients"][0]["model"]
    assert first["first"] == pytest.approx(first["last"] * 0.5**9, rel=1e-4)
    assert found["parameters"] == 128 * INPUTS + 128 + 128 + 1
    assert found["step"]["seconds"] > 0


def test_memory_is_that_of_the_tensors_of_the_backward_pass(of):
    """The linear map keeps its inputs, tanh its outputs, and the output map the last of these."""
    expected = 4 * STEPS * BATCH * (INPUTS + 128)
    assert expected <= of("Summing")["step"]["bytes"] <= 1.05 * expected


def test_what_fails_is_named_with_its_line(of):
    found = of("Short")
    assert [row["steps"] for row in found["gradients"]] == [10, 100]
    assert found["missing"] == [
        "the gradient over 300 steps could not be measured: cell.py:30 raises ValueError: too long"
    ]


def test_command_shows_the_diagnosis_of_a_layer(of, orthobench):
    explained = json.loads(orthobench("plugins", "./cell.py:Detached", "--json").out)
    assert all(row["model"]["factor"] is None for row in explained["diagnosis"]["gradients"])
    assert any("no gradient reaches unused.weight" in line for line in explained["layer"])
    shown = orthobench("plugins", "./cell.py:Detached").out
    assert "Defined in cell.py:34." in shown
    assert "No gradient reaches earlier steps" in shown
    assert "times the LSTM's" in shown
    assert "diagnosis" not in json.loads(orthobench("plugins", "lstm", "--json").out)
