import math

import pytest
import torch

import orthobench as ob
from orthobench.store import open_store
from orthobench.tasks.copying import COPIED, Copying, CopyingSettings

CPU = torch.device("cpu")


def _batch(layout: str = "scornn", delay: int = 30, size: int = 50):
    settings = CopyingSettings(sequence_length=delay, train_size=2000, test_size=10, layout=layout)
    task = Copying(settings, 0, CPU)
    return task, task.train.batch(torch.arange(size))


@pytest.mark.parametrize(("layout", "markers"), [("scornn", [39]), ("exprnn", [40]), ("two_markers", [10, 39])])
def test_sequence_has_the_published_layout(layout, markers):
    _, batch = _batch(layout)
    inputs = batch.inputs.argmax(-1)
    assert batch.inputs.shape == (50, 50, 10)
    assert (batch.inputs.sum(-1) == 1).all()
    assert ((inputs[:10] >= 1) & (inputs[:10] <= 8)).all()
    assert torch.equal(batch.targets[40:], inputs[:10])
    assert (batch.targets[:40] == 0).all()
    expected = torch.zeros(40, dtype=torch.long)
    expected[torch.tensor(markers) - 10] = 9
    assert torch.equal(inputs[10:], expected.unsqueeze(1).expand(-1, 50))


def test_symbols_are_uniform():
    task, _ = _batch()
    counts = torch.bincount(task.train.symbols.flatten(), minlength=9)[1:].float()
    assert ((counts / 2500 - 1).abs() < 0.1).all()


@pytest.mark.parametrize(("delay", "printed"), [(1000, 0.020387), (2000, 0.010294), (200, 0.094520)])
def test_baseline_is_ten_ln_eight_over_t_plus_twenty(delay, printed):
    baselines = Copying.baselines(CopyingSettings(sequence_length=delay))
    assert baselines["cross_entropy"] == pytest.approx(printed, abs=5e-7)


def test_predictor_without_memory_scores_the_baseline():
    """It is sure of the blanks, and guesses among the eight symbols where the answer is due."""
    task, batch = _batch(size=2000)
    logits = torch.full((50, 2000, 9), -1e4)
    logits[:40, :, 0] = 0
    logits[40:, :, 1:] = torch.rand(10, 2000, 8, generator=torch.Generator().manual_seed(0)) * 1e-4
    measured = {name: float(total) / weight for name, (total, weight) in task.measure(logits, batch.targets).items()}
    baselines = Copying.baselines(CopyingSettings(sequence_length=30))
    assert measured["cross_entropy"] == pytest.approx(10 * math.log(8) / 50, rel=1e-3)
    assert measured == pytest.approx(baselines, rel=0.05)
    assert task.loss(logits, batch.targets).item() == pytest.approx(measured["cross_entropy"], rel=1e-5)


def test_longer_tests_measure_the_recall_after_multiples_of_the_delay():
    """A model that holds the symbols for some steps recalls them up to that delay, and then guesses."""

    class Recalls(torch.nn.Module):
        def __init__(self, longest: int) -> None:
            super().__init__()
            self.longest, self.unused = longest, torch.nn.Parameter(torch.zeros(1))

        def forward(self, inputs, *_, **__):
            symbols = inputs[:COPIED, :, :-1]
            blanks = torch.zeros(len(inputs) - COPIED, *symbols.shape[1:])
            answer = symbols if len(inputs) <= self.longest + 2 * COPIED else 0 * symbols
            return torch.cat((blanks, answer)), ()

    settings = CopyingSettings(sequence_length=12, train_size=4, test_size=230, longer_tests=True)
    task = Copying(settings, 0, CPU)
    measured = task.final_metrics(Recalls(48), lambda *_: None)
    assert measured == {"recall_2t": 1, "recall_4t": 1, "recall_8t": 0}
    assert {name for name in task.baselines(settings) if name.endswith("t")} == set(measured)


def test_infinite_score_of_the_constant_is_no_baseline(tmp_path, monkeypatch):
    """Answers compared a step late: the constant gives no chance to some that are right. The task's baseline counts."""
    right = Copying.measure
    monkeypatch.setattr(Copying, "measure", lambda self, outputs, targets: right(self, outputs[:-1], targets[1:]))
    db = str(tmp_path / "runs.db")
    sizes = {"sequence_length": 10, "train_size": 60, "test_size": 30, "validation_size": 30}
    ob.run("copying", "irnn", db=db, settings=sizes | {"hidden_size": 4, "max_iterations": 2})
    with open_store(db) as store:
        (run,) = store.runs()
    assert run.baselines["cross_entropy"] == Copying.baselines(CopyingSettings(**sizes))["cross_entropy"]
    assert "valid/cross_entropy" not in run.baselines
    assert 0 < run.baselines["recall"] < 0.5
