"""Training and evaluation with sequences of several lengths, and a metric over length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.lengths import LONGEST, TRAINED, Positions, RunningSums, Sums

from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.task import Task
from orthobench.testing import problems
from orthobench.training.by_length import ScoresByLength
from orthobench.training.evaluator import Evaluator
from orthobench.training.trainer import Trainer

CPU = torch.device("cpu")


def trainer_of(task_class: type[Task], model: str = "lstm", **settings: Any) -> Trainer:
    catalog = Catalog()
    catalog_load = catalog.load
    catalog.load = lambda kind, name: task_class if kind == "task" else catalog_load(kind, name)  # type: ignore
    overrides = {"train_size": 40, "test_size": 60, "hidden_size": 8, "batch_size": 10, **settings}
    config = resolve(catalog, "adding", model, overrides)
    return Trainer(config, task_class(config.task_settings, 3, CPU), CPU)


@pytest.mark.parametrize("task_class", [Sums, RunningSums, Positions])
def test_tasks_meet_the_contract(task_class):
    assert problems("task", task_class) == []


class PaddedLoss(RunningSums):
    def loss(self, outputs, targets):
        return torch.nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten().clamp(min=0))


class PaddedMetric(RunningSums):
    def measure(self, outputs, targets):
        return {"accuracy": (((outputs.argmax(-1) == targets) | (outputs[..., 0] > 1)).sum(), targets.numel())}


class ReadsPadding(Sums):
    readout = "last"


class WrongScore(Sums):
    def score(self, outputs, targets):
        return 1 - super().score(outputs, targets)

    def measure(self, outputs, targets):
        return {"accuracy": ((outputs.argmax(-1) == targets).sum(), len(targets))}


class WrongRange(Sums):
    @classmethod
    def trained_lengths(cls, settings):
        return 2, 3


class Unscored(Sums):
    score = Task.score

    def measure(self, outputs, targets):
        return {"accuracy": ((outputs.argmax(-1) == targets).sum(), len(targets))}


class Undeclared(Sums):
    length_metric = "speed"


class MixedBins(Sums):
    def length_bins(self, lengths):
        return lengths % 4


class Positionless(Sums):
    def __init__(self, settings, seed, device):
        super().__init__(settings, seed, device)
        self.train.readout = "last_valid"

    readout = "positions"


@pytest.mark.parametrize(
    ("task_class", "line"),
    [
        (PaddedLoss, "the loss depends on the outputs after the end"),
        (PaddedMetric, "accuracy depends on the outputs after the end"),
        (ReadsPadding, 'readout "last" reads padding'),
        (WrongScore, "the mean score is"),
        (WrongRange, "lengths outside of 2 to 3"),
        (Unscored, "define score"),
        (Undeclared, "speed is not a declared metric"),
        (MixedBins, "length_bins does not give"),
        (Positionless, 'positions are for readout "positions"'),
    ],
)
def test_contract_finds_planted_faults(task_class, line):
    assert any(line in problem for problem in problems("task", task_class)), problems("task", task_class)


def test_training_does_not_depend_on_naming_steps_by_length_or_position():
    trainers = [trainer_of(task_class) for task_class in (Sums, Positions)]
    for trainer in trainers:
        for _ in range(5):
            trainer.advance()
    first, second = (trainer.model.state_dict() for trainer in trainers)
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-5, atol=1e-6)


def by_hand(trainer: Trainer) -> dict[int, list[float]]:
    """The scores of every test sequence run alone and without padding, by length; of running sums by prefix."""
    task = trainer.task
    scores: dict[int, list[float]] = {}
    for example in range(len(task.test)):
        batch = task.test.batch(torch.tensor([example]))
        assert batch.lengths is not None
        length = int(batch.lengths[0])
        with torch.no_grad():
            outputs, _ = trainer.model(batch.inputs[:length], lengths=batch.lengths)
        for t in range(1, length + 1) if task.signature.readout == "all" else (length,):
            target = int(batch.inputs[:t].sum()) % 3
            row = outputs[t - 1, 0] if task.signature.readout == "all" else outputs[0]
            scores.setdefault(t, []).append(float(int(row.argmax()) == target))
    return dict(sorted(scores.items()))


@pytest.mark.parametrize("task_class", [Sums, RunningSums])
@pytest.mark.parametrize("size", [60, 7])
def test_metric_at_every_length_uses_its_sequences_alone(task_class, size):
    trainer = trainer_of(task_class, evaluation_batch_size=size)
    for _ in range(4):
        trainer.advance()
    evaluation = Evaluator(trainer).evaluate(probe=True)
    vectors = {row.name: list(row.values) for row in evaluation.vectors}
    expected = by_hand(trainer)
    assert vectors["by_length/lengths"] == list(expected)
    assert max(expected) == LONGEST
    assert vectors["by_length/accuracy"] == pytest.approx([sum(s) / len(s) for s in expected.values()])
    assert tuple(vectors["by_length/trained"]) == TRAINED
    every = [score for scores in expected.values() for score in scores]
    assert evaluation.value == pytest.approx(sum(every) / len(every))


def test_bins_join_lengths():
    class Binned(Sums):
        def length_bins(self, lengths):
            return (lengths + 3) // 4 * 4

    trainer = trainer_of(Binned)
    scores = ScoresByLength(trainer.task)
    Evaluator(trainer).measure(trainer.task.test, scores=scores)
    expected: dict[int, list[float]] = {}
    for length, values in by_hand(trainer).items():
        expected.setdefault(-(-length // 4) * 4, []).extend(values)
    assert scores.means() == pytest.approx({length: sum(v) / len(v) for length, v in expected.items()})


def test_score_of_another_shape_is_refused():
    class Flat(Sums):
        def score(self, outputs, targets):
            return super().score(outputs, targets)[:1]

    trainer = trainer_of(Flat)
    with pytest.raises(ValueError, match=r"neither \[batch\]"):
        Evaluator(trainer).evaluate(probe=False)


@pytest.mark.parametrize("task_class", [Sums, RunningSums])
def test_probes_do_not_see_padding(task_class):
    """The vectors end with the longest sequence; a step that a sequence lacks does not count in its means."""
    trainer = trainer_of(task_class, probes="heat_map,jacobian")
    plain = {row.name: row.values for row in Evaluator(trainer).evaluate(probe=True).vectors}
    original = trainer.task.train.batch

    def padded(examples):
        batch = original(examples)
        more = torch.ones(3, len(examples), dtype=torch.int64)
        targets = batch.targets
        if task_class is RunningSums:
            targets = torch.cat((targets, -100 * more))
        return type(batch)(torch.cat((batch.inputs, more)), targets, batch.lengths)

    trainer.task.train.batch = padded
    for name, vector in ((row.name, row.values) for row in Evaluator(trainer).evaluate(probe=True).vectors):
        assert list(vector) == pytest.approx(list(plain[name]), rel=1e-4, abs=1e-6), name
    batch = original(torch.arange(10))
    longest = int(batch.lengths.max())
    assert len(plain["gradient_norm/h"]) == longest
    assert len(plain["heat_map/h"]) == longest**2
    assert plain["jacobian/steps"][-1] == int(batch.lengths[0])
