"""A trainer's step and an evaluation, against the same by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load_file
from support.configs import with_classes

from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.recurrence import workspace
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.tasks.adding import Adding, AddingSettings
from orthobench.training.evaluator import Evaluator
from orthobench.training.lifecycle import train
from orthobench.training.trainer import Trainer

CPU = torch.device("cpu")


def trainer(model: str, tiny: dict[str, str], **settings: str) -> Trainer:
    config = resolve(Catalog(), "adding", model, {**tiny, **settings})
    assert isinstance(config.task_settings, AddingSettings)
    return Trainer(config, Adding(config.task_settings, 0, CPU), CPU)


def test_every_group_steps_at_its_own_decayed_rate(tiny):
    """Plain descent moves a parameter by its rate times its gradient: 1e-2 and 1e-4, halved after four iterations."""
    rates = {"learning_rate": "1e-2", "recurrent_learning_rate": "1e-4", "learning_rate_decay": "0.5"}
    trained = trainer("scornn", tiny, optimizer="sgd", recurrent_optimizer="sgd", epochs="2", **rates)
    for iteration in range(2 * trained.iterations_per_epoch):
        before = {name: value.detach().clone() for name, value in trained.model.named_parameters()}
        trained.advance()
        for name, value in trained.model.named_parameters():
            rate = 1e-4 if name == "skew_entries" else 1e-2
            rate *= 0.5 ** (iteration // trained.iterations_per_epoch)
            torch.testing.assert_close(value, before[name] - rate * value.grad, rtol=0, atol=1e-7, msg=name)


def test_constraint_is_restored_after_every_step(tiny):
    """oRNN's reflections are along unit vectors; a step of descent leaves the sphere."""
    trained = trainer("ornn", tiny, optimizer="sgd", learning_rate="0.5")
    for _ in range(3):
        trained.advance()
        lengths = trained.model.vectors().norm(dim=0)
        torch.testing.assert_close(lengths, torch.ones_like(lengths))


def test_plateau_decays_the_rate(tiny, rates):
    trained = trainer("rnn", tiny, learning_rate="0.2", optimizer="sgd")
    trained.training = trained.training.model_copy(update={"plateau_decay": 0.25})
    trained.advance()
    trained.state.plateaus = 2
    trained.advance()
    assert rates == [0.2, 0.2 * 0.25**2]


def test_large_memory_is_freed_between_training_and_evaluation(tiny, monkeypatch):
    monkeypatch.setattr(workspace, "_LITTLE", 0)
    pool = workspace._shared
    trained, unused = trainer("rnn", tiny), []

    def measure(outputs, targets):
        unused.append(len(pool._free) + len(pool._returned))
        workspace.take(1000, 1000)
        return {"mse": (outputs.sum(), 1.0)}

    workspace.take(1000, 1000)
    assert len(pool._returned) > 0
    evaluator = Evaluator(trained)
    monkeypatch.setattr(trained.task, "measure", measure)
    evaluator.measure(trained.task.test)
    unused.append(len(pool._free) + len(pool._returned))
    assert unused == [0, 0]


def test_evaluation_uses_every_example_once(tiny):
    """20 test sequences in batches of 8, 8 and 4 give the metric of all at once."""
    trained = trainer("rnn", tiny, evaluation_batch_size="8")
    everything = trained.task.test.batch(torch.arange(20))
    outputs, _ = trained.model(everything.inputs)
    expected = float((outputs.detach() - everything.targets).square().mean())
    measured = Evaluator(trained).measure(trained.task.test)
    torch.testing.assert_close(measured, {"mse": expected}, rtol=1e-5, atol=0)
    torch.testing.assert_close(Evaluator(trained).evaluate(probe=False).metrics, {"mse": expected}, rtol=1e-5, atol=0)


def test_one_place_says_which_weights_are_tested_and_kept(tiny, monkeypatch, tmp_path):
    """With zeros in place of the trained weights, the tests, final metrics, kept and best weights are all of zeros."""
    seen = []

    class Concluding(Adding):
        def final_metrics(self, model, report):
            seen.append(dict(model.named_parameters()))
            return {}

    def zeros(trained):
        model = copy.deepcopy(trained.model)
        for parameter in model.parameters():
            parameter.data.zero_()
        return model

    monkeypatch.setattr(Trainer, "judged", property(zeros))
    config = with_classes(resolve(Catalog(), "adding", "rnn", tiny), task_class=Concluding)
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        train(config, store, RunOptions(device="cpu", keep_weights="both"))
        (run,) = store.runs()
        tests = {row.value for row in store.metrics([run.id]) if (row.split, row.name) == ("test", "mse")}
    task = Adding(config.task_settings, 0, CPU)
    targets = task.test.batch(torch.arange(len(task.test))).targets
    assert run.status == "finished"
    (value,) = tests  # in all evaluations the same, because zero weights answer 0
    assert value == pytest.approx(float(targets.square().mean()))
    kept = [load_file(tmp_path / "r.db.weights" / f"{run.key}.{kind}.safetensors") for kind in ("best", "last")]
    for weights in (*kept, *seen):
        assert weights
        assert not any(tensor.any() for tensor in weights.values())
