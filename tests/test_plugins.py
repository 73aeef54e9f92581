"""Plugins from all three sources, and the errors for broken plugins."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.testing import problems

GOOD_MODEL = """
import torch
from torch import nn
from orthobench.model import Model
from orthobench.recurrence import RELU, recurrence

class Identity(Model):
    title = "identity start"
    paper = "Le, Jaitly, Hinton 2015"

    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        n = settings.hidden_size
        self.input_weight = nn.Parameter(0.1 * torch.randn(n, signature.input_size, generator=generator))
        self.recurrent_weight = nn.Parameter(torch.eye(n))

    def states(self, inputs, state, trace):
        x = nn.functional.linear(inputs, self.input_weight)
        h, final = recurrence(x, self.recurrent_weight, state, trace, RELU)
        return h, final

    def recurrent_matrices(self):
        return {"W": self.recurrent_weight}
"""


@pytest.fixture
def write(tmp_path: Path):
    def _write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return _write


@pytest.fixture
def distribution(write, tmp_path, monkeypatch):
    """A package of somebody else's, installed as far as Python can tell."""
    write("theirs.py", GOOD_MODEL)
    write("theirs-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    write(
        "theirs-1.0.dist-info/entry_points.txt",
        "[orthobench.models]\nidentity = theirs:Identity\nlstm = theirs:Identity\nlost = theirs:Nothing\n"
        "wrong = theirs:torch\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("theirs", None)


def test_built_in_plugins_are_their_files():
    catalog = Catalog()
    assert set(catalog.names("task")) >= {"adding", "copying"}
    assert set(catalog.names("model")) >= {"scornn", "lstm", "gru", "rnn"}
    assert catalog.broken == []
    assert catalog.load("model", "scornn").__name__ == "ScoRNN"
    assert not {"models", "tasks"} & set(sys.modules)  # imported twice under two names, they would be two classes


@pytest.mark.parametrize(("kind", "name"), [(plugin.kind, plugin.name) for plugin in Catalog()])
def test_built_in_plugins_meet_the_contract(kind, name, small_data):
    assert problems(kind, Catalog().load(kind, name)) == []


@pytest.mark.usefixtures("distribution")
def test_installed_plugins_are_found_and_broken_ones_explained(orthobench, tiny_options):
    catalog = Catalog()
    assert catalog.load("model", "identity").title == "identity start"
    with pytest.raises(UsageError, match=r"'lost' \(theirs\) cannot be used: AttributeError"):
        catalog.load("model", "lost")
    with pytest.raises(UsageError, match="is not a class derived from orthobench"):
        catalog.load("model", "wrong")
    assert catalog.load("model", "lstm").title == "LSTM"  # a name that is taken stays whose it was
    listed = {entry["name"]: entry for entry in json.loads(orthobench("plugins", "--json").out) if entry["problem"]}
    assert "taken" in listed["lstm"]["problem"]
    assert "Nothing" in listed["lost"]["problem"]
    assert orthobench("run", "adding", "identity", *tiny_options).code == 0


def test_a_file_is_a_plugin(orthobench, write, tiny_options, small_data):
    path = write("mine.py", GOOD_MODEL)
    first = orthobench("run", "adding", "mine", "--plugin", str(path), *tiny_options)
    assert first.code == 0
    assert orthobench("plugins", "--plugin", str(path), "--check").code == 0
    write("mine.py", GOOD_MODEL + "\n# edited\n")
    again = orthobench("run", "adding", "mine", "--plugin", str(path), *tiny_options)
    assert first.out.split()[1] != again.out.split()[1]  # an edited file is another model


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mine.py", "import nothing_of_this_name", "ModuleNotFoundError"),
        ("mine.py", "x = 1", "defines no task and no model"),
        ("mine.txt", GOOD_MODEL, "not a Python file"),
        ("mine.py", "raise SystemError('boom')", "boom"),
        ("mine.py", "import sys; sys.exit(0)", "SystemExit: 0"),
        (
            "mine.py",
            "from orthobench.model import Model\nclass Mine(Model): pass",
            "Mine does not define recurrent_matrices, states",
        ),
    ],
)
def test_a_file_that_is_none_is_told_in_one_line(orthobench, write, name, text, message):
    outcome = orthobench("run", "adding", "mine", "--plugin", str(write(name, text)))
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


FAULTS = {
    "self.recurrent_weight = nn.Parameter(torch.eye(n))": [
        ("self.recurrent_weight = nn.Parameter(torch.randn(n, n))", "random_numbers_come_from_the_generator"),
        ("self.recurrent_weight = torch.eye(n)", "the_state_dict_is_complete"),
        (
            "self.recurrent_weight = nn.Parameter(torch.eye(n)); self.idle = nn.Parameter(torch.eye(n))",
            "every_parameter",
        ),
    ],
    "return h, final": [
        ("return h, (h[0],)", "the_final_state_continues_a_sequence"),
        ("return h, (2 * h[-1],)", "outputs_have_the_signatures_shape"),
        ("return h[:, :, :1].expand_as(h).detach(), final", "every_parameter_is_trained_once"),
    ],
    "state, trace, RELU": [("state, None, RELU", "the_gradient_is_traced")],
    'title = "identity start"': [('title = "identity start"; orthogonal = True', "matrices_are_square_and_orthogonal")],
    'return {"W": self.recurrent_weight}': [('return {"W": self.input_weight}', "matrices_are_square_and_orthogonal")],
}


@pytest.mark.parametrize(("right", "wrong", "check"), [(r, *fault) for r, faults in FAULTS.items() for fault in faults])
def test_the_contract_finds_planted_faults(write, right, wrong, check):
    if wrong == "self.recurrent_weight = torch.eye(n)":
        wrong = "self.recurrent_weight = torch.rand(n, n, generator=generator)"
    assert right in GOOD_MODEL
    path = write("faulty.py", GOOD_MODEL.replace(right, wrong))
    violations = problems("model", Catalog([path]).load("model", "faulty"))
    assert any(problem.startswith(check) for problem in violations), violations


TASK_FAULTS = [
    ("generator=generator", "", "the_seed_makes_the_data"),
    ('"adding", "test"', '"adding", "train"', "the_seed_makes_the_data"),
    ('reduction="sum"), targets.shape[0]', 'reduction="mean"), 1', "metrics_add_up"),
    ("dim=-1)\n", "dim=0)\n", "batches_fit_the_signature"),
    ('return {"mse": 2 / 12}', "return {}", "metrics_add_up"),
    ("values, marked = self.values[examples]", "values, marked = self.values[: len(examples)]", "batches_fit"),
    ("marker_layout:", "batch_size:", "settings_have_names"),
]


@pytest.mark.parametrize(("right", "wrong", "check"), TASK_FAULTS)
def test_the_contract_finds_planted_faults_in_tasks(write, right, wrong, check):
    text = Path(sys.modules[Catalog().load("task", "adding").__module__].__file__).read_text()
    assert right in text
    path = write("faulty.py", text.replace(right, wrong).replace("settings.marker_layout", "'scornn'"))
    violations = problems("task", Catalog([path]).load("task", "faulty"))
    assert any(problem.startswith(check) for problem in violations), violations
