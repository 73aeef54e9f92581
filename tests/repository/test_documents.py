"""What the documents show works."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from support.speech import write_speech

import orthobench as ob
from orthobench.cli import app
from orthobench.data.dataset import DataSet
from orthobench.model import Signature
from orthobench.model.build import build_model
from orthobench.papers import find_paper, read_paper
from orthobench.plugins import Catalog
from orthobench.recurrence import GradientTrace
from orthobench.spec.resolve import resolve
from orthobench.task import TrainingSettings
from orthobench.testing import problems

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(
    r"`(models|tasks|probes)/(\w+)\.py`[^\n]*:\n\n```python\n(.*?)```",
    (ROOT / "docs" / "extend.md").read_text("utf-8"),
    re.S,
)
SHOWN = re.compile(r"^(?: {4})?(orthobench (?:[^#\n\\]|\\\n)+)", re.M)
"""A command in a block of code, which may go on in the next line."""
ELSEWHERE = re.compile(
    r"--executor|--hub|hf:|http:|serve\b|--log-to|--to |--device cuda|--gpu-share|KEY|"
    r"--plugin|leaky|--retest|--update|history.html"
)
"""Commands that need a cluster, a GPU, another program or a name, do not end, or have a test of their own."""


def commands_in(text: str) -> list[str]:
    """Return the commands in the blocks of code of a document."""
    fenced = re.findall(r"^```(\w*).*?\n(.*?)^```", text, re.M | re.S)
    blocks = [block for language, block in fenced if language in ("", "sh")]
    blocks += re.findall(r"^ {4}(?:.*\\\n)*.*", text, re.M)
    return [" ".join(command.replace("\\\n", " ").split()) for block in blocks for command in SHOWN.findall(block)]


COMMANDS = list(
    dict.fromkeys(
        command
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        for command in commands_in(path.read_text("utf-8"))
    )
)
TUTORIAL = (ROOT / "docs" / "extend.md").read_text("utf-8").partition("\n## Any layer is a model")[0]


@pytest.mark.parametrize(("kind", "name", "code"), EXAMPLES, ids=[name for _, name, _ in EXAMPLES])
def test_examples_of_the_guide_meet_the_contract(kind, name, code, tmp_path):
    path = tmp_path / f"{name}.py"
    path.write_text(code)
    kind = kind.removesuffix("s")
    assert problems(kind, Catalog([path]).load(kind, name)) == []
    nodes = list(ast.walk(ast.parse(code)))
    imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert {alias.name for node in imports for alias in node.names} <= used


def test_example_of_a_paper_is_a_row_of_its_file(tmp_path):
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (example,) = re.findall(r"```toml\n(key = .*?)```", contributing, re.S)
    (tmp_path / "example.toml").write_text(example)
    paper = read_paper(tmp_path / "example.toml")
    (experiment,) = paper.experiments()
    whole = find_paper(paper.key)
    (row,) = [each for each in whole.experiments_in("table 1") if each.settings == experiment.settings]
    assert paper.citation == whole.citation
    assert experiment.printed[0] in row.printed
    assert (experiment.label, experiment.selection) == (row.label, row.selection)
    assert resolve(Catalog(), experiment.task, experiment.model, {}, experiment=experiment).spec.settings


def test_guide_has_a_model_a_task_and_a_probe():
    assert [kind for kind, *_ in EXAMPLES] == ["models", "tasks", "probes"]


@pytest.fixture
def write_example(tmp_path):
    """A function that writes an example to a file and returns the file."""

    def write(name: str, change=lambda code: code) -> Path:
        (code,) = [code for _, other, code in EXAMPLES if other == name]
        (tmp_path / f"{name}.py").write_text(change(code))
        return tmp_path / f"{name}.py"

    return write


def test_contract_requires_the_examples_trace(write_example):
    file = write_example("leaky_rnn", lambda code: code.replace('trace.watch("h", steps)', "pass"))
    (problem,) = problems("model", Catalog([file]).load("model", "leaky_rnn"))
    assert "the trace received no state called h" in problem


def test_gradient_norms_of_the_examples_loop_match_the_equation(write_example):
    """With h_t = a h_{t-1} + ..., dL/dh_t = (dL/dh_T) a^(T-t), unit by unit."""
    cls = Catalog([write_example("leaky_rnn")]).load("model", "leaky_rnn")
    signature = Signature(input_size=2, output_size=1, readout="last")
    model, trace = (
        build_model(cls, cls.Settings(hidden_size=5), signature, torch.Generator().manual_seed(1)),
        GradientTrace(),
    )
    torch.nn.init.uniform_(model.decay, 0.2, 0.9, generator=torch.Generator().manual_seed(2))
    outputs, _ = model(torch.ones(6, 3, 2), trace=trace)
    outputs.sum().backward()
    powers = model.decay.detach() ** torch.arange(5, -1, -1)[:, None]
    norms = (model.output_weight.detach() * powers).norm(dim=-1)
    torch.testing.assert_close(trace.norms["h"], norms[:, None].expand(6, 3))


@pytest.mark.slow
def test_examples_train_together(write_example, tiny, tmp_path):
    files = tuple(write_example(name) for name in ("leaky_rnn", "parity", "singular_values"))
    options, db = ob.RunOptions(plugins=files), str(tmp_path / "r.db")
    small = {"train_size": 200, "test_size": 20, "hidden_size": 8, "epochs": 2}
    own = ob.run("parity", "leaky_rnn", settings=small, db=db, options=options)
    assert own.spec["training"]["batch_size"] == 100  # the protocol
    quick = Catalog(files).load("task", "parity").quick
    planned = ob.sweep("parity", ["leaky_rnn"], preset="quick", db=db, options=options, dry_run=True).plan.runs
    assert quick.items() <= planned[0].config.spec.settings.items()

    tiny |= {"probes": "singular_values"}
    run = ob.run("adding", "scornn", settings=tiny, db=db, options=options)
    with ob.open_results(db) as results:
        vectors = results.vectors(run, "singular_values")
        assert vectors.shape[1] == 8
        assert (vectors - 1).abs().to_numpy().max() < 1e-5  # W is orthogonal
        assert results.curve(run, "singular_values/W/largest", "probe").iloc[-1] == pytest.approx(1)
        names = set(results.metrics(own)["name"])
    assert "accuracy" in names
    scores = {name for name in names if name.startswith("orthogonality")}
    assert scores == {"orthogonality_jacobian/J"}  # no matrix multiplies its state


def test_readme_begins_with_small_runs():
    first = {}
    for command in COMMANDS:
        first.setdefault(command.split()[1], command)
    assert "--preset quick" in COMMANDS[0]
    assert "--preset quick" in first["run"]
    assert "--preset quick" in first["sweep"]


def test_links_resolve_to_files_and_headings():
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        text = re.sub("`[^`\n]*`", "code", document.read_text("utf-8"))
        for link in re.findall(r'\]\(([^)\s]+)(?:\s+"[^"]*")?\)', text):
            name, _, heading = link.partition("#")
            if "://" in link:
                continue
            file = document.parent / name if name else document
            assert file.exists(), f"{document.name}: {link}"
            headings = re.findall(r"^#+ (.*)", file.read_text("utf-8"), re.M) if heading else []
            anchors = [re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings]
            assert not heading or heading in anchors, f"{document.name}: {link}"


def small_options(words: list[str], tiny_options: list[str], shown: set[str]) -> list[str]:
    """Return the options that make a shown command small: settings that its task has and that it does not show."""
    pairs = list(zip(tiny_options[::2], tiny_options[1::2], strict=True))
    if words[1].startswith("array:"):
        names = {*TrainingSettings.model_fields, "hidden_size"} - shown
        return [word for flag, value in pairs if value.partition("=")[0] in names for word in (flag, value)]
    if words[1] in ("mnist", "cifar10"):
        pairs.append(("-s", "validation_size=20"))
    if "batch_size" in shown:
        pairs = [(flag, "train_size=256" if value.startswith("train_size") else value) for flag, value in pairs]
    if "--match-parameters" in words:
        shown = shown | {"hidden_size"}
    known = {*Catalog().load("task", words[1]).Settings.model_fields, *TrainingSettings.model_fields, "hidden_size"}
    names = known - shown
    return [word for flag, value in pairs if value.partition("=")[0] in names for word in (flag, value)]


CELL = """
import torch
class MyCell(torch.nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.own, self.inputs = torch.nn.Linear(hidden_size, hidden_size), torch.nn.Linear(input_size, hidden_size)

    def forward(self, x, h):
        return torch.tanh(self.own(h) + self.inputs(x))
"""


LARGE = ("tune", "compare-tuned", "reproduce", "place", "study")
"""Commands that train for hours, so the test only plans what they would train."""


@pytest.mark.parametrize("command", [command for command in COMMANDS if ELSEWHERE.search(command)])
def test_commands_for_other_machines_are_parsed(command):
    group, words = typer.main.get_command(app), shlex.split(command)[1:]
    while hasattr(group, "commands"):
        group = group.commands[words.pop(0)]
    with group.make_context(command, words) as context:
        assert context.params


@pytest.mark.parametrize("command", [command for command in COMMANDS if not ELSEWHERE.search(command)])
def test_commands_in_the_documents_are_accepted(
    command, orthobench, after, tiny_options, small_data, tmp_path, monkeypatch
):
    """Each runs, small: the last of two values given for a setting would be an error, so those shown are kept.

    Nothing is downloaded.
    """
    words = shlex.split(command)[1:]
    np.savez(tmp_path / "data.npz", x=np.random.RandomState(0).normal(size=(40, 5, 3)), y=np.arange(40) % 2)
    rows = [f"{n},{hour},{n}.5,{hour - n},{'ab'[n % 2]}" for n in range(40) for hour in range(5)]
    (tmp_path / "patients.csv").write_text("\n".join(["patient,hour,load,temp,class", *rows]))
    (tmp_path / "cell.py").write_text(CELL)
    shown = {word.partition("=")[0] for word in words if "=" in word}
    large = "quick" not in words if words[0] == "sweep" else words[0] in LARGE
    if large:
        (tmp_path / "checks").mkdir()
        shutil.copy(ROOT / "checks" / "papers.toml", tmp_path / "checks")
        words += [option for option in ("--dry-run", "--no-profile") if option not in words]
    elif words[0] in ("run", "sweep"):
        if words[1] in ("ptb", "timit"):
            (tmp_path / "book.txt").write_text("the same line again\n" * 200)
            write_speech(tmp_path / "recordings", 20)
        words += small_options(words, tiny_options, shown)
    elif words[0] == "data":
        monkeypatch.setattr(DataSet, "get", lambda self, report: None)
        monkeypatch.setattr(DataSet, "deviations", lambda self, folder: [])
        words = [str(small_data / "mnist") if word == "FOLDER" else word for word in words]
    elif words[0] == "bench":
        words += ["--quick", "--rounds", "1"]
    elif words[0] == "check":
        settings = ", ".join(option for option in tiny_options if "=" in option)
        write = "[[run]]\ntask = 'adding'\nmodel = 'rnn'\nexact = true\nseeds = [1]\nsettings = { " + settings + " }\n"
        (tmp_path / "checks").mkdir()
        (tmp_path / "checks" / "baseline.toml").write_text(write)
        assert orthobench(*words, "--update", "--reason", "the first").code == 0
    else:
        after(("sweep", "adding", "--models", "scornn,lstm", "--tag", "thesis", *tiny_options))
        if words[0] in ("db", "compare-databases", "publish"):
            assert orthobench("db", "backup", "other.db").code == 0
        if words[0] == "show":
            words += ["--db", str(ROOT / "results.db")]  # the key is of a run that a clone has
        if words[0] in ("evaluate", "export"):
            assert resolve(Catalog(), "adding", "scornn", {}, "quick").spec.key.startswith(
                words[1]
            )  # of the line above
            words[1] = json.loads(orthobench("ls", "--json").out)[0]["run"]
    outcome = orthobench(*words)
    assert outcome.code == 0, outcome.err


def test_score_is_no_word_for_the_distance_from_orthogonal():
    """It is the number from 0 to 100 of every table."""
    text = (ROOT / "docs" / "tasks-and-models.md").read_text("utf-8")
    section = text.partition("## Distance from orthogonal\n")[2].partition("\n## ")[0]
    assert "Frobenius" in section
    assert "score" not in section.lower()


def test_tutorial_works_as_written(orthobench, tiny_options, tmp_path):
    """The cell is the file that the text names; its commands train it beside its rivals, here with small settings."""
    (layer,) = re.findall(r"```python\n(.*?)```", TUTORIAL, re.S)
    (tmp_path / "leaky.py").write_text(layer)
    assert len(layer.strip().splitlines()) <= 15
    commands = [command.split()[1:] for command in commands_in(TUTORIAL)]
    assert [words[0] for words in commands] == ["sweep", "run", "report"]
    for words in commands:
        shown = {word.partition("=")[0] for word in words if "=" in word}
        outcome = orthobench(*words, *(small_options(words, tiny_options, shown) if words[0] != "report" else []))
        assert outcome.code == 0, outcome.err
    with ob.open_results("results.db") as results:
        assert set(results.runs(status="finished")["model"]) == {"leaky.py:Leaky", "torch.nn:LSTM", "scornn"}


def test_first_commands_of_the_readme_do_everything():
    """They install what they need and use no command of a package that is not installed yet."""
    _, _, use = (ROOT / "README.md").read_text("utf-8").partition("## Use\n")
    first, second = (line.split()[:2] for line in use.splitlines() if line.startswith("    make "))
    assert (first, second) == (["make", "demo"], ["make", "test"])
    rules = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(r"^demo: \$\(BASE\)/\.installed$", rules, re.M)
    assert re.search(r"^kernels: \$\(INSTALLED\)$", rules, re.M)
    assert re.search(r"^test: kernels$", rules, re.M)
    assert use.index("make test") < use.index("orthobench ")


def test_cell_of_the_readme_trains_with_a_kernel(orthobench, tiny_options, tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text("utf-8")
    (code,) = re.findall(r'```python title="cell.py"\n(.*?)```', text, re.S)
    (command,) = re.findall(r"`orthobench (run [^`]*cell.py:JANET)`", text)
    (tmp_path / "cell.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert orthobench(*command.split(), *tiny_options).code == 0
    assert "\nCompiled (products with a state: 2" in orthobench("plugins", "./cell.py:JANET").out


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 120


def test_architecture_names_every_package():
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    files = [*(ROOT / "orthobench").glob("*.py"), *(ROOT / "orthobench").glob("*/__init__.py")]
    names = {path.parent.name if path.name == "__init__.py" else path.stem for path in files}
    assert len(names) > 20
    assert set(re.findall(r"^\| `(\w+)` \| [^|\s]", text, re.M)) == names | {"models", "tasks"}  # each with its purpose
