"""Truncated back-propagation: the state goes on, its gradient does not, and a cut changes nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from orthobench.errors import UsageError
from orthobench.model import Signature
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.task import seeded_generator
from orthobench.tasks.ptb import PTB
from orthobench.training.events import EventSink
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted

CPU = torch.device("cpu")
WORDS = "state carried over from piece to piece is where the next one starts "
TEXT = "".join(WORDS[(k * k + k // 5) % len(WORDS)] for k in range(800))
PIECES, COLUMNS = 18, 5  # of the 720 characters for training, in pieces of at most 8 steps


class Watching(EventSink):
    def __init__(self, stop_at=None):
        self.stop_at, self.iterations = stop_at, []

    def on_iteration(self, iteration):
        self.iterations.append(iteration)

    def should_stop(self):
        return bool(self.iterations) and self.iterations[-1] == self.stop_at


@pytest.fixture
def run(tmp_path):
    """A run's spec over the text, with a few settings changed."""
    (tmp_path / "text.txt").write_text(TEXT)
    tiny = {
        "text": str(tmp_path / "text.txt"),
        "unroll_length": 8,
        "hidden_size": 6,
        "batch_size": COLUMNS,
        "epochs": 2,
    }

    def make(model="rnn", **overrides):
        plain = {"activation": "tanh"} if model == "rnn" else {}
        return resolve(Catalog(), "ptb", model, {**tiny, **plain, "evaluation_batch_size": 3, **overrides})

    return make


def carry_out(config, folder, observer=None, **options):
    """Train, and everything logged, by split and name: (iteration, value) and (iteration, vector)."""
    folder.mkdir(exist_ok=True)
    observer = observer or Watching()
    with open_store(str(folder / "r.db"), create=True) as store:
        train(config, store, RunOptions(device="cpu", **options), [observer], observer.should_stop)
        record = store.find(config.spec.key)
        logged: dict[str, list] = {"iterations": [record.iterations]}
        for m in store.metrics([record.id]):
            logged.setdefault(f"{m.split}/{m.name}", []).append((m.iteration, m.value))
        for t in store.traces([record.id]):
            logged.setdefault(t.name, []).append((t.iteration, list(t.values)))
    return logged


def torch_rnn(config):
    """The run's start, in torch's own recurrent network: another program of the same recurrence."""
    task = PTB(config.task_settings, 0, CPU)
    m = task.signature.input_size
    model = config.model_class(
        config.model_settings, Signature(m, m, "all"), seeded_generator(config.spec.seed, "model", config.spec.model)
    )
    rnn, out = nn.RNN(m, 6, nonlinearity="tanh"), nn.Linear(6, m)
    with torch.no_grad():
        rnn.weight_ih_l0.copy_(model.input_weight)
        rnn.weight_hh_l0.copy_(model.recurrent_weight)
        rnn.bias_hh_l0.copy_(model.bias)
        rnn.bias_ih_l0.zero_()
        out.weight.copy_(model.output_weight)
        out.bias.copy_(model.output_bias)
    rnn.bias_ih_l0.requires_grad_(False)
    return rnn, out, m


def columns(text, count):
    """The text's symbol numbers in columns `[steps, count]`, inputs and targets."""
    alphabet = sorted(set(TEXT))
    numbers = torch.tensor([alphabet.index(character) for character in text])
    steps = (len(numbers) - 1) // count
    starts = torch.arange(count) * steps
    at = torch.arange(steps).unsqueeze(1) + starts
    return numbers[at], numbers[at + 1]


def long_unroll_bpc(rnn, out, m, text, count):
    inputs, targets = columns(text, count)
    with torch.no_grad():
        logits = out(rnn(nn.functional.one_hot(inputs, m).float())[0])
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item() / math.log(2)


def test_carried_state_equals_one_long_unroll(run, tmp_path):
    """At a learning rate of next to nothing: the training loss of an epoch, and the test, with the longest memory."""
    config = run(optimizer="sgd", learning_rate="1e-30", unroll_length="13", epochs="2", batch_size="2")
    logged = carry_out(config, tmp_path / "run")
    network = torch_rnn(config)
    inputs, targets = columns(TEXT[:720], 2)
    rnn, out, m = network
    logits = out(rnn(nn.functional.one_hot(inputs, m).float())[0])
    losses = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(-1, 2)
    epoch = torch.stack([piece.mean() for piece in losses.split(13)]).mean().item()
    assert logged["iterations"] == [2 * 28]
    assert [value for _, value in logged["train/loss"]] == pytest.approx([epoch, epoch], rel=1e-5)
    for split, text in (("valid", TEXT[720:760]), ("test", TEXT[760:])):
        values = [value for _, value in logged[f"{split}/bpc"]]
        assert values == pytest.approx([long_unroll_bpc(*network, text, 3)] * 3, rel=1e-5)
    # Without the state the numbers are others, so this could fail.
    alone = torch.cat([out(rnn(nn.functional.one_hot(part, m).float())[0]) for part in inputs.split(13)])
    assert abs(nn.functional.cross_entropy(alone.flatten(0, 1), targets.flatten()).item() / epoch - 1) > 1e-4


def test_training_matches_truncated_back_propagation(run, tmp_path):
    """Two epochs of gradient descent: a piece starts at the last state without its gradient, an epoch at zero."""
    config = run(optimizer="sgd", learning_rate="0.5")
    logged = carry_out(config, tmp_path / "run")
    rnn, out, m = torch_rnn(config)
    parameters = [p for p in (*rnn.parameters(), *out.parameters()) if p.requires_grad]
    inputs, targets = columns(TEXT[:720], COLUMNS)
    tested = [long_unroll_bpc(rnn, out, m, TEXT[760:], 3)]
    for _ in range(2):
        state = None
        for x, y in zip(inputs.split(8), targets.split(8), strict=True):
            h, state = rnn(nn.functional.one_hot(x, m).float(), None if state is None else state.detach())
            loss = nn.functional.cross_entropy(out(h).flatten(0, 1), y.flatten())
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter -= 0.5 * gradient
        tested.append(long_unroll_bpc(rnn, out, m, TEXT[760:], 3))
    assert [at for at, _ in logged["test/bpc"]] == [0, PIECES, 2 * PIECES]
    assert [value for _, value in logged["test/bpc"]] == pytest.approx(tested, rel=1e-4)
    assert tested[2] < tested[0] - 0.1


@pytest.mark.parametrize("model", ["scornn", "lstm", "ornn"])
def test_interrupted_run_continues_with_its_state(model, run, tmp_path):
    config = run(model, evaluate_every="6")
    uncut = carry_out(config, tmp_path / "uncut")
    for stop_at in (1, PIECES - 1, PIECES, PIECES + 1, 2 * PIECES - 1):
        with pytest.raises(Interrupted):
            carry_out(config, tmp_path / f"cut {stop_at}", Watching(stop_at))
        again = Watching()
        assert carry_out(config, tmp_path / f"cut {stop_at}", again) == uncut
        assert again.iterations == list(range(stop_at + 1, 2 * PIECES + 1))


def test_order_of_a_stream_is_fixed(run, tmp_path):
    with pytest.raises(UsageError, match="shuffle=true: this task reads its data in order"):
        carry_out(run(shuffle="true"), tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"batch_size": "720"}, "batch_size=720 is more columns than the data can fill: give a smaller batch_size"),
        ({"evaluation_batch_size": "40"}, "evaluation_batch_size=40 is more columns than the data can fill"),
    ],
)
def test_too_short_text_is_refused_before_a_run_is_stored(overrides, message, run, tmp_path):
    with pytest.raises(UsageError, match=message):
        carry_out(run(**overrides), tmp_path / "run")
    with open_store(str(tmp_path / "run" / "r.db")) as store:
        assert store.runs() == []
