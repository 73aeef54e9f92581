"""The gate at work: faults planted into the code make it fail, and code that is as it was passes with other seeds.

Slow: with the project's own baseline. Fast: the same faults at toy sizes, against a baseline measured here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from orthobench.matrices import skew
from orthobench.models.lstm import LSTM
from orthobench.task import Batch
from orthobench.tasks import copying
from orthobench.training.trainer import Trainer

BASELINE = Path(__file__).parents[2] / "checks" / "baseline.toml"
GUARDS = ("copying/scornn", "copying/scornn-at-the-limit", "adding/lstm")


def flip_a_sign_in_the_cayley_gradient(monkeypatch):
    class Flipped(skew._ScaledCayley):
        @staticmethod
        def backward(ctx, gradient):
            return -cayley_gradient(ctx, gradient)[0], None

    cayley_gradient = skew._ScaledCayley.backward
    monkeypatch.setattr(skew, "_ScaledCayley", Flipped)


def forget_the_forget_bias(monkeypatch):
    original = LSTM.__init__

    def make(self, *arguments):
        original(self, *arguments)
        self.forget_offset.zero_()

    monkeypatch.setattr(LSTM, "__init__", make)


def train_at_three_times_the_rate(monkeypatch):
    begin = Trainer.__init__

    def initialise(self, *arguments):
        begin(self, *arguments)
        self.groups = [replace(group, learning_rate=3 * group.learning_rate) for group in self.groups]

    monkeypatch.setattr(Trainer, "__init__", initialise)


def show_one_symbol_too_few(monkeypatch):
    def batch(self, examples):
        symbols, count = self.symbols[:, examples], len(examples)
        inputs = torch.cat((symbols[: copying.COPIED - 1], self.template[copying.COPIED - 1 :].expand(-1, count)))
        targets = torch.cat((self.blank[copying.COPIED :].expand(-1, count), symbols))
        return Batch(torch.nn.functional.one_hot(inputs, copying.MARKER + 1).float(), targets)

    monkeypatch.setattr(copying.CopyingSplit, "batch", batch)


def measure_one_step_too_late(monkeypatch):
    right = copying.Copying.measure
    monkeypatch.setattr(
        copying.Copying, "measure", lambda self, outputs, targets: right(self, outputs[:-1], targets[1:])
    )


def show_the_marker_a_step_late(monkeypatch):
    """As another program has it: neither harder nor easier."""
    original = copying.CopyingSplit.__init__

    def make(self, settings, *arguments):
        original(self, settings.model_copy(update={"layout": "exprnn"}), *arguments)

    monkeypatch.setattr(copying.CopyingSplit, "__init__", make)


FAULTS = {
    flip_a_sign_in_the_cayley_gradient: "copying/scornn",
    forget_the_forget_bias: "adding/lstm",
    train_at_three_times_the_rate: "copying/scornn-at-the-limit",
    show_one_symbol_too_few: "copying/scornn",
    measure_one_step_too_late: "copying/scornn",
}
planted = pytest.mark.parametrize(("fault", "guard"), FAULTS.items(), ids=[fault.__name__ for fault in FAULTS])


@pytest.mark.slow
@planted
def test_project_gate_fails_on(fault, guard, orthobench, monkeypatch):
    fault(monkeypatch)
    outcome = orthobench("check", str(BASELINE), "--only", guard)
    assert outcome.code == 1, outcome.out


@pytest.mark.slow
@pytest.mark.parametrize("time", range(20))
def test_project_gate_passes_unchanged_code(time, orthobench):
    """On seeds that no baseline has seen: 20 times of 20."""
    only = [word for guard in GUARDS for word in ("--only", guard)]
    outcome = orthobench("check", str(BASELINE), *only, "--first-seed", str(1000 + 5 * time))
    assert outcome.code == 0, outcome.out


SMALL = """\
[task.copying]
seeds = [0, 1, 2]
settings = { sequence_length = 1, hidden_size = 64, train_size = 6_000, test_size = 200, epochs = 1, \
evaluate_every = 300, optimizer = "adam_tf1" }

[[run]]
task = "copying"
model = "scornn"
settings = { learning_rate = 1e-2, recurrent_learning_rate = 1e-3 }

[run.metrics.cross_entropy]
direction = "min"
allowed_loss = 0.04

[[run]]
name = "copying/scornn-at-the-limit"
task = "copying"
model = "scornn"
settings = { optimizer = "sgd_momentum", learning_rate = 0.2, recurrent_learning_rate = 1e-3 }

[run.metrics.cross_entropy]
direction = "min"
allowed_loss = 0.3

[[run]]
task = "adding"
model = "lstm"
seeds = [0, 1, 2]
settings = { sequence_length = 20, hidden_size = 16, train_size = 6_000, test_size = 200, batch_size = 20, epochs = 1, \
evaluate_every = 300, optimizer = "adam_tf1", learning_rate = 2e-2, forget_bias = 2.0 }

[run.metrics.mse]
direction = "min"
allowed_loss = 0.04
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return tmp_path_factory.mktemp("small") / "baseline.toml"


@pytest.fixture
def gate(small, orthobench):
    """Run the check against the small baseline, which the first test measures."""
    if not small.exists():
        small.write_text(SMALL)
        outcome = orthobench("check", str(small), "--update", "--reason", "small")
        assert outcome.code == 0, outcome.err
    return lambda *options: orthobench("check", str(small), *options)


@pytest.mark.slow
@planted
def test_small_gate_fails_on(fault, guard, gate, monkeypatch):
    fault(monkeypatch)
    outcome = gate("--only", guard)
    assert outcome.code == 1, outcome.out


@pytest.mark.slow
def test_small_gate_passes_unchanged_code(gate):
    outcome = gate("--first-seed", "100")
    assert outcome.code == 0, outcome.out


@pytest.mark.slow
def test_change_without_effect_on_difficulty_is_seen_by_exact_runs_alone(small, gate, orthobench, monkeypatch):
    exact = small.with_name("exact.toml")
    exact.write_text(SMALL.replace("[[run]]", "[[run]]\nexact = true", 1))
    only = ("--only", "copying/scornn")
    assert orthobench("check", str(exact), *only, "--update", "--reason", "exact").code == 0
    assert orthobench("check", str(exact), *only).code == 0
    show_the_marker_a_step_late(monkeypatch)
    assert gate(*only).code == 0
    assert orthobench("check", str(exact), *only).code in (1, 3)
