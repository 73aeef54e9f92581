"""Trained models come back bit for bit, are tested again, and leave as programs that compute the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from support import lengths

import orthobench as ob
from orthobench.errors import StorageError, UsageError
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.training.recording import WeightsKeeper
from orthobench.weights.weights_files import decode, encode

MODELS = sorted(Catalog().names("model"))
KEEPING = ob.RunOptions(device="cpu", keep_weights="both")


@pytest.fixture
def database(tmp_path) -> str:
    return str(tmp_path / "r.db")


def train(database, tiny, model="scornn", task="adding", **settings):
    return ob.run(task, model, db=database, settings=tiny | settings, options=KEEPING)


def few_reflections(model: str) -> dict[str, str]:
    """A number of reflections that fits the hidden size, for models with this setting."""
    return {"reflections": "4"} if "reflections" in Catalog().load("model", model).Settings.model_fields else {}


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
    run = train(database, tiny, model, epochs="1", **few_reflections(model))
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
    run = train(database, tiny)
    trained = ob.load_model(run.key[:6], database)
    assert (trained.kind, trained.iteration) == ("best", run.best_iteration)
    batch = trained.task.test.batch(torch.arange(20))
    outputs = trained(batch.inputs)
    assert outputs.shape == (20, 1)
    assert not outputs.requires_grad
    error = (outputs - batch.targets).square().mean()
    torch.testing.assert_close(error.item(), run.best_value)


def test_evaluation_with_other_lengths_and_data(database, tiny):
    run = train(database, tiny)
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
    run = train(database, tiny)
    ob.export(run, tmp_path / "w.safetensors", "safetensors", db=database)
    result = ob.evaluate(tmp_path / "w.safetensors")
    assert result.metrics[0].value == run.best_value
    assert result.metrics[0].stored is None


def test_moved_database_finds_its_weights(tmp_path, tiny):
    run = train(str(tmp_path / "a.db"), tiny)
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
    run = train(database, tiny)
    with pytest.raises(UsageError, match=message):
        ob.evaluate(run, settings, db=database)


def test_data_that_do_not_fit_the_weights_are_refused(database, tiny, monkeypatch):
    run = train(database, tiny)
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
    run = train(database, tiny)
    file = Path(f"{database}.weights") / f"{run.key}.best.safetensors"
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UsageError, match=message):
        ob.load_model(run, database)


@pytest.mark.parametrize("part", [0, 5, 8, 100, -3])
def test_truncated_file_is_named(database, tiny, tmp_path, part):
    run = train(database, tiny)
    content = Path(f"{database}.weights", f"{run.key}.best.safetensors").read_bytes()
    file = tmp_path / "cut.safetensors"
    file.write_bytes(content[:part])
    with pytest.raises(UsageError, match=r"cut\.safetensors is cut off"):
        ob.load_model(file)


def test_weights_of_other_programs_and_states_are_refused(database, tiny, tmp_path):
    save_file({"w": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(UsageError, match="has no facts of a run"):
        ob.load_model(tmp_path / "other.safetensors")
    run = train(database, tiny)
    with pytest.raises(UsageError, match="is a training state"):
        ob.load_model(Path(f"{database}.weights", f"{run.key}.state.safetensors"))


def test_weights_of_another_model_are_refused(database, tiny, tmp_path):
    own, other = (train(database, tiny, model) for model in ("scornn", "lstm"))
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
    run = train(database, tiny)
    with ob.open_results(database) as results:
        results.store.drop_weights(results.store.get(run.key).id, ["last"])
    with pytest.raises(UsageError, match=r"has kept only its best weights.*`keep_weights='last'`"):
        ob.load_model(run, database, weights="last")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("task", "batch"),
    [
        ("adding", None),
        ("copying", 3),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in [("adding", 3), ("copying", None)]),
    ],
)
def test_pt2_file_gives_the_same_outputs(database, tiny, tmp_path, task, batch):
    """`adding` reads the last step, `copying` all steps."""
    run = train(database, tiny, "scornn", task)
    trained = ob.load_model(run, database)
    written = ob.export(run, tmp_path / "m.pt2", "pt2", db=database, batch=batch)
    inputs = trained.task.test.batch(torch.arange(batch or 1)).inputs
    inputs = inputs[:, 0] if batch is None else inputs
    assert written.inputs == ("T", *inputs.shape[1:])
    assert (written.outputs[0] == "T") == (task == "copying")
    assert written.fixed == ""
    facts = {"orthobench.json": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=facts)
    output = program.module()(inputs)
    assert written.outputs[1:] == tuple(output.shape)[1:]
    for x in (inputs, torch.cat((inputs, inputs))):
        expected = trained(x[:, None])[..., 0, :] if batch is None else trained(x)
        torch.testing.assert_close(program.module()(x), expected)
    content = json.loads(facts["orthobench.json"])
    assert (content["spec"]["model"], content["steps"]) == ("scornn", None)


GROWING = """
import torch

class Growing(torch.nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.rnn = torch.nn.RNN(input_size, hidden_size)

    def forward(self, x):
        return self.rnn(x)[0] * torch.stack([torch.ones(()) for _ in x]).mean()
"""
"""A layer whose program has as many operations as its sequence has steps, and that returns no state."""


@pytest.mark.filterwarnings("ignore")
def test_program_that_fits_one_length_says_so(database, tiny, tmp_path, orthobench):
    (tmp_path / "cell.py").write_text(GROWING)
    model = f"{tmp_path / 'cell.py'}:Growing"
    run = train(database, tiny, model, epochs="1")
    written = ob.export(run, tmp_path / "m.pt2", "pt2", db=database, model=model)
    assert written.inputs == (10, 2)
    facts = {"orthobench.json": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=facts)
    assert json.loads(facts["orthobench.json"])["steps"] == 10
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(program.module()(x), ob.load_model(run, database, model=model)(x[:, None])[0])
    assert "\n" not in written.fixed
    assert "Constraints violated" in written.fixed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_a_pt2_file_for_any_number_of_steps(database, tiny, tmp_path, model):
    run = train(database, tiny, model, epochs="1", **few_reflections(model))
    trained = ob.load_model(run, database)
    written = ob.export(run, tmp_path / "m.pt2", "pt2", db=database)
    assert (written.inputs, written.fixed) == (("T", 2), "")
    program = torch.export.load(tmp_path / "m.pt2").module()
    for steps in (1, 2, 3, 17):
        inputs = torch.randn(steps, 2, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(program(inputs), trained(inputs[:, None])[0])
    written = ob.export(run, tmp_path / "m.pt2", "pt2", db=database, steps=7)
    assert written.inputs == (7, 2)
    inputs = torch.randn(7, 2, generator=torch.Generator().manual_seed(0))
    output = torch.export.load(tmp_path / "m.pt2").module()(inputs)
    torch.testing.assert_close(output, trained(inputs[:, None])[0])


@pytest.mark.filterwarnings("ignore")
def test_model_that_onnx_cannot_express_is_one_line(database, tiny, tmp_path):
    pytest.importorskip("onnxscript")
    run = train(database, tiny, "lru", epochs="1")
    with pytest.raises(UsageError, match="LRU cannot be expressed in ONNX: write pt2"):
        ob.export(run, tmp_path / "m.onnx", "onnx", db=database)
    assert list(tmp_path.glob("m*")) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", ["scornn", "gated_deltaproduct", "mamba", "rwkv7", "stack_lstm"])
def test_onnx_file_gives_the_same_outputs(database, tiny, tmp_path, model):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    run = train(database, tiny, model)
    words = ("export", run.key, tmp_path / "m.onnx", "--format", "onnx", "--db", database)
    command = [sys.executable, "-m", "orthobench", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")  # the exporter warns about packages that it misses
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    for steps in (1, 2, 12, 30):
        inputs = torch.randn(steps, 2, generator=torch.Generator().manual_seed(0))
        (output,) = session.run(None, {"inputs": inputs.numpy()})
        torch.testing.assert_close(torch.from_numpy(output), ob.load_model(run, database)(inputs[:, None])[0])
    (facts,) = [entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props if entry.key == "orthobench"]
    assert json.loads(facts)["spec"]["task"] == "adding"
    assert [file.name for file in tmp_path.glob("m.*")] == ["m.onnx"]


def test_missing_package_is_one_line(database, tiny, tmp_path, monkeypatch):
    run = train(database, tiny, "rnn")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[onnx\]'"):
        ob.export(run, tmp_path / "m.onnx", "onnx", db=database)
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("form", ["safetensors", "onnx", "pt2"])
def test_file_of_another_kind_is_kept(database, tiny, tmp_path, form):
    run = train(database, tiny, "rnn")
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UsageError, match="refusing to overwrite"):
        ob.export(run, tmp_path / "notes", form, db=database)
    assert (tmp_path / "notes").read_text() == "mine"


def test_missing_folder_is_named_with_the_fix(database, tiny, tmp_path):
    run = train(database, tiny, "rnn")
    (tmp_path / "notes").write_text("mine")
    for folder, reason in (("new", "No such file or directory"), ("notes", "Not a directory")):
        with pytest.raises(StorageError, match=f"w cannot be written: {reason}: create its folder, or name another"):
            ob.export(run, tmp_path / folder / "w", "safetensors", db=database)


def test_unknown_format_is_refused(database, tiny, tmp_path, orthobench):
    run = train(database, tiny, "rnn")
    done = orthobench("export", run.key, "--format", "keras", str(tmp_path / "m"), "--db", database)
    assert done.code == 2
    assert "'--format': 'keras' is not one of 'safetensors', 'onnx', 'pt2'" in done.err


def test_commands_evaluate_and_export(database, tiny, tmp_path, orthobench):
    run = train(database, tiny, "rnn")
    done = orthobench("evaluate", run.key, "--db", database, "--json")
    content = json.loads(done.out)
    assert content["metrics"][0]["value"] == content["metrics"][0]["stored"] == run.best_value
    done = orthobench("evaluate", run.key, "-s", "sequence_length=20", "--weights", "last", "--db", database)
    assert f"run {run.key}: adding rnn, last weights of iteration 12, on sequence_length=20" in done.out
    done = orthobench("export", run.key, "--format", "pt2", str(tmp_path / "m.pt2"), "--db", database)
    assert 'its input "inputs" is float32 [T, 2]: [time, features]' in done.out
    assert "its output is [1]" in done.out
    done = orthobench("export", run.key, "--format", "pt2", str(tmp_path / "m.pt2"), "--steps", "6", "--db", database)
    assert 'its input "inputs" is float32 [6, 2]: [time, features]' in done.out
    done = orthobench("export", run.key, "--format", "safetensors", str(tmp_path / "m.safetensors"), "--db", database)
    assert (done.code, done.out) == (0, f"weights written to {tmp_path / 'm.safetensors'}\n")
    done = orthobench("evaluate", str(tmp_path / "m.safetensors"))
    assert done.code == 0


@pytest.mark.parametrize("form", ["pt2", "onnx"])
@pytest.mark.filterwarnings("ignore")
def test_constrained_layer_of_torch_is_exported(database, tiny, tmp_path, form):
    """torch.nn.GRU keeps its weights in a list, and a constrained one is the result of a computation."""
    run = train(database, tiny, "torch.nn:GRU", constrain="cayley", epochs="1")
    trained = ob.load_model(run, database)
    x = torch.rand(10, 3, 2, generator=torch.Generator().manual_seed(0))
    expected = trained(x).numpy()
    file = tmp_path / f"gru.{form}"
    if form == "pt2":
        ob.export(run, file, form, batch=3, db=database)
        result = torch.export.load(str(file)).module()(x).detach().numpy()
    else:
        pytest.importorskip("onnxscript", reason="the extra orthobench[onnx] is not installed")
        runtime = pytest.importorskip("onnxruntime")
        ob.export(run, file, form, batch=3, db=database)
        (result,) = runtime.InferenceSession(file).run(None, {"inputs": x.numpy()})
    assert result == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_example_of_the_document_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "weights.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(block, "docs/weights.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == "True"


@pytest.mark.parametrize("batch", [None, 3])
def test_program_of_a_symbol_task_reads_token_numbers(tmp_path, batch, orthobench):
    plugin = tmp_path / "sums.py"
    text = Path(lengths.__file__).read_text("utf-8")
    plugin.write_text(text[: text.index("class RunningSums")] + text[text.index("class SumsSplit") :], "utf-8")
    db, options = str(tmp_path / "runs.db"), ob.RunOptions(plugins=(plugin,), keep_weights="last")
    sizes = {"train_size": 20, "test_size": 20, "batch_size": 10, "epochs": 1, "hidden_size": 8}
    run = ob.run("sums", "rnn", settings=sizes, db=db, options=options)
    written = ob.export(run, tmp_path / "sums.pt2", "pt2", steps=5, batch=batch, db=db, plugins=[plugin])
    assert (written.inputs, written.tokens) == ((5, *(() if batch is None else (batch,))), True)
    sizes = () if batch is None else ("--batch", str(batch))
    common = ("--steps", "5", *sizes, "--db", db, "--plugin", str(plugin))
    done = orthobench("export", run.key, "--format", "pt2", str(tmp_path / "again.pt2"), *common)
    shape = "[5]: [time]" if batch is None else "[5, 3]: [time, batch]"
    assert f'its input "inputs" is int64 {shape}, numbers of symbols\n' in done.out
    trained = ob.load_model(run, db, plugins=[plugin])
    symbols = torch.randint(3, (5, batch or 1), generator=torch.Generator().manual_seed(0))
    program = torch.export.load(str(tmp_path / "sums.pt2")).module()
    result = program(symbols if batch else symbols[:, 0])
    expected = trained(symbols)
    torch.testing.assert_close(result, expected if batch else expected[0], rtol=1e-5, atol=1e-6)
    evaluated = ob.evaluate(run, db=db, plugins=[plugin])
    stored = ob.open_results(db).by_length(run).loc[run.iterations].dropna()
    assert evaluated.by_length == pytest.approx(stored.to_dict())


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
