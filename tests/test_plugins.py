"""Plugins from all three sources, and the errors for broken plugins."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

import orthobench as ob
from orthobench import api
from orthobench.errors import UsageError
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog, Plugin
from orthobench.spec.index import FILE, built_in
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.system.own_code import described, message_of
from orthobench.testing import problems
from workshop.index import text as written

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
def hide_built_in(monkeypatch):
    """A function after which the catalog has no built-in plugins but these."""
    built_in()  # which this process keeps for all later tests, so not without the others

    def hide(*kept: Plugin) -> None:
        monkeypatch.setattr(
            "orthobench.plugins.catalog._built_in", lambda kind: (plugin for plugin in kept if plugin.kind == kind)
        )

    return hide


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


def test_package_that_is_installed_while_the_program_runs_is_found(write, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert "later" not in Catalog().names("model")
    write("later-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: later\nVersion: 1.0\n")
    write("later-1.0.dist-info/entry_points.txt", "[orthobench.models]\nlater = later:Later\n")
    assert "later" in Catalog().names("model")
    shutil.rmtree(tmp_path / "later-1.0.dist-info")
    assert "later" not in Catalog().names("model")


def test_built_in_plugins_are_their_files():
    catalog = Catalog()
    assert set(catalog.names("task")) >= {"adding", "copying"}
    assert set(catalog.names("model")) >= {"scornn", "lstm", "gru", "rnn"}
    assert catalog.broken == []
    assert catalog.load("model", "scornn").__name__ == "ScoRNN"
    assert not {"models", "tasks"} & set(sys.modules)  # imported twice under two names, they would be two classes


@pytest.mark.parametrize(
    ("kind", "name"), [(plugin.kind, plugin.name) for plugin in Catalog() if plugin.kind != "model"]
)
def test_built_in_tasks_and_probes_meet_the_contract(kind, name, small_data):
    """tests/models/test_contract.py has the models."""
    assert problems(kind, Catalog().load(kind, name)) == []


@pytest.mark.usefixtures("distribution")
def test_installed_plugins_are_found_and_broken_ones_explained(orthobench, tiny_options):
    catalog = Catalog()
    assert catalog.load("model", "identity").title == "identity start"
    with pytest.raises(UsageError, match=r"'lost' \(theirs\) cannot be used: AttributeError"):
        catalog.load("model", "lost")
    with pytest.raises(UsageError, match="is not a class derived from orthobench"):
        catalog.load("model", "wrong")
    usable = catalog.usable("model")
    assert "identity" in usable
    assert usable.keys() == set(catalog.names("model")) - {"lost", "wrong"}
    listed = {entry["name"]: entry for entry in json.loads(orthobench("plugins", "--json").out) if entry["problem"]}
    assert "taken" in listed["lstm"]["problem"]
    assert "Nothing" in listed["lost"]["problem"]
    assert orthobench("run", "adding", "identity", *tiny_options).code == 0


@pytest.mark.usefixtures("distribution")
def test_index_does_not_depend_on_installed_packages():
    """One of them takes the name of the LSTM, so a run of it is an error until the package is gone."""
    with pytest.raises(UsageError, match="the model name 'lstm' of theirs is taken"):
        resolve(Catalog(), "adding", "lstm", {})
    assert written() == FILE.read_text("utf-8")


TASK = """
import torch
from torch import nn
from orthobench.model import Signature
from orthobench.task import Batch, Metric, SyntheticSettings, Task, seeded_generator

class Bits:
    def __init__(self, bits):
        self.bits = bits
    def __len__(self):
        return len(self.bits)
    def batch(self, examples):
        bits = self.bits[examples]
        return Batch(bits.T.unsqueeze(-1).float(), bits.sum(1) % 2)

class Parity(Task):
    title, Settings = "parity", SyntheticSettings
    metrics = (Metric("accuracy", "max"),)
    protocol = {"batch_size": 10}
    quick = {"train_size": 40}

    def __init__(self, settings, seed, device):
        self.signature = Signature(input_size=1, output_size=2, readout="last")
        self.train = self.test = Bits(torch.randint(2, (40, 5), generator=seeded_generator(seed, "bits")))
    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)
    def measure(self, outputs, targets):
        return {"accuracy": ((outputs.argmax(-1) == targets).sum(), len(targets))}
    @classmethod
    def baselines(cls, settings):
        return {"accuracy": 0.5}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('(Metric("accuracy", "max"),)', 'Metric("accuracy", "max")', "metrics=Metric.*give a tuple"),
        ('(Metric("accuracy", "max"),)', "()", r"metrics=\(\): give a tuple"),
        ('"parity", SyntheticSettings', '"parity", dict', "Settings=<class 'dict'>: derive a class"),
        ('{"batch_size": 10}', "10", "protocol=10: give a dictionary"),
        ('{"batch_size": 10}', '{"batch_sizes": 10}', "protocol sets batch_sizes, which is not a training setting"),
        ('{"train_size": 40}', "40", "quick=40: give a dictionary"),
        ('{"accuracy": 0.5}', "0.5", "Parity.baselines returned 0.5: return a number for each metric"),
        ('{"accuracy": 0.5}', '{"accuracy": "half"}', "baselines returned .*half"),
        ('{"accuracy": 0.5}', '{"acc": 0.5}', "baselines returned .*acc"),
        ('{"accuracy": 0.5}', '{"accuracy": float("inf")}', "baselines returned .*inf"),
        ('{"accuracy": 0.5}', '{"accuracy": 0.5, "loss": float("nan")}', "baselines returned .*nan"),
        ('{"accuracy": ((', '{"acc": ((', "Parity measured acc: its first metric is accuracy"),
    ],
)
def test_wrong_declaration_of_a_task_is_one_line_before_training(orthobench, write, right, wrong, message):
    assert TASK.count(right) == 1
    file = write("bits.py", TASK.replace(right, wrong))
    outcome = orthobench("run", "bits", "rnn", "--plugin", str(file), "--preset", "quick", "-s", "epochs=1")
    assert outcome.code == 2
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert re.search(message, line), line
    assert "epoch" not in outcome.err


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            "return nn.functional.cross_entropy",
            "nn.functional.cross_entropy",
            "Parity.loss returned None: return a tensor",
        ),
        ("return Batch(", "return (", r"Bits.batch returned \(tensor.*: return Batch\(inputs, targets\)"),
        (
            "targets).sum(), len(targets))}",
            "targets).float().mean())}",
            "Parity.measure returned .*'accuracy': .total, weight",
        ),
        ("self.train = self.test", "self.tran = self.test", "Parity.__init__ does not set train: set train"),
        ('readout="last"', 'readout="lst"', "unknown readout 'lst': did you mean last"),
    ],
)
def test_wrong_result_of_a_task_names_the_method(orthobench, write, right, wrong, message):
    assert TASK.count(right) == 1
    file = write("bits.py", TASK.replace(right, wrong))
    outcome = orthobench("run", "bits", "rnn", "--plugin", str(file), "--preset", "quick", "-s", "epochs=1")
    is_refused = "does not set" in message or "readout" in message  # before training
    assert outcome.code == (2 if is_refused else 1)
    prefix = "" if is_refused else "TypeError: "
    told = outcome.err.splitlines()[-1]
    assert re.search(f"^error: ({prefix}|bits and rnn do not fit: ){message}", told), outcome.err


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("return h, final", "return h, h[-1]", r"Identity.states returned \(tensor"),
        ("return h, final", "return h", r"Identity.states returned tensor\(.*: return the states of all steps and"),
        ("return h, final", "pass", "Identity.states returned None: return the states of all steps and"),
        (
            'return {"W": self.recurrent_weight}',
            "pass",
            "Identity.recurrent_matrices returned None: return a dictionary",
        ),
    ],
)
def test_wrong_result_of_a_model_names_the_method(orthobench, write, tiny_options, right, wrong, message):
    file = write("mine.py", GOOD_MODEL.replace(right, wrong))
    outcome = orthobench("run", "adding", "mine", "--plugin", str(file), *tiny_options)
    assert outcome.code == 1
    assert re.search(f"^error: TypeError: {message}", outcome.err.splitlines()[-1]), outcome.err
    with open_store("results.db") as store:
        assert store.runs()[0].message.startswith("TypeError: Identity.")


def test_right_declaration_of_a_task_trains(orthobench, write):
    file = write("bits.py", TASK)
    outcome = orthobench("run", "bits", "rnn", "--plugin", str(file), "--preset", "quick", "-s", "epochs=1")
    assert outcome.code == 0, outcome.err


@pytest.mark.usefixtures("distribution")
@pytest.mark.parametrize("command", [("run", "adding", "lstm"), ("sweep", "adding", "--models", "rnn,lstm")])
def test_entry_point_with_a_taken_name_is_refused(orthobench, tiny_options, command):
    refused = orthobench(*command, *tiny_options)
    assert refused.code == 2
    assert "the model name 'lstm' of theirs is taken by a built-in one: rename the entry point" in refused.err
    assert orthobench("run", "adding", "rnn", *tiny_options).code == 0


COMMANDS = [
    ("run", "adding", "scornn"),
    ("sweep", "adding", "--models", "scornn"),
    ("tune", "adding", "--models", "scornn", "--grid", "learning_rate=1e-4..1e-2:log"),
    ("check", "base.toml"),
    ("study", "orthogonality"),
    ("reproduce", "helfrich2018", "--table", "1"),
    ("plugins", "--check"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
def test_copy_of_a_built_in_file_needs_another_name(orthobench, tmp_path, command):
    text = Path(sys.modules[Catalog().load("model", "scornn").__module__].__file__).read_text("utf-8")
    (tmp_path / "scornn.py").write_text(text.replace("from ._plain", "from orthobench.models._plain"))
    (tmp_path / "base.toml").write_text('[[run]]\ntask = "adding"\nmodel = "scornn"\n')
    refused = orthobench(*command, "--plugin", "scornn.py")
    assert refused.code == 2
    assert refused.err == (
        "error: plugin file scornn.py: the model name 'scornn' is taken by a built-in one: rename the file, or set "
        "name = '...' in its class\n"
    )
    assert not (tmp_path / "results.db").exists()
    (tmp_path / "scornn.py").rename(tmp_path / "my_scornn.py")
    assert "my_scornn" in orthobench("plugins", "--plugin", "my_scornn.py", "--json").out


def test_relative_imports_of_a_copied_file_are_refused(orthobench, tmp_path):
    text = Path(sys.modules[Catalog().load("model", "scornn").__module__].__file__).read_text("utf-8")
    line = text[: text.index("from ._plain")].count("\n") + 1
    (tmp_path / "my_scornn.py").write_text(text)
    refused = orthobench("plugins", "--plugin", "my_scornn.py")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert f"plugin file my_scornn.py, line {line}: a plugin file belongs to no package" in refused.err


def test_python_api_refuses_a_taken_name(write):
    options = RunOptions(plugins=(write("lstm.py", GOOD_MODEL),))
    for call in (
        lambda: api.run("adding", "lstm", options=options),
        lambda: api.sweep("adding", ["lstm"], options=options),
        lambda: api.tune("adding", ["lstm"], {"learning_rate": "1e-4..1e-2:log"}, options=options),
        lambda: api.study("orthogonality", options=options),
        lambda: api.reproduce("helfrich2018", table="1", options=options),
    ):
        with pytest.raises(UsageError, match="the model name 'lstm' is taken by a built-in one: rename the file"):
            call()


def test_two_models_of_one_file_need_names(orthobench, write, tiny_options):
    second = "\nclass Second(Identity):\n    title = 'second'\n"
    path = str(write("two.py", GOOD_MODEL + second))
    refused = orthobench("run", "adding", "two", "--plugin", path)
    assert refused.code == 2
    assert "Identity and Second are both the model 'two': set a name of its own in each class" in refused.err
    write("two.py", GOOD_MODEL + second + "    name = 'second'\n")
    models = ("sweep", "adding", "--models", "two,second", "--plugin", path)
    assert orthobench(*models, *tiny_options).code == 0
    titles = {name: Catalog([Path(path)]).load("model", name).title for name in ("two", "second")}
    assert titles == {"two": "identity start", "second": "second"}


def test_file_named_twice_counts_once(write):
    path = write("mine.py", GOOD_MODEL)
    assert Catalog([path, path.parent / "." / "mine.py"]).load("model", "mine").title == "identity start"


def test_file_is_a_plugin(orthobench, write, tiny_options, hide_built_in):
    path = write("mine.py", GOOD_MODEL)
    first = orthobench("run", "adding", "mine", "--plugin", str(path), *tiny_options)
    assert first.code == 0
    write("mine.py", GOOD_MODEL + "\n# edited\n")
    again = orthobench("run", "adding", "mine", "--plugin", str(path), *tiny_options)
    assert first.out.split()[1] != again.out.split()[1]  # an edited file is another model
    hide_built_in()  # each of them has a test of its own
    assert orthobench("plugins", "--plugin", str(path), "--check").code == 0


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
def test_file_without_a_plugin_is_one_line(orthobench, write, name, text, message):
    outcome = orthobench("run", "adding", "mine", "--plugin", str(write(name, text)))
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


BUGGY_TASK = """
from orthobench.tasks.adding import Adding

class Mine(Adding):
    def __init__(self, settings, seed, device):
        super().__init__(settings, seed, device)

    def measure(self, outputs, targets):
        return super().measure(outputs, targets)
"""


@pytest.mark.parametrize(
    ("text", "right", "wrong", "raised", "code"),
    [
        (GOOD_MODEL, "return h, final", "return h, finale", "NameError: name 'finale' is not defined", 1),
        (BUGGY_TASK, "measure(outputs, targets)\n", "mesure(outputs)\n", "AttributeError: 'super' object has no", 1),
        (
            BUGGY_TASK,
            "seed, device)\n\n",
            "seed, device); a, b = [1]\n\n",
            "ValueError: not enough values to unpack (expected 2, got 1)",
            2,
        ),
    ],
    ids=["model", "measure", "task"],
)
def test_error_of_a_plugin_names_its_line(orthobench, write, tiny_options, text, right, wrong, raised, code):
    assert text.count(right) == 1
    path = write("mine.py", text.replace(right, wrong))
    line = 1 + text[: text.index(right)].count("\n")
    pair = ("adding", "mine") if text == GOOD_MODEL else ("mine", "rnn")
    outcome = orthobench("run", *pair, "--plugin", str(path), *tiny_options)
    assert outcome.code == code
    name, said = raised.split(": ")
    told = outcome.err.splitlines()[-1]
    if code == 2:
        assert told == f"error: mine and rnn do not fit: {said} (mine.py:{line})"
    else:
        assert told.startswith(f"error: mine.py:{line} raises {name}: {said}")
        with open_store("results.db") as store:
            (run,) = store.runs()
        assert run.message.startswith(f"mine.py:{line} raises {raised}")
    kind = "model" if text == GOOD_MODEL else "task"
    assert f"(mine.py:{line})" in " ".join(problems(kind, Catalog([path]).load(kind, "mine")))


@pytest.mark.parametrize("place", ["else", "home/of", "gone"])
def test_place_of_an_error_names_no_folder_of_the_user(write, tmp_path, monkeypatch, place):
    """Also not from a folder above the home, nor if there is no current folder any more."""
    path = write("home/of/me/mine.py", "def fail():\n    raise RuntimeError('\\n  no')\n")
    monkeypatch.setenv("HOME", str(path.parent))
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / place)
    if place == "gone":
        (tmp_path / place).rmdir()
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(RuntimeError) as caught:
        names["fail"]()
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # without this function
    assert (described(caught.value), message_of(caught.value)) == (
        "mine.py:2 raises RuntimeError: no",
        "no (mine.py:2)",
    )
    monkeypatch.chdir(tmp_path)


def test_error_of_a_plugin_elsewhere_names_no_folder(orthobench, write, tiny_options, tmp_path, monkeypatch):
    path = write("mine.py", GOOD_MODEL.replace("return h, final", "raise RuntimeError('no')"))
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    orthobench("run", "adding", "mine", "--plugin", str(path), *tiny_options)
    with open_store("results.db") as store:
        (run,) = store.runs()
    assert re.fullmatch(r"mine\.py:\d+ raises RuntimeError: no", run.message)


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


GLOBAL_DRAWS = [
    ("torch.eye(n)", "torch.nn.Linear(n, n).weight.detach()", "__init__ draws from the global generator of torch"),
    ("torch.eye(n)", "(np.random.rand() * torch.eye(n))", "__init__ draws from the global generator of numpy"),
    ("torch.eye(n)", "(random.random() * torch.eye(n))", "__init__ draws from the global generator of Python"),
    (
        "return h, final",
        "return nn.functional.dropout(h), final",
        "the forward pass draws from the global generator of",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "message"), GLOBAL_DRAWS)
def test_contract_names_a_global_random_draw_first(write, right, wrong, message):
    assert right in GOOD_MODEL
    path = write("faulty.py", "import random\nimport numpy as np\n" + GOOD_MODEL.replace(right, wrong))
    first, *_ = problems("model", Catalog([path]).load("model", "faulty"))
    assert first.startswith(f"random_numbers_come_from_the_generator: {message}")


OPTIMIZERS = """
from orthobench.model import ModelSettings, OptimizerName, ParameterGroup
class OwnSettings(ModelSettings):
    NAME: TYPE = "adam"
class Own(Identity):
    name = "own"
    Settings = OwnSettings
    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        self.trainer = settings.NAME
    def parameter_groups(self):
        return [ParameterGroup(list(self.parameters()), self.trainer, self.learning_rate)]
"""


@pytest.mark.parametrize(
    ("name", "type_", "accepted"),
    [("matrix_optimizer", "str", False), ("method", "str", False), ("method", "OptimizerName", True)],
)
def test_contract_refuses_free_text_as_optimizer(write, name, type_, accepted):
    path = write("model.py", GOOD_MODEL + OPTIMIZERS.replace("NAME", name).replace("TYPE", type_))
    violations = problems("model", Catalog([path]).load("model", "own"))
    expected = f"settings_name_known_optimizers: the setting {name} accepts any text as an optimiser"
    assert violations == [] if accepted else violations[0].startswith(expected)


def trained_with(catalog: Catalog, task: str, model: str, **overrides) -> tuple[str, float]:
    settings = resolve(catalog, task, model, overrides).spec.model_settings
    return settings["optimizer"], settings["learning_rate"]


NAMING = """
from orthobench.model import ModelSettings
class OneSettings(ModelSettings):
    optimizer: str = "rmsprop_tf1"
class NamesOne(Identity):
    name, Settings = "names_one", OneSettings
class RateSettings(ModelSettings):
    learning_rate: float = 0.02
class NamesARate(Identity):
    name, Settings = "names_a_rate", RateSettings
"""


def test_model_that_names_no_optimizer_trains_as_the_protocol_says(write):
    own = GOOD_MODEL.replace("class Identity(Model):", "class Identity(Model):\n    name = 'identity'") + NAMING
    catalog = Catalog([write("own.py", own)])
    assert trained_with(catalog, "adding", "identity") == trained_with(catalog, "adding", "lstm") == ("adam_tf1", 1e-3)
    assert trained_with(catalog, "adding", "names_one") == ("rmsprop_tf1", 1e-3)
    assert trained_with(catalog, "adding", "names_a_rate") == ("adam_tf1", 0.02)
    assert trained_with(catalog, "adding", "identity", optimizer="sgd") == ("sgd", 1e-3)
    assert trained_with(catalog, "copying", "identity") == ("rmsprop_tf1", 1e-3)
    assert trained_with(catalog, "adding", "rnn") == ("rmsprop_tf1", 1e-3)  # as its stored runs


def test_built_in_model_trains_as_the_protocol_of_a_task_from_outside_says(write):
    text = Path(sys.modules[Catalog().load("task", "adding").__module__].__file__).read_text()
    catalog = Catalog([write("sums.py", text)])
    assert trained_with(catalog, "sums", "rnn") == ("adam_tf1", 1e-3)
    assert trained_with(catalog, "sums", "antisymmetric") == ("adagrad_tf1", 0.1)  # which names its own


def test_sweep_names_the_optimizers_of_its_models(tmp_path, caplog):
    def told(task: str, models: list[str], **arguments) -> list[str]:
        caplog.clear()
        ob.sweep(
            task,
            models,
            db=str(tmp_path / "none.db"),
            dry_run=True,
            options=ob.SweepOptions(profile=False),
            **arguments,
        )
        return caplog.messages

    (note,) = told("adding", ["scornn", "rnn", "lstm"], seeds=2)
    assert note == (
        "the models train with different optimisers: adam_tf1 (scornn, lstm), rmsprop_tf1 (rnn); "
        "the setting optimizer=NAME trains all with one"
    )
    assert told("adding", ["scornn", "lstm"]) == []
    assert told("adding", ["scornn", "rnn"], settings={"optimizer": "adam"}) == []
    assert told("adding", ["scornn", "rnn"], grid={"optimizer": ["adam", "sgd"]}) == []


UNREAD = """
from orthobench.model import ModelSettings
class OwnSettings(ModelSettings):
    scale: float | None = None
    shape: float = 1.0
    read_nowhere: float = 1e-3
class Own(Identity):
    name = "own"
    Settings = OwnSettings
    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        if settings.scale is not None:
            self.recurrent_weight.data *= settings.scale * settings.shape
"""


def test_contract_finds_settings_that_nothing_reads(write):
    """`shape` counts as read, although the model reads it only if `scale` has a value."""
    path = write("model.py", GOOD_MODEL + UNREAD)
    assert problems("model", Catalog([path]).load("model", "own")) == [
        "every_setting_is_read: nothing reads the setting read_nowhere: use it, or leave it out of Settings"
    ]


CLASH = """
from orthobench.model import ModelSettings
class OwnSettings(ModelSettings):
    longest: int = 3
class Own(Identity):
    name = "own"
    Settings = OwnSettings
    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        self.window = settings.longest
"""


def test_setting_that_its_task_has_is_refused(write):
    path = write("model.py", GOOD_MODEL + CLASH)
    line = "^the model own has settings that the task formal_language has too, longest: rename them$"
    with pytest.raises(UsageError, match=line):
        resolve(Catalog([path]), "formal_language", "own", {})
    assert resolve(Catalog([path]), "adding", "own", {}).spec.model_settings["longest"] == 3


def test_plugin_check_prints_its_verdict_last(orthobench, write, monkeypatch, hide_built_in):
    hide_built_in()
    monkeypatch.setattr("orthobench.testing.model_checks.CHECKS", ())
    path = str(write("mine.py", GOOD_MODEL))
    assert orthobench("plugins", "--plugin", path, "--check").out.endswith(
        "All is well: 1 of 1 plugin meets the contract.\n"
    )
    write("mine.py", GOOD_MODEL.replace("    paper", "    reference"))
    checked = orthobench("plugins", "--plugin", path, "--check")
    assert checked.code == 1
    assert checked.out.endswith("1 of 1 plugin does not meet the contract: model mine.\n")
    assert "model/lstm" in built_in()["plugins"]


def test_check_of_one_plugin_says_a_reason_once(orthobench, write):
    path = str(write("mine.py", GOOD_MODEL.replace("self.input_weight)", "self.input_wieght)")))
    checked = orthobench("plugins", "mine", "--check", "--plugin", path)
    first, last = checked.out.splitlines()
    assert checked.code == 1
    assert first.startswith("model mine (mine.py): ") or first.startswith(f"model mine ({path}): ")
    assert first.count("input_wieght") == 1
    assert re.search(r" and \d+ other checks: 'Identity' object has no attribute 'input_wieght' \(mine\.py:18\)", first)
    assert last == "1 of 1 plugin does not meet the contract: model mine."
    assert orthobench("plugins", "model/rnn", "--check", "--plugin", path).out == (
        "All is well: 1 of 1 plugin meets the contract.\n"
    )


def test_task_without_its_data_is_not_checked(orthobench, monkeypatch, tmp_path, hide_built_in):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "none"))
    hide_built_in(Catalog().find("task", "mnist"))
    monkeypatch.setattr("orthobench.plugins.catalog._installed", lambda kind: iter(()))
    checked = orthobench("plugins", "--check")
    assert checked.code == 0
    assert checked.out.startswith("task mnist is not checked: mnist is not installed: orthobench data get mnist")
    last = checked.out.splitlines()[-1]
    assert last == "All is well: 0 of 1 plugin meets the contract. Not checked, as the data is missing: task mnist."


@pytest.mark.parametrize(("right", "wrong", "check"), [(r, *fault) for r, faults in FAULTS.items() for fault in faults])
def test_contract_finds_planted_faults(write, right, wrong, check):
    if wrong == "self.recurrent_weight = torch.eye(n)":
        wrong = "self.recurrent_weight = torch.rand(n, n, generator=generator)"
    assert right in GOOD_MODEL
    path = write("faulty.py", GOOD_MODEL.replace(right, wrong))
    violations = problems("model", Catalog([path]).load("model", "faulty"))
    assert any(problem.startswith(check) for problem in violations), violations


TASK_FAULTS = [
    ("generator=generator", "", "the_seed_makes_the_data"),
    ('(seed, "adding", part)', '(seed, "adding", "train")', "the_seed_makes_the_data"),
    ('reduction="sum"), targets.shape[0]', 'reduction="mean"), 1', "metrics_add_up"),
    ("dim=-1)\n", "dim=0)\n", "batches_fit_the_signature"),
    ("return dict.fromkeys(names, 2 / 12)", "return {}", "metrics_add_up"),
    ("values, marked = self.values[examples]", "values, marked = self.values[: len(examples)]", "batches_fit"),
    ("marker_layout:", "batch_size:", "settings_have_names"),
]


@pytest.mark.parametrize(("right", "wrong", "check"), TASK_FAULTS)
def test_contract_finds_planted_faults_in_tasks(write, right, wrong, check):
    text = Path(sys.modules[Catalog().load("task", "adding").__module__].__file__).read_text()
    assert right in text
    path = write("faulty.py", text.replace(right, wrong).replace("settings.marker_layout", "'scornn'"))
    violations = problems("task", Catalog([path]).load("task", "faulty"))
    assert any(problem.startswith(check) for problem in violations), violations
