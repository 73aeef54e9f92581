"""What the documents show works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orthobench.data import DataSet
from orthobench.plugins import Catalog
from orthobench.testing import problems

ROOT = Path(__file__).parent.parent
EXAMPLES = re.findall(
    r"`(models|tasks)/(\w+)\.py`[^\n]*:\n\n```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.S
)
COMMANDS = re.findall(r"^    (orthobench [^#\n]+)", (ROOT / "README.md").read_text("utf-8"), re.M)


@pytest.mark.parametrize(("kind", "name", "code"), EXAMPLES, ids=[name for _, name, _ in EXAMPLES])
def test_the_guides_examples_meet_the_contract(kind, name, code, tmp_path):
    path = tmp_path / f"{name}.py"
    path.write_text(code)
    kind = kind.removesuffix("s")
    assert problems(kind, Catalog([path]).load(kind, name)) == []


def test_the_guide_has_a_model_and_a_task():
    assert [kind for kind, *_ in EXAMPLES] == ["models", "tasks"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_readmes_commands_are_understood(command, orthobench, tiny_options, small_data, tmp_path, monkeypatch):
    """Each runs, small: the last of two values given for a setting would be an error, so those shown are kept.

    Nothing is downloaded.
    """
    words = command.split()[1:]
    shown = {word.partition("=")[0] for word in words if "=" in word}
    if words[0] in ("tune", "reproduce"):  # large, whatever is asked for
        words += ["--dry-run", "--no-profile"]
    elif words[0] in ("run", "sweep"):
        pairs = list(zip(tiny_options[::2], tiny_options[1::2], strict=True))
        if words[1] in ("mnist", "cifar10"):  # whose length is the images'
            pairs = [("-s", "validation_size=20"), *(pair for pair in pairs if "sequence_length" not in pair[1])]
        words += [w for flag, value in pairs if value.partition("=")[0] not in shown for w in (flag, value)]
    elif words[0] == "data":
        monkeypatch.setattr(DataSet, "get", lambda self, report: None)
        monkeypatch.setattr(DataSet, "deviations", lambda self, folder: [])
        words = [str(small_data / "mnist") if word == "FOLDER" else word for word in words]
    elif words[0] == "bench":
        words += ["--quick", "--rounds", "1"]
    elif words[0] == "check":
        settings = ", ".join(option for option in tiny_options if "=" in option)
        write = "[[run]]\ntask = 'adding'\nmodel = 'rnn'\nsettings = { " + settings + " }\n"
        (tmp_path / "checks").mkdir()
        (tmp_path / "checks" / "baseline.toml").write_text(write)
        assert orthobench(*words, "--update", "--reason", "the first").code == 0
    elif words[0] == "compare":
        assert orthobench("sweep", "adding", "--models", "scornn,lstm", *tiny_options).code == 0
    else:
        assert orthobench("run", "adding", "rnn", *tiny_options).code == 0
        if words[0] == "db":
            assert orthobench("db", "backup", "other.db").code == 0
    outcome = orthobench(*words)
    if words[0] == "show":
        assert "no run '3fa9'" in outcome.err
    else:
        assert outcome.code == 0, outcome.err


def test_the_architecture_names_every_room():
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    files = [*(ROOT / "orthobench").glob("*.py"), *(ROOT / "orthobench").glob("*/__init__.py")]
    names = {path.parent.name if path.name == "__init__.py" else path.stem for path in files}
    assert len(names) > 20
    assert set(re.findall(r"^\| `(\w+)` \| [^|\s]", text, re.M)) == names | {"models", "tasks"}  # each with its purpose
