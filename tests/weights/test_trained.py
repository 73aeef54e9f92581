"""Trained models come back bit for bit, and are tested again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from support.trained import KEEPING, few_reflections, kept_run

import orthobench as ob
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.training.recording import WeightsKeeper
from orthobench.weights.weights_files import decode, encode

MODELS = sorted(Catalog().names("model"))


@pytest.mark.parametrize(
    "model",
    [
        name if name in ("scornn", "lstm", "full_urnn", "mamba") else pytest.param(name, marks=pytest.mark.slow)
        for name in MODELS
    ],
)
def test_every_model_is_loaded_bit_for_bit(database, tiny, model, monkeypatch):
    """The weights are those that the trainer had, and the values those that the run stored."""
    trained = {}
    keep = WeightsKeeper.keep

    def noting(self, trainer, *, finished):
        trained.update({name: tensor.clone() for name, tensor in trainer.model.state_dict().items()})
        return keep(self, trainer, finished=finished)

    monkeypatch.setattr(WeightsKeeper, "keep", noting)
    run = kept_run(database, tiny, model, epochs="1", **few_reflections(model))
    last = ob.load_model(run, database, weights="last")
    state = last.model.state_dict()
    assert state.keys() == trained.keys()
    assert all(torch.equal(state[name], trained[name]) and state[name].dtype == trained[name].dtype for name in state)
    for which, value in (("last", run.final_value), ("best", run.best_value)):
        (metric,) = ob.evaluate(run, db=database, weights=which).metrics
        assert metric.value == metric.stored == value


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("ptb", {"batch_size": "2", "evaluation_batch_size": "1"}),
        ("cifar10", {"batch_size": "2"}),
        pytest.param("timit", {"dataset": "timit_sample", "batch_size": "2"}, marks=pytest.mark.slow),
    ],
)
def test_carried_states_images_and_final_metrics_are_loaded(database, small_data, task, settings):
    settings = settings | {"hidden_size": "8", "epochs": "1", "max_iterations": "2"}
    if task == "timit":
        pytest.importorskip("pesq")
    run = ob.run(task, "lstm", db=database, settings=settings, options=KEEPING)
    result = ob.evaluate(run, db=database, weights="last")
    assert {metric.name for metric in result.metrics} == set(run.metrics)
    for metric in result.metrics:
        assert metric.value == pytest.approx(metric.stored, rel=0, abs=0, nan_ok=True)


def test_model_is_loaded_with_its_task(database, tiny):
    run = kept_run(database, tiny)
    trained = ob.load_model(run.key[:6], database)
    assert (trained.kind, trained.iteration) == ("best", run.best_iteration)
    batch = trained.task.test.batch(torch.arange(20))
    outputs = trained(batch.inputs)
    assert torch.equal(trained(batch), outputs)
    assert outputs.shape == (20, 1)
    assert not outputs.requires_grad
    error = (outputs - batch.targets).square().mean()
    torch.testing.assert_close(error.item(), run.best_value)


def test_batch_brings_the_positions_that_its_task_reads(database):
    small = {"train_size": "20", "batch_size": "10", "test_size": "20", "hidden_size": "8", "epochs": "1"}
    run = ob.run("mqar", "lstm", db=database, settings=small, options=KEEPING)
    trained = ob.load_model(run, database, weights="last")
    batch = trained.task.test.batch(torch.arange(3))
    outputs = trained(batch)
    assert outputs.shape[:2] == batch.positions.shape
    assert torch.equal(trained(batch.inputs, positions=batch.positions), outputs)
    with pytest.raises(UsageError, match=r"^mqar reads certain steps: give the whole batch, or `positions`$"):
        trained(batch.inputs)
    with pytest.raises(UsageError, match="a batch has its own lengths and positions"):
        trained(batch, positions=batch.positions)


def test_evaluation_with_other_lengths_and_data(database, tiny):
    run = kept_run(database, tiny)
    longer = ob.evaluate(run, {"sequence_length": 40}, db=database)
    assert longer.changed == {"sequence_length": 40}
    assert longer.metrics[0].value != longer.metrics[0].stored == run.best_value
    trained = ob.load_model(run, database)
    config = resolve(Catalog(), "adding", "scornn", tiny | {"sequence_length": "40"})
    task = config.task_class(config.task_settings, 0, torch.device("cpu"))
    batch = task.test.batch(torch.arange(20))
    value = (trained(batch.inputs) - batch.targets).square().mean().item()
    assert longer.metrics[0].value == pytest.approx(value, rel=1e-5)
    other = ob.evaluate(run, seed=7, db=database)
    assert other.changed == {"seed": 7}
    assert other.metrics[0].value != run.best_value


def test_file_of_weights_needs_no_database(database, tiny, tmp_path):
    run = kept_run(database, tiny)
    ob.export(run, tmp_path / "w.safetensors", "safetensors", db=database)
    result = ob.evaluate(tmp_path / "w.safetensors")
    assert result.metrics[0].value == run.best_value
    assert result.metrics[0].stored is None


def test_moved_database_finds_its_weights(tmp_path, tiny):
    run = kept_run(str(tmp_path / "a.db"), tiny)
    (tmp_path / "new").mkdir()
    (tmp_path / "a.db").rename(tmp_path / "new" / "b.db")
    (tmp_path / "a.db.weights").rename(tmp_path / "new" / "b.db.weights")
    assert ob.evaluate(run.key, db=str(tmp_path / "new" / "b.db")).metrics[0].value == run.best_value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 9}, "hidden_size belongs to the trained run"),
        ({"sequence_lenght": 9}, "did you mean sequence_length"),
        ({"sequence_length": "x"}, "should be a whole number"),
    ],
)
def test_settings_of_other_models_are_refused(database, tiny, settings, message):
    run = kept_run(database, tiny)
    with pytest.raises(UsageError, match=message):
        ob.evaluate(run, settings, db=database)


def test_data_that_do_not_fit_the_weights_are_refused(database, tiny, monkeypatch):
    run = kept_run(database, tiny)
    task_class = ob.load_model(run, database).config.task_class
    make = task_class.__init__

    def wider(self, settings, seed, device):
        make(self, settings, seed, device)
        self.signature = replace(self.signature, input_size=3)

    monkeypatch.setattr(task_class, "__init__", wider)
    with pytest.raises(UsageError, match=r"have 2 inputs and 1 outputs, and the task .* has 3 inputs"):
        ob.evaluate(run, db=database)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-10], "another SHA-256 .*it has \\d+ of \\d+ bytes"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "another SHA-256 .*it was changed"),
        (None, "are missing: move them there, or train the run again with `force=True` and `keep_weights='best'`"),
    ],
)
def test_damaged_or_missing_file_is_named(database, tiny, damage, message):
    run = kept_run(database, tiny)
    file = Path(f"{database}.weights") / f"{run.key}.best.safetensors"
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UsageError, match=message):
        ob.load_model(run, database)


@pytest.mark.parametrize("part", [0, 5, 8, 100, -3])
def test_truncated_file_is_named(database, tiny, tmp_path, part):
    run = kept_run(database, tiny)
    content = Path(f"{database}.weights", f"{run.key}.best.safetensors").read_bytes()
    file = tmp_path / "cut.safetensors"
    file.write_bytes(content[:part])
    with pytest.raises(UsageError, match=r"cut\.safetensors is cut off"):
        ob.load_model(file)


def test_weights_of_other_programs_and_states_are_refused(database, tiny, tmp_path):
    save_file({"w": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(UsageError, match="has no facts of a run"):
        ob.load_model(tmp_path / "other.safetensors")
    run = kept_run(database, tiny)
    with pytest.raises(UsageError, match="is a training state"):
        ob.load_model(Path(f"{database}.weights", f"{run.key}.state.safetensors"))


def test_weights_of_another_model_are_refused(database, tiny, tmp_path):
    own, other = (kept_run(database, tiny, model) for model in ("scornn", "lstm"))
    names = [Path(f"{database}.weights", f"{run.key}.best.safetensors") for run in (own, other)]
    first, second = (decode(name.read_bytes(), name.name) for name in names)
    (tmp_path / "mixed.safetensors").write_bytes(encode(second.tensors, first.facts))
    with pytest.raises(UsageError, match="are not of this scornn"):
        ob.load_model(tmp_path / "mixed.safetensors")
    (tmp_path / "key.safetensors").write_bytes(encode(first.tensors, first.facts | {"key": "0" * 16}))
    with pytest.raises(UsageError, match="has a key that does not follow from its settings"):
        ob.load_model(tmp_path / "key.safetensors")


def test_run_without_weights_names_the_command(database, tiny):
    options = ob.RunOptions(device="cpu", keep_weights="none")
    run = ob.run("adding", "rnn", db=database, settings=tiny, options=options)
    with pytest.raises(UsageError, match=f"`force=True` and `keep_weights='best'`; `orthobench show {run.key}` prints"):
        ob.load_model(run, database)
    run = kept_run(database, tiny)
    with ob.open_results(database) as results:
        results.store.drop_weights(results.store.get(run.key).id, ["last"])
    with pytest.raises(UsageError, match=r"has kept only its best weights.*`keep_weights='last'`"):
        ob.load_model(run, database, weights="last")


def test_command_evaluates(database, tiny, tmp_path, orthobench):
    run = kept_run(database, tiny, "rnn")
    done = orthobench("evaluate", run.key, "--db", database, "--json")
    content = json.loads(done.out)
    assert content["metrics"][0]["value"] == content["metrics"][0]["stored"] == run.best_value
    done = orthobench("evaluate", run.key, "-s", "sequence_length=20", "--weights", "last", "--db", database)
    assert f"run {run.key}: adding rnn, last weights of iteration 12, on sequence_length=20" in done.out
    ob.export(run, tmp_path / "m.safetensors", "safetensors", db=database)
    done = orthobench("evaluate", str(tmp_path / "m.safetensors"))
    assert done.code == 0


def test_equal_weights_have_equal_bytes(tmp_path):
    """Safetensors itself writes metadata in a random order; it reads the sorted one back."""
    tensors = {"zeta": torch.arange(6.0).reshape(2, 3), "alpha": torch.ones(3, dtype=torch.float64)}
    facts = {"key": "0" * 16, "spec": {"model": "caf\u00e9"}, "iteration": 3}
    (content,) = {encode(tensors, facts) for _ in range(12)}
    assert encode(dict(reversed(tensors.items())), dict(reversed(facts.items()))) == content
    (tmp_path / "w.safetensors").write_bytes(content)
    with safe_open(tmp_path / "w.safetensors", "pt") as file:
        assert file.metadata()["format"] == "pt"
        assert json.loads(file.metadata()["orthobench"])["spec"] == facts["spec"]
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {  # noqa: SIM118
            name: tensor.tolist() for name, tensor in tensors.items()
        }
    assert int.from_bytes(content[:8], "little") % 8 == 0  # so that the numbers are aligned
