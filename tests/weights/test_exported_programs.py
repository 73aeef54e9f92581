"""Trained models leave as programs that compute the same, for any number of steps, and bad requests are one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import lengths
from support.trained import few_reflections, kept_run

import orthobench as ob
from orthobench.errors import StorageError, UsageError
from orthobench.plugins import Catalog

MODELS = sorted(Catalog().names("model"))


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
    run = kept_run(database, tiny, "scornn", task)
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
    run = kept_run(database, tiny, model, epochs="1")
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
    run = kept_run(database, tiny, model, epochs="1", **few_reflections(model))
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


def test_failure_of_the_onnx_exporter_is_one_line(database, tiny, tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    run = kept_run(database, tiny, "rnn")

    def fail(*_, **__):
        raise torch.onnx.OnnxExporterError("an operation\nhas no counterpart")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(UsageError, match=r"^RNN cannot be expressed in ONNX: write pt2 instead.*$"):
        ob.export(run, tmp_path / "m.onnx", "onnx", db=database)
    assert list(tmp_path.glob("m*")) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_model_that_onnx_cannot_express_is_one_line(database, tiny, tmp_path):
    pytest.importorskip("onnxscript")
    run = kept_run(database, tiny, "lru", epochs="1")
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
    run = kept_run(database, tiny, model)
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
    run = kept_run(database, tiny, "rnn")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[onnx\]'"):
        ob.export(run, tmp_path / "m.onnx", "onnx", db=database)
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("form", ["safetensors", "onnx", "pt2"])
def test_file_of_another_kind_is_kept(database, tiny, tmp_path, form):
    run = kept_run(database, tiny, "rnn")
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UsageError, match="refusing to overwrite"):
        ob.export(run, tmp_path / "notes", form, db=database)
    assert (tmp_path / "notes").read_text() == "mine"


def test_missing_folder_is_named_with_the_fix(database, tiny, tmp_path):
    run = kept_run(database, tiny, "rnn")
    (tmp_path / "notes").write_text("mine")
    for folder, reason in (("new", "No such file or directory"), ("notes", "Not a directory")):
        with pytest.raises(StorageError, match=f"w cannot be written: {reason}: create its folder, or name another"):
            ob.export(run, tmp_path / folder / "w", "safetensors", db=database)


def test_unknown_format_is_refused(database, tiny, tmp_path, orthobench):
    run = kept_run(database, tiny, "rnn")
    done = orthobench("export", run.key, "--format", "keras", str(tmp_path / "m"), "--db", database)
    assert done.code == 2
    assert "'--format': 'keras' is not one of 'safetensors', 'onnx', 'pt2'" in done.err


def test_command_says_what_the_program_reads(database, tiny, tmp_path, orthobench):
    run = kept_run(database, tiny, "rnn")
    done = orthobench("export", run.key, "--format", "pt2", str(tmp_path / "m.pt2"), "--db", database)
    assert 'its input "inputs" is float32 [T, 2]: [time, features]' in done.out
    assert "its output is [1]" in done.out
    done = orthobench("export", run.key, "--format", "pt2", str(tmp_path / "m.pt2"), "--steps", "6", "--db", database)
    assert 'its input "inputs" is float32 [6, 2]: [time, features]' in done.out
    done = orthobench("export", run.key, "--format", "safetensors", str(tmp_path / "m.safetensors"), "--db", database)
    assert (done.code, done.out) == (0, f"weights written to {tmp_path / 'm.safetensors'}\n")


@pytest.mark.parametrize("form", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_constrained_layer_of_torch_is_exported(database, tiny, tmp_path, form):
    """torch.nn.GRU keeps its weights in a list, and a constrained one is the result of a computation."""
    run = kept_run(database, tiny, "torch.nn:GRU", constrain="cayley", epochs="1")
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
    expected = trained(symbols, lengths=torch.full((batch or 1,), 5))
    torch.testing.assert_close(result, expected if batch else expected[0], rtol=1e-5, atol=1e-6)
    evaluated = ob.evaluate(run, db=db, plugins=[plugin])
    stored = ob.open_results(db).by_length(run).loc[run.iterations].dropna()
    assert evaluated.by_length == pytest.approx(stored.to_dict())
