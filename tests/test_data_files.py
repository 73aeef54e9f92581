"""The files that a class names as its `data_files` are part of a run's key, as its text is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orthobench as ob
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.plugins.layers import find_layer
from orthobench.spec.resolve import resolve

TASK = """
from pathlib import Path
import numpy as np
import torch
from torch import nn
from orthobench.model import Signature
from orthobench.settings import Settings
from orthobench.task import Batch, Metric, Task
{before}

class Series(Settings):
    pass


class Mine(Task):
    title, Settings, name = "mine", Series, "mine"
    metrics = (Metric("mse", "min"),)
    protocol = {{"batch_size": 5}}
    quick = {{}}
    {declared}

    def __init__(self, settings, seed, device):
        x = {read}
        self.signature = Signature(input_size=1, output_size=1, readout="last")
        self.train = self.test = Split(torch.from_numpy(x).float())

    def loss(self, outputs, targets):
        return nn.functional.mse_loss(outputs, targets)

    def measure(self, outputs, targets):
        return {{"mse": (((outputs - targets) ** 2).sum(), len(targets))}}

    @classmethod
    def baselines(cls, settings):
        return {{"mse": 1.0}}


class Split:
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def batch(self, examples):
        {lazily}
        x = self.x[examples]
        return Batch(x.T.unsqueeze(-1), x.sum(1, keepdim=True))
"""
LAYER = """
import numpy as np
import torch
from torch import nn
{before}

class Cell(nn.Module):
    {declared}
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.cell = nn.RNN(input_size, hidden_size)
        self.start = float({read})

    def forward(self, x, h=None):
        return self.cell(x, h)
"""
HASHED = """
    file: str = "d.npy"
    file_md5: str | None = None

    @model_validator(mode="before")
    @classmethod
    def hashed(cls, values):
        return with_checksum({{"file": "d.npy", **values}}, "file", md5)
"""
SETTINGS = {"hidden_size": 4, "epochs": 2}
SMALL = {**SETTINGS, "train_size": 40, "test_size": 20, "sequence_length": 5, "batch_size": 10}
"""A short run on adding."""
READ = 'np.load(Path(__file__).with_name("d.npy"))'
DECLARED = 'data_files = ("d.npy",)'


@pytest.fixture(autouse=True)
def _data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "sets"))
    np.save("d.npy", np.linspace(0, 1, 40).reshape(10, 4))


def write(name: str, text: str, **parts: str) -> Path:
    Path(name).write_text(text.format(**{"before": "", "declared": "", "lazily": "pass", **parts}))
    return Path(name)


def run(**options: Any) -> Any:
    return ob.run("mine", "rnn", settings=SETTINGS, options=ob.RunOptions(plugins=(Path("mine.py"),)), **options)


def key(task: str, model: str, *plugins: Path) -> str:
    return resolve(Catalog(plugins), task, model, {"hidden_size": 4}).spec.key


def test_a_changed_file_is_another_run_everywhere(orthobench):
    write("mine.py", TASK, read=READ, declared=DECLARED)
    before = run()
    again = run()
    assert (again.key, again.created_at) == (before.key, before.created_at)
    np.save("d.npy", np.zeros((10, 4)))
    planned = orthobench(
        "sweep", "mine", "--models", "rnn", "--plugin", "mine.py", "-s", "hidden_size=4", "-s", "epochs=2", "--dry-run"
    )
    assert "1 stale" in planned.out
    after = run()
    assert after.key != before.key
    assert after.final_value != before.final_value
    assert before.environment.facts["plugins"][0]["data"] != after.environment.facts["plugins"][0]["data"]
    with ob.open_results() as results:
        assert set(results.runs()["run"]) == {before.key, after.key}


@pytest.mark.slow
def test_a_worker_process_has_the_same_key():
    write("mine.py", TASK, read=READ, declared=DECLARED)
    options = ob.SweepOptions(plugins=(Path("mine.py"),), jobs=1)
    sweep = ob.sweep("mine", "rnn", seeds=2, settings=SETTINGS, options=options)
    assert [each.status for each in sweep.runs] == ["finished"] * 2


def test_a_file_that_is_not_named_is_no_part_of_the_key():
    file = write("mine.py", TASK, read=READ)
    before = key("mine", "rnn", file)
    np.save("d.npy", np.zeros((10, 4)))
    assert key("mine", "rnn", file) == before


def test_a_copy_elsewhere_is_the_same_run(tmp_path):
    file = write("mine.py", TASK, read=READ, declared=DECLARED)
    before = key("mine", "rnn", file)
    (tmp_path / "copy").mkdir()
    for name in ("mine.py", "d.npy"):
        (tmp_path / "copy" / name).write_bytes(Path(name).read_bytes())
    assert key("mine", "rnn", tmp_path / "copy" / "mine.py") == before


@pytest.mark.parametrize(
    "declared",
    [
        "data_files = 'd.npy'",
        "data_files = ('*.npy',)",
        "data_files = '**/*.npy'",
        "data_files = [Path(__file__).with_name('d.npy')]",
    ],
)
def test_files_patterns_and_paths_are_names(declared):
    file = write("mine.py", TASK, read=READ, declared=declared)
    before = key("mine", "rnn", file)
    Path("._d.npy").write_bytes(b"of macOS")
    Path(".ipynb_checkpoints").mkdir()
    Path(".ipynb_checkpoints/d.npy").write_bytes(b"of Jupyter")
    assert key("mine", "rnn", file) == before
    np.save("d.npy", np.ones((10, 4)))
    assert key("mine", "rnn", file) != before


def test_a_folder_counts_with_the_files_that_it_gains():
    file = write(
        "mine.py", TASK, read='np.load(Path(__file__).parent / "sub" / "d.npy")', declared="data_files = ('sub',)"
    )
    Path("sub").mkdir()
    Path("d.npy").rename("sub/d.npy")
    before = key("mine", "rnn", file)
    run()
    Path("sub/new.txt").write_text("")
    assert key("mine", "rnn", file) != before
    Path("other").mkdir()
    Path("sub/linked").symlink_to(Path("other").absolute())
    with pytest.raises(UsageError, match=r"sub/linked is a link to .*other, which is not a file: copy its files here"):
        key("mine", "rnn", file)
    Path("sub/linked").unlink()
    Path("sub/d.npy").unlink()
    Path("sub/new.txt").unlink()
    with pytest.raises(UsageError, match="data_files of Mine names 'sub', and there is no such file in"):
        key("mine", "rnn", file)


@pytest.mark.parametrize("before", ["", "X = np.load('d.npy')"])
def test_a_layer_names_its_files_too(before):
    read = "X[0, 0]" if before else "np.load('d.npy')[0, 0]"
    write("cell.py", LAYER, read=read, before=before, declared=DECLARED)
    first = ob.run("adding", "./cell.py:Cell", settings=SMALL)
    np.save("d.npy", np.full((10, 4), 2.0))
    second = ob.run("adding", "./cell.py:Cell", settings=SMALL)
    assert first.key != second.key
    assert find_layer("./cell.py:Cell").load()(2, 3).start == 2.0  # the text has run again


def test_settings_with_a_checksum_need_no_name():
    text = TASK.replace("    pass\n", HASHED, 1)
    before = "from pydantic import model_validator\nfrom orthobench.data.checksums import md5, with_checksum"
    write("mine.py", text, read="np.load(settings.file)", before=before)
    first = run()
    np.save("d.npy", np.zeros((10, 4)))
    assert run().key != first.key
