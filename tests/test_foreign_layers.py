"""Layers of other programs by name and as classes: where they are found, their identity, and what is refused."""

from __future__ import annotations

import importlib
import json
import linecache
import pickle
import shlex
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from support.third_party import installed
from torch import nn

import orthobench as ob
from orthobench.errors import UsageError
from orthobench.executors.job import Job
from orthobench.isolation import isolated
from orthobench.model.build import build_model
from orthobench.plugins import Catalog, Plugin, layers
from orthobench.plugins.notebook import notebook_module
from orthobench.spec.resolve import resolve, resolve_again
from orthobench.system.location import Location
from orthobench.task import seeded_generator
from orthobench.training.build import build_trainer

CELL = """
import torch
from torch import nn
{imports}
{before}

class MyCell(nn.Module):
    def __init__(self, input_size, hidden_size, leak=0.5):
        super().__init__()
        self.W = nn.Parameter(torch.zeros(hidden_size, hidden_size))
        self.U = nn.Linear(input_size, hidden_size)
        self.leak = {leak}

    def forward(self, x, h=None):
        h = x.new_zeros(len(x), len(self.W)) if h is None else h
        return self.leak * h + torch.tanh(self.U(x) + h @ self.W.T)
"""


def text(imports: str = "", before: str = "", leak: str = "leak") -> str:
    return CELL.format(imports=imports, before=before, leak=leak)


@pytest.fixture
def write(tmp_path):
    def _write(name: str, content: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    return _write


def spec(name: Any, **settings: Any) -> Any:
    return resolve(Catalog(), "adding", name, {"hidden_size": 4, **settings}).spec


def test_layer_of_a_package_runs_like_a_model(orthobench, tiny_options):
    command = ("run", "adding", "torch.nn:GRU", *tiny_options, "-s", "num_layers=2", "-s", "probes=jacobian")
    assert orthobench(*command).code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    assert (run["model"], run["status"]) == ("torch.nn:GRU", "finished")
    record = json.loads(orthobench("show", run["run"], "--json").out)
    (facts,) = record["environment"]["plugins"]
    assert facts["distribution"] == "torch"
    assert facts["version"] == torch.__version__.partition("+")[0]
    assert list(facts["files"]) == ["torch/nn/modules/rnn.py"]
    again = orthobench(*command)
    assert "it/s" not in again.err  # it is found under the same key


def test_every_probe_measures_a_layer(orthobench, tiny_options):
    given = ("-s", "probes=jacobian,heat_map")
    assert orthobench("sweep", "adding", "--models", "torch.nn:RNN,torch.nn:LSTM", *tiny_options, *given).code == 0
    with ob.open_results() as results:
        for key in results.runs()["run"]:
            for name in ("gradient_norm/h", "gradient_norm_of_mean/h", "jacobian/end_to_end", "heat_map/h"):
                values = results.vectors(key, name).to_numpy(dtype=float)
                assert values.size > 0, name
                assert (values != 0).any(), name
        models = dict(zip(results.runs()["run"], results.runs()["model"], strict=True))
        measured = results.metrics(name="orthogonality/weight_hh_l0")["run"]
        assert {models[run] for run in measured} == {"torch.nn:RNN"}  # the blocks of an LSTM are those of gates


def test_file_module_and_notebook_have_an_identity_that_follows_their_text(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("cell.py", text())
    write("lab/__init__.py", "")
    write("lab/parts/scales.py", "LEAK = 0.5\n")
    write("lab/unused.py", "raise RuntimeError\n")
    write("lab/cells.py", text(imports="from .parts.scales import LEAK", leak="LEAK"))
    names = {"./cell.py:MyCell": "cell.py:MyCell", "lab.cells:MyCell": "lab.cells:MyCell"}
    before = {name: spec(name) for name in names}
    assert {name: each.model for name, each in before.items()} == names
    write("lab/unused.py", "raise ValueError\n")
    assert all(spec(name).key == each.key for name, each in before.items())
    write("cell.py", text(leak="0.25"))
    write("lab/parts/scales.py", "LEAK = 0.25\n")
    assert all(spec(name).model_version != each.model_version for name, each in before.items())


def weights(name: Any, plugins: tuple[Path, ...] = (), seed: int = 0) -> dict[str, list[float]]:
    """Return the weights with which a run on adding begins."""
    config = resolve(Catalog(plugins), "adding", name, {"hidden_size": 4, "train_size": 50, "test_size": 10}, seed=seed)
    with isolated():
        model = build_trainer(config, torch.device("cpu")).model
    return {each: tensor.flatten().tolist() for each, tensor in model.state_dict().items()}


def test_class_begins_with_the_same_weights_wherever_it_is(write, tmp_path, monkeypatch, notebook):
    monkeypatch.chdir(tmp_path)
    for name in ("cell.py", "renamed.py", "deep/er/cell.py", "moved.py", "lab9/cells.py"):
        write(name, text())
    expected = weights("./cell.py:MyCell")
    assert len(set(expected["layer.U.weight"])) == 8
    places = ["./renamed.py:MyCell", "./deep/er/cell.py:MyCell", "moved:MyCell", "lab9.cells:MyCell"]
    assert all(weights(place) == expected for place in places)
    assert weights(notebook(text()).MyCell) == expected
    write("other.py", text().replace("MyCell", "Renamed"))
    assert weights("./other.py:Renamed") == expected
    assert weights("./cell.py:MyCell", seed=1) != expected


def test_model_begins_with_the_same_weights_as_a_file_and_as_an_entry_point(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with installed(tmp_path / "site", monkeypatch):
        expected = weights("leaky")
        file = write("mine.py", "from newcomer.models import Leaky as Theirs\n\nclass Leaky(Theirs):\n    pass\n")
        assert weights("mine", (file,)) == weights("./mine.py:Leaky") == expected
        assert weights("yours", (write("yours.py", file.read_text()),)) == expected


@pytest.mark.parametrize("name", ["torch.nn:GRU", "torch.nn:RNN", "lstm", "scornn"])
def test_names_that_cannot_change_keep_the_seeds_of_stored_runs(name):
    config = resolve(Catalog(), "adding", name, {"hidden_size": 4, "train_size": 50, "test_size": 10}, seed=5)
    with isolated():
        trainer = build_trainer(config, torch.device("cpu"))
        generator = seeded_generator(5, "model", name)
        expected = build_model(config.model_class, config.model_settings, trainer.task.signature, generator)
    assert all(torch.equal(expected.state_dict()[each], tensor) for each, tensor in trainer.model.state_dict().items())
    assert config.spec.model_version.endswith(".2") is False


def test_weights_of_a_run_seeded_by_its_name_still_load(write, tmp_path, monkeypatch, tiny):
    """An earlier version seeded a layer by its name, and its runs are stale; their weights are as good as ever."""
    monkeypatch.chdir(tmp_path)
    write("cell.py", text())
    with monkeypatch.context() as earlier:
        earlier.setattr("orthobench.spec.resolve._SEEDED_ALIKE", "")
        earlier.setattr(Plugin, "seeds_by_name", True)
        options = ob.RunOptions(keep_weights="last")
        run = ob.run("adding", "./cell.py:MyCell", settings=tiny, db="x.db", options=options)
    (planned,) = ob.sweep("adding", "./cell.py:MyCell", settings=tiny, db="x.db", dry_run=True, jobs=0).plan.runs
    assert planned.state == "stale"
    assert planned.change == f"version of cell.py:MyCell {run.spec['model_version']} -> {run.spec['model_version']}.2"
    (metric,) = [each for each in ob.evaluate(run.key, db="x.db").metrics if each.split == "test"]
    assert metric.value == pytest.approx(run.final_value, rel=1e-6)


@pytest.mark.slow
def test_a_job_carries_the_text(write, tmp_path, monkeypatch):
    """Another machine, without the files, trains the same run."""
    monkeypatch.chdir(tmp_path)
    write("cell.py", text(imports="from beside import LEAK", leak="LEAK"))
    write("beside.py", "LEAK = 0.75\n")
    write("lab2/cells.py", text(imports="from lab2.scales import LEAK", leak="LEAK"))
    write("lab2/scales.py", "LEAK = 0.25\n")
    for name, leak in (("cell.py:MyCell", 0.75), ("lab2.cells:MyCell", 0.25)):
        config = resolve(Catalog(), "adding", name, {"hidden_size": 4})
        job = Job(config.spec, "", Location.of("x.db"), plugins=config.catalog.files)
        code = (
            "import pickle, sys\njob = pickle.load(sys.stdin.buffer)\nconfig = job.resolve()\n"
            "model = config.model_class\nassert config.spec == job.spec\n"
            "print(model.make(config.model_settings, 2, 4).leak)"
        )
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(job), cwd=elsewhere, capture_output=True)
        assert done.stdout.decode().strip() == str(leak), done.stderr.decode()


def test_layers_of_one_package_keep_the_modules_that_they_import_later(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    late = text().replace("        super().__init__()\n", "        super().__init__()\n        from . import late\n", 1)
    write("lab4/a.py", late)
    write("lab4/late.py", "")
    write("lab4/b.py", text())
    catalog = Catalog()
    first = catalog.load("model", catalog.named("lab4.a:MyCell"))
    catalog.load("model", catalog.named("lab4.b:MyCell"))
    assert first.make(first.Settings(hidden_size=4), 2, 4).leak == 0.5


def test_an_edit_after_the_import_is_noticed(write, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    write("lab3.py", text())
    cls = importlib.import_module("lab3").MyCell
    assert spec(cls).model == "lab3:MyCell"
    write("lab3.py", text(leak="1 - leak"))
    with pytest.raises(UsageError, match=r"lab3\.py has changed since it was imported: reload lab3"):
        spec(cls)


@pytest.fixture
def notebook(monkeypatch):
    """Run cells as a notebook does: in the main module, with their text known to linecache."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)

    def run(*cells: str) -> types.SimpleNamespace:
        for number, cell in enumerate(cells):
            file = f"<ipykernel-input-{number}>"
            linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
            exec(compile(cell, file, "exec"), vars(main))
        return types.SimpleNamespace(**vars(main))

    return run


CELLS = (
    "import math\nimport torch\nimport torch.nn as nn\nfrom functools import reduce\nSCALES = [0.5, 0.25]\n"
    "def start(n):\n    return nn.init.eye_(torch.empty(n, n)) * SCALES[0]\n",
    "class Base(nn.Module):\n    pass\n",
    "class Own(Base):\n    def __init__(self, input_size, hidden_size, act: str = 'tanh'):\n"
    "        super().__init__()\n        self.W = nn.Parameter(start(hidden_size))\n"
    "        self.U = nn.Linear(input_size, hidden_size)\n        self.act = getattr(torch, act)\n\n"
    "    def forward(self, x, h=None):\n        df = x\n"
    "        h = x.new_zeros(len(x), len(self.W)) if h is None else h\n"
    "        return self.act(self.U(df) + h @ self.W * math.cos(0))\n",
    "df = object()\n",
)


def test_class_of_a_notebook_is_a_module_of_what_it_uses(notebook, tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = notebook(*CELLS)
    source = notebook_module(cells.Own)
    namespace: dict[str, Any] = {"__name__": "elsewhere"}
    exec(source, namespace)
    assert torch.equal(namespace["Own"](2, 3).W, 0.5 * torch.eye(3))
    assert "reduce" not in source
    run = ob.run("adding", cells.Own, db="x.db", settings=tiny)
    assert (run.model, run.status) == ("notebook:Own", "finished")
    trained = ob.load_model(run.key, db="x.db")  # by its name alone
    assert type(trained.model.layer).__name__ == "Own"
    swept = ob.sweep("adding", [cells.Own, "scornn", nn.RNN], settings=tiny, db="x.db", jobs=0)
    assert [each.model for each in swept.runs] == ["notebook:Own", "scornn", "torch.nn:RNN"]
    assert swept.runs[0].key == run.key
    changed = notebook(CELLS[0].replace("0.5,", "0.75,"), *CELLS[1:3])
    assert spec(changed.Own).model_version != run.spec["model_version"]


GENERATED = (
    "import dataclasses, enum\nimport torch\nfrom collections import namedtuple\nfrom dataclasses import dataclass\n"
    "from enum import Enum\nfrom typing import NamedTuple\n"
    "@dataclass\nclass Config:\n    leak: float = 0.25\n"
    "    @property\n    def rest(self):\n        return 1 - self.leak\n"
    "class State(NamedTuple):\n    h: torch.Tensor\n"
    "class Mode(Enum):\n    FAST = 2\n"
    "class Flag(enum.IntFlag):\n    ON = 4\n",
    "Pair = namedtuple('Pair', 'a b')\nOther = namedtuple('Named', 'a')\nColour = Enum('Colour', 'RED')\n"
    "Made = dataclasses.make_dataclass('Made', ['a'])\nAlias = State\n",
    "class Reads(torch.nn.Module):\n"
    "    def values(self):\n"
    "        return [Config().rest, State(1).h, Mode.FAST.value, int(Flag.ON), Pair(5, 6).b, Other(7).a,\n"
    "                Colour.RED.value, Made(8).a, Alias(9).h, Alias is State]\n",
)


def test_generated_classes_of_a_notebook_are_part_of_the_module(notebook, monkeypatch):
    """Their methods have code in no cell; `Flag` has methods of a class of the same name in `enum`."""
    cells = notebook(*GENERATED)
    module = types.ModuleType("elsewhere")
    monkeypatch.setitem(sys.modules, "elsewhere", module)  # dataclasses read the module of a class
    exec(notebook_module(cells.Reads), vars(module))
    assert module.Reads().values() == cells.Reads().values() == [0.75, 1, 2, 4, 6, 7, 1, 8, 9, True]
    newer = notebook(*GENERATED, "class State(NamedTuple):\n    h: int\n    c: int = 3\n", GENERATED[2])
    assert "c: int = 3" in notebook_module(newer.Reads)


def test_value_of_a_notebook_that_no_text_gives_is_named(notebook):
    cells = notebook(
        *CELLS[:3], "df = object()\nclass Uses(Own):\n    def forward(self, x, h=None):\n        return df\n"
    )
    with pytest.raises(UsageError, match="Uses uses `df`, which is not an import, function, class or constant"):
        notebook_module(cells.Uses)
    cells = notebook(*CELLS[:3], "def make():\n    class Inner(Own):\n        pass\n    return Inner\n")
    with pytest.raises(UsageError, match="define it at the top of a module or notebook"):
        spec(cells.make())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch.nn:GRUU", "unknown class of torch.nn 'GRUU': did you mean GRU?"),
        ("torch.nnn:GRU", "torch.nnn cannot be imported: ModuleNotFoundError: No module named 'torch.nnn'"),
        ("numppy.linalg:X", "there is no package 'numppy' here: install it"),
        ("torch.nn:", "names no layer"),
        ("torch.nn:functional", "torch.nn:functional is not a class"),
        ("numpy:ndarray", "numpy:ndarray"),
        ("absent.py:MyCell", "there is no file absent.py here"),
        ("raises.py:MyCell", "raises.py cannot be imported: raises.py:5 raises ZeroDivisionError"),
        ("exits.py:MyCell", "exits.py cannot be imported: exits.py:6 raises SystemExit: 3"),
        ("plain.py:MyCel", "unknown class of plain.py 'MyCel': did you mean MyCell?"),
        ("notebook:MyCell", "notebook:MyCell was a class of a notebook or script"),
        ("torch.nn:Linear", "depends on none of the 63 steps before it"),
        ("torch.nn:Transformer", "embed_dim must be divisible by num_heads"),
    ],
)
def test_names_of_no_layer_are_one_line_and_leave_nothing(orthobench, write, tmp_path, name, message):
    write("raises.py", text(before="1 / 0"))
    write("exits.py", text(before="print('usage')\nraise SystemExit(3)"))
    write("plain.py", text())
    outcome = orthobench("run", "adding", name, "-s", "hidden_size=4", "--db", "new.db")
    assert outcome.code == 2
    assert message in outcome.err
    assert (len(outcome.err.strip().splitlines()), outcome.out) == (1, "")
    assert not (tmp_path / "new.db").exists()


def test_settings_have_hints_and_cannot_be_the_tasks(orthobench, write, tiny_options):
    outcome = orthobench("run", "adding", "torch.nn:GRU", "-s", "num_layer=2")
    assert "unknown setting 'num_layer': did you mean num_layers" in outcome.err
    outcome = orthobench("run", "adding", "torch.nn:LSTM", *tiny_options, "-s", "layer_dropout=lots")
    assert "layer_dropout=lots: should be a number" in outcome.err
    write("clash.py", text().replace("leak=0.5", "train_size=3").replace("= leak", "= train_size"))
    outcome = orthobench("run", "adding", "clash.py:MyCell", *tiny_options)
    assert (outcome.code, "train_size" in outcome.err) == (2, True)


def test_output_of_an_import_does_not_reach_the_table(orthobench, write, tiny_options, caplog):
    write("loud.py", text(before="print('hello')"))
    outcome = orthobench("run", "adding", "loud.py:MyCell", *tiny_options)
    assert (outcome.code, "hello" in outcome.out) == (0, False)
    assert "loud.py prints when it is imported: hello" in caplog.text


def test_plugins_explains_a_layer(orthobench, write):
    out = orthobench("plugins", "torch.nn:LSTM").out
    assert "num_layers = 1" in out
    assert "Number of recurrent layers." in out
    assert "No square recurrent weights" in out
    write("cell.py", text())
    assert "A cell, run over time here." in orthobench("plugins", "./cell.py:MyCell").out


def test_equal_parameters_and_trials_of_layers(orthobench, write, tiny, tiny_options):
    write("cell.py", text())
    settings = [word for pair in tiny.items() if pair[0] != "hidden_size" for word in ("-s", "=".join(pair))]
    models = "torch.nn:LSTM,./cell.py:MyCell,torch.nn:GRUCell"
    outcome = orthobench("sweep", "adding", "--models", models, "--match-parameters", "2000", *settings)
    assert outcome.code == 0, outcome.err
    counts = {run["model"]: run["parameters"] for run in json.loads(orthobench("ls", "--json").out)}
    assert set(counts) == {"torch.nn:LSTM", "cell.py:MyCell", "torch.nn:GRUCell"}
    assert all(abs(count - 2000) <= 100 for count in counts.values())
    words = ("tune", "adding", "--models", "cell.py:MyCell", "--grid", "leak=0.1..0.9", "--trials", "2", *tiny_options)
    assert orthobench(*words).code == 0


def test_a_task_that_carries_its_state_needs_one(write, tmp_path, monkeypatch):
    from orthobench.training.build import build_trainer

    monkeypatch.chdir(tmp_path)
    write("flat.py", text().replace("return self.leak * h", "return h * 0 + self.leak"))
    sums = (
        "import torch\nfrom torch import nn\n\nclass Sums(nn.Module):\n    def __init__(self, d_model):\n"
        "        super().__init__()\n        self.mix = nn.Linear(d_model, d_model)\n\n"
        "    def forward(self, x):\n        return self.mix(x).cumsum(1)\n"
    )
    write("sums.py", sums)
    config = resolve(Catalog(), "adding", "sums.py:Sums", {"hidden_size": 4, "train_size": 50, "test_size": 50})
    trainer = build_trainer(config, torch.device("cpu"))
    assert trainer.model.initial_state(3) == ()
    monkeypatch.setattr(type(trainer.task), "carries_state", True)
    with pytest.raises(UsageError, match=r"carries the state from batch to batch, and sums\.py:Sums cannot continue"):
        build_trainer(config, torch.device("cpu"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (".double()", "its outputs are float64, but they have to be float32, as its inputs: return outputs.float()"),
        (" * 1j", "its outputs are complex64, but they have to be float32"),
    ],
)
def test_outputs_of_another_type_are_refused_before_a_run_is_stored(orthobench, write, tmp_path, change, message):
    layer = (
        "from torch import nn\n\nclass Other(nn.GRU):\n    def __init__(self, input_size, hidden_size):\n"
        "        super().__init__(input_size, hidden_size)\n\n"
        f"    def forward(self, x):\n        return super().forward(x)[0]{change}\n"
    )
    write("other.py", layer)
    outcome = orthobench("run", "adding", "other.py:Other", "-s", "hidden_size=4", "--db", "new.db")
    assert (outcome.code, len(outcome.err.strip().splitlines()), outcome.out) == (2, 1, "")
    assert message in outcome.err
    assert not (tmp_path / "new.db").exists()


def test_a_given_plugin_file_may_define_layers_alone(orthobench, write, tmp_path, tiny_options, monkeypatch):
    (tmp_path / "far").mkdir()
    write("far/cell.py", text())
    assert orthobench("run", "adding", "far/cell.py:MyCell", *tiny_options).code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    assert "add --model ./cell.py:MyCell" in orthobench("evaluate", run["run"]).err
    assert "give its path" in orthobench("evaluate", run["run"], "--model", "./cell.py:MyCell").err
    assert orthobench("evaluate", run["run"], "--plugin", "far/cell.py").code == 0
    assert "--plugin far/cell.py" in orthobench("show", run["run"]).out


def test_printed_commands_find_the_file_of_a_layer(orthobench, write, tmp_path, tiny_options, monkeypatch):
    """A file of the same name in the current folder is not taken for it."""
    write("sub/cell.py", text())
    words = ("tune", "adding", "--models", "./sub/cell.py:MyCell", "--grid", "leak=0.2..0.4", "--trials", "1")
    tuned = orthobench(*words, *tiny_options, "--data-dir", "my data")
    (run,) = json.loads(orthobench("ls", "--json").out)
    write("cell.py", text(leak="0.5"))
    _, *best = shlex.split(tuned.out.splitlines()[-1])
    assert "my data" in best
    planned = json.loads(orthobench(*best, "--dry-run", "--no-profile", "--json").out)
    assert [each["state"] for each in planned] == ["finished", *["missing"] * 4]
    assert planned[0]["run"] == run["run"]

    _, *repeat = shlex.split(json.loads(orthobench("show", run["run"], "--json").out)["reproduce"])
    assert run["run"] in orthobench(*repeat).out

    write("elsewhere/sub/cell.py", text(leak="0.5"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    shown = json.loads(orthobench("show", run["run"], "--json", "--db", "../results.db").out)["reproduce"]
    save, repeat = (shlex.split(command)[1:] for command in shown.split(" && "))
    assert orthobench(*save).code == 0
    assert run["run"] in orthobench(*repeat, "--db", "../results.db").out


def test_two_files_with_one_name_of_a_layer_are_not_mistaken(orthobench, write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("sub/cell.py", text())
    alone = spec("./sub/cell.py:MyCell")
    write("cell.py", text(leak="0.5"))
    assert spec("./sub/cell.py:MyCell") == alone
    plan = ("--dry-run", "--no-profile")
    outcome = orthobench("sweep", "adding", "--models", "./sub/cell.py:MyCell,cell.py:MyCell", *plan)
    line = "two different layers have the name 'cell.py:MyCell', in sub/cell.py and cell.py: rename one of them"
    assert (outcome.code, outcome.err) == (2, f"error: {line}\n")
    write("cell.py", text())  # the same layer
    assert orthobench("sweep", "adding", "--models", "./sub/cell.py:MyCell,cell.py:MyCell", *plan).code == 0


FAULTY = """import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, input_size, hidden_size, activation="tanh", gain=1.0, **kwargs):
        super().__init__()
        self.inp = nn.Linear(input_size, hidden_size)
        self.rec = nn.Linear(hidden_size, hidden_size)
        self.act = {"tanh": torch.tanh, "relu": torch.relu}[activation]

    def forward(self, x, h):
        return self.act(self.inp(x) + self.rec(h))


class WrongSize(Cell):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.rec = nn.Linear(hidden_size, hidden_size + 1)


class WrongType(Cell):
    def forward(self, x, h):
        return super().forward(x, h @ torch.ones(h.shape[1], h.shape[1], dtype=torch.float64))


class NoName(Cell):
    def forward(self, x, h):
        return torch.tanh(0.5 * h + squashed(x))


class Pair(Cell):
    def forward(self, x, state):
        h, c = state
        c = self.mixed(c, super().forward(x, h))
        return torch.tanh(c), (torch.tanh(c), c)

    def mixed(self, c, z):
        a, b = z.chunk(3, dim=-1)
        return c + a * b


class Sequences(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.rnn, self.out = nn.GRU(input_size, hidden_size), nn.Linear(hidden_size + 1, hidden_size)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


class Forgetful(Cell):
    def forward(self, x, h):
        return super().forward(x, h.detach())


class Wasteful(Cell):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.spare = nn.Linear(hidden_size, hidden_size)


class _Hidden(Cell):
    pass
"""


def line_of(fragment: str) -> int:
    return next(number for number, line in enumerate(FAULTY.splitlines(), 1) if fragment in line)


@pytest.mark.parametrize(
    ("name", "fragment", "message"),
    [
        ("WrongSize", "self.act(self.inp", "RuntimeError: The size of tensor a"),
        ("WrongType", "torch.float64", "RuntimeError: expected m1 and m2 to have the same dtype"),
        ("NoName", "squashed", "NameError: name 'squashed' is not defined"),
        ("Pair", "chunk(3", "ValueError: too many values to unpack"),
        ("Sequences", "self.out(self.rnn", "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_bug_of_a_layer_is_reported_with_its_line(orthobench, write, name, fragment, message):
    write("sub/cell.py", FAULTY)
    outcome = orthobench("run", "adding", f"sub/cell.py:{name}", "-s", "hidden_size=8")
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: cell.py:{name}: sub/cell.py:{line_of(fragment)} raises {message}")
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith(
        "; if it is called otherwise, set interface=cell, interface=rnn or interface=sequence\n"
    )
    assert "adapter" not in outcome.err
    shown = orthobench("-v", "run", "adding", f"sub/cell.py:{name}", "-s", "hidden_size=8").err
    assert f'cell.py", line {line_of(fragment)}, in ' in shown


def test_call_that_does_not_reach_the_layers_code_is_offered_an_adapter(orthobench, write):
    write("three.py", FAULTY.replace("def forward(self, x, h)", "def forward(self, x, h, third)"))
    outcome = orthobench("run", "adding", "three.py:Cell")
    assert "three.py:Cell: TypeError" in outcome.err
    assert "missing 1 required positional argument: 'third'" in outcome.err
    assert "set interface=cell, interface=rnn or interface=sequence, or wrap it" in outcome.err
    assert "`orthobench plugins adapter`" in outcome.err


THEIRS = """
import torch

class Theirs(torch.nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.gru = torch.nn.GRU(size, size)

    def forward(self, x):
        return self.gru(x.permute(2, 0, 1))[0].permute(1, 2, 0)
"""


def test_printed_adapter_trains_a_layer(orthobench, write, tiny_options):
    write("heads.py", THEIRS)
    assert orthobench("run", "adding", "heads.py:Theirs", "-s", "heads=4", *tiny_options).code == 2
    adapter = orthobench("plugins", "adapter").out
    write("cell.py", adapter.replace("from theirs", "from heads"))
    assert orthobench("run", "adding", "cell.py:Adapted", *tiny_options).code == 0


def test_interface_is_a_setting_that_leaves_other_keys_alone(orthobench, write, tiny_options):
    write("cell.py", text())
    for given in ((), ("-s", "interface=cell")):
        assert orthobench("run", "adding", "cell.py:MyCell", *tiny_options, *given).code == 0
    runs = json.loads(orthobench("ls", "--json").out)
    assert len({run["run"] for run in runs}) == 2
    assert len({run["final"] for run in runs}) == 1
    assert "interface" not in spec("torch.nn:GRU").model_settings
    wrong = orthobench("run", "adding", "cell.py:MyCell", *tiny_options, "-s", "interface=cells").err
    assert "interface=cells: should be 'cell', 'rnn' or 'sequence'" in wrong


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cell.py:Cell", "-s", "activation=sigmoid"], "cell.py:10 raises KeyError: 'sigmoid', for activation=sigmoid"),
        (
            ["cell.py:Cell", "-s", "activation=sigmoid", "-s", "gain=2"],
            "cell.py:10 raises KeyError: 'sigmoid', for activation=sigmoid, gain=2.0, input_size=",
        ),
        (["cell.py:Cell", "-s", "depth=2"], "unknown setting 'depth': the **kwargs of cell.py:Cell are not settings"),
        (["cell.py:Cell", "-s", "gian=2"], "unknown setting 'gian': did you mean gain?"),
        (["./cell.py"], "unknown model './cell.py': a class of a file or module is written ./cell.py:MyCell"),
    ],
)
def test_what_a_layer_lacks_is_named(orthobench, write, words, message):
    write("cell.py", f"{FAULTY}# {words}")  # equal texts are run once, from the first file
    outcome = orthobench("run", "adding", *words)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert message in outcome.err


FORGETFUL = "cell.py:Forgetful: no gradient reaches earlier steps, so it learns nothing through time"
WASTEFUL = "cell.py:Wasteful: no gradient reaches spare.weight, spare.bias, but the number of parameters counts them"


def test_layers_that_cannot_learn_are_warned_of_once(orthobench, write, tiny_options, caplog):
    write("cell.py", FAULTY)
    assert orthobench("run", "adding", "cell.py:Forgetful", *tiny_options).code == 0
    forgetful, loop = caplog.messages
    assert forgetful.startswith(FORGETFUL)
    assert loop.startswith("Forgetful runs as a loop in PyTorch: the step detaches a state from its gradient (cell.py:")
    caplog.clear()
    models = "cell.py:Forgetful,cell.py:Wasteful,cell.py:Cell,torch.nn:GRU"
    assert orthobench("sweep", "adding", "--models", models, "--seeds", "2", *tiny_options, "-q").code == 0
    warnings = sorted(message for message in caplog.messages if "no gradient" in message)
    assert [warning[: len(line)] for warning, line in zip(warnings, (FORGETFUL, WASTEFUL), strict=True)] == [
        FORGETFUL,
        WASTEFUL,
    ]
    assert "No gradient reaches spare.weight" in orthobench("plugins", "cell.py:Wasteful").out


UNSEEDED = """
import numpy as np
from torch import nn

class Unseeded(nn.RNN):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.weight_hh_l0.data.mul_(float(GENERATOR.random()))
"""


@pytest.mark.parametrize(("generator", "warned"), [("np.random.default_rng()", True), ("np.random", False)])
def test_layer_is_warned_of_whose_weights_have_no_seed(orthobench, write, tiny_options, caplog, generator, warned):
    write("cell.py", UNSEEDED.replace("GENERATOR", generator))
    assert orthobench("run", "adding", "./cell.py:Unseeded", *tiny_options).code == 0
    assert ["equal seeds do not give equal weights" in message for message in caplog.messages] == [True] * warned


def test_sweep_names_the_runs_that_could_not_start(orthobench, write, tiny_options):
    """They have no record, so `ls --status failed` would list nothing."""
    write(
        "cell.py",
        "import torch\n\nclass Empty(torch.nn.RNN):\n    def forward(self, x, h=None):\n        return x / 0, h\n",
    )
    swept = orthobench("sweep", "adding", "--models", "rnn,./cell.py:Empty", *tiny_options, "-q")
    assert (swept.code, swept.err.splitlines()[-1]) == (1, "1 of 2 runs failed, of which 1 could not start")


def test_resolved_again_in_another_catalog():
    config = resolve(Catalog(), "adding", "torch.nn:RNN", {"hidden_size": 4})
    assert resolve_again(Catalog(config.catalog.files), config.spec).spec == config.spec
    assert spec(nn.RNN) == spec("torch.nn.modules.rnn:RNN") == spec("torch.nn:RNN")


def many() -> list[str]:
    """Every layer and cell of torch, of torchrecurrent and of orthobench.nn that runs over sequences."""
    from orthobench import nn as own

    torchrecurrent = pytest.importorskip("torchrecurrent")
    names = ("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell")
    return [
        *(f"torch.nn:{name}" for name in names),
        *(f"orthobench.nn:{name}" for name in own.cells.LAYERS),
        *(f"torchrecurrent:{name}" for name in torchrecurrent.__all__),
    ]


@pytest.mark.slow
def test_layers_of_three_packages_learn_at_tiny_size(tmp_path, tiny):
    names = many()
    assert len(names) > 110
    swept = ob.sweep("adding", names, settings={**tiny, "epochs": 2}, preset="quick", db=tmp_path / "x.db", jobs=0)
    assert swept.failed == []
    assert {run.model for run in swept.runs} == set(names)
    assert {run.status for run in swept.runs} == {"finished"}


@pytest.mark.parametrize("constraint", ["cayley", "exponential", "householder", "dtriv"])
def test_constrained_weights_of_a_layer_stay_orthogonal_in_training(tmp_path, tiny, constraint):
    settings = tiny | {"constrain": constraint, "learning_rate": "1e-2"}
    database = str(tmp_path / "r.db")
    options = ob.RunOptions(device="cpu", keep_weights="last")
    run = ob.run("adding", "torch.nn:GRU", settings=settings, db=database, options=options)
    model = ob.load_model(run, database, weights="last").model
    assert any("parametrizations.weight_hh_l0" in name for name in model.state_dict())
    assert len(model.recurrent_matrices()) == 3
    for block in model.recurrent_matrices().values():
        torch.testing.assert_close(block.T @ block, torch.eye(len(block)), atol=1e-5, rtol=0)


def test_constraint_without_a_known_weight_is_one_line(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="has no weight_hh to constrain"):
        ob.run("adding", "orthobench.nn:LRU", settings=tiny | {"constrain": "cayley"})
    assert not list(tmp_path.iterdir())


def test_package_installed_after_the_first_question_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert "newly" not in layers.distributions_of_packages()
    folder = tmp_path / "newly_installed-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: newly-installed\nVersion: 1\n")
    (folder / "top_level.txt").write_text("newly\n")
    assert layers.distributions_of_packages()["newly"] == ["newly-installed"]
