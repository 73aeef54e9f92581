"""Names in stored data are data: only a layer that the user names has its code imported."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch

import orthobench as ob
from orthobench.errors import UsageError
from orthobench.plugins import catalog
from orthobench.spec.resolve import RunSpec
from orthobench.weights.weights_files import decode, encode, sha256

EVIL = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nfrom torch.nn import GRU as Cell\n"
CELL = "from torch import nn\n\nclass MyCell(nn.GRU):\n    pass\n"


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    """Forget the layers that earlier tests have named."""
    monkeypatch.setattr(catalog, "_NAMED", {})


@pytest.fixture
def stranger(after, tmp_path, tiny_options):
    """A function from a model's name to a file of weights and a database, both of a stranger, that name it."""
    after(("run", "adding", "torch.nn:GRU", *tiny_options))
    for name in ("evil.py", "evil_package/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(EVIL)
    (file,) = Path("results.db.weights").iterdir()

    def name_it(model: str) -> tuple[Path, str]:
        found = decode(file.read_bytes(), file.name)
        spec = found.facts["spec"] | {"model": model}
        key = RunSpec(**spec).key
        content = encode(found.tensors, found.facts | {"spec": spec, "key": key})
        name = f"{key}.best.safetensors"
        for copy in (Path("x.safetensors"), Path("results.db.weights", name)):
            copy.write_bytes(content)
        with sqlite3.connect("results.db") as connection:
            names = (model, json.dumps(spec), key, RunSpec(**spec).variant)
            connection.execute("UPDATE run SET model = ?, spec = ?, key = ?, variant = ?", names)
            values = (name, sha256(content), len(content))
            connection.execute("UPDATE weights SET path = ?, sha256 = ?, bytes = ?", values)
        return Path("x.safetensors"), key

    return name_it


def given(model: str, tmp_path: Path) -> str:
    return model.replace("HERE", str(tmp_path))


STRANGERS = ["./evil.py:Cell", "evil.py:Cell", "evil:Cell", "evil_package:Cell", "HERE/evil.py:Cell", "antigravity:x"]


@pytest.mark.parametrize("model", STRANGERS)
def test_a_strangers_file_or_database_imports_nothing(orthobench, stranger, tmp_path, model):
    model = given(model, tmp_path)
    file, key = stranger(model)
    named = f"--model {model if '/' in model or not model.startswith('evil.py') else f'./{model}'}"
    for run in (str(file), key):
        for command in (
            ("evaluate", run),
            ("export", run, "m.onnx", "--format", "onnx"),
            ("export", run, "m.safetensors", "--format", "safetensors"),
        ):
            outcome = orthobench(*command)
            assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
            assert "its code is not imported" in outcome.err
            assert named in outcome.err
    for command in (
        ("show", key),
        ("ls",),
        ("cite", key),
        ("compare", "task=adding"),
        ("report",),
        ("db", "info"),
        ("db", "repair", "new.db"),
        ("delete", key, "--yes"),
    ):
        orthobench(*command)
    assert not any(tmp_path.rglob("ran"))


@pytest.mark.parametrize(
    ("name", "flag", "other"),
    [
        ("./cell.py:MyCell", "--model ./cell.py:MyCell", ("--plugin", "cell.py")),
        ("cells_of_mine:MyCell", "--model cells_of_mine:MyCell", ()),
        ("torch.nn:GRU", "--model torch.nn:GRU", ("--model", "torch.nn.modules.rnn:GRU")),
    ],
)
def test_the_error_says_what_to_add_for_a_run_of_ones_own(orthobench, tmp_path, tiny_options, name, flag, other):
    for file in ("cell.py", "cells_of_mine.py"):
        (tmp_path / file).write_text(CELL)
    assert orthobench("run", "adding", name, *tiny_options).code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    refused = orthobench("evaluate", run["run"])
    assert refused.code == 2
    assert refused.err.rstrip().endswith(f"if you trust it, add {flag}")
    for words in (flag.split(), other):
        if words:
            found = json.loads(orthobench("evaluate", run["run"], *words, "--json").out)
            assert found["metrics"][0]["value"] == found["metrics"][0]["stored"]
    assert orthobench("export", run["run"], "m.safetensors", "--format", "safetensors", *flag.split()).code == 0
    assert orthobench("evaluate", "m.safetensors", *flag.split()).code == 0


def test_another_layer_does_not_stand_for_the_stored_one(orthobench, tiny_options):
    assert orthobench("run", "adding", "torch.nn:GRU", *tiny_options).code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    assert "add --model torch.nn:GRU" in orthobench("evaluate", run["run"], "--model", "torch.nn:LSTM").err


def test_python_takes_the_class_or_remembers_it(tmp_path, tiny, monkeypatch):
    run = ob.run("adding", torch.nn.GRU, settings=tiny, db=tmp_path / "x.db", options=ob.RunOptions(device="cpu"))
    assert ob.load_model(run, tmp_path / "x.db").key == run.key  # this process has named it
    monkeypatch.setattr(catalog, "_NAMED", {})
    with pytest.raises(UsageError, match=r"named only in stored data.*add `model='torch\.nn:GRU'`"):
        ob.load_model(run, tmp_path / "x.db")
    values: list[Any] = [torch.nn.GRU, "torch.nn:GRU"]
    for value in values:
        monkeypatch.setattr(catalog, "_NAMED", {})
        assert ob.evaluate(run, db=tmp_path / "x.db", model=value).metrics[0].value == run.best_value


def test_a_missing_plugin_is_named_with_its_flag(orthobench, tmp_path, tiny_options):
    source = "from orthobench.models.rnn import RNN\n\nclass Mine(RNN):\n    title = 'Mine'\n    paper = 'none'\n"
    (tmp_path / "mine.py").write_text(source)
    assert orthobench("run", "adding", "mine", "--plugin", "mine.py", *tiny_options).code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    assert "its model mine is neither built in nor installed: give its file with --plugin" in (
        orthobench("evaluate", run["run"]).err
    )
    assert orthobench("evaluate", run["run"], "--plugin", "mine.py").code == 0
