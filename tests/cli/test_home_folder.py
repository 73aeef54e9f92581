"""~ is the home folder wherever a user names a path: in every option, argument and variable, and in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ConfigDict, TypeAdapter
from typer.main import get_command

from orthobench.api.opened import SomeResults
from orthobench.api.sharing import HubPlace
from orthobench.api.trained import TrainedRun
from orthobench.cli import app
from orthobench.diagnosis import machine
from orthobench.executors.slurm_settings import read_settings
from orthobench.hub.place import Hub
from orthobench.options.arguments import Database, Databases, File, FileName, Files, NamedPlace, Places
from orthobench.options.data_folder import data_folder, use_data_folder
from orthobench.options.run_options import RunOptions
from orthobench.plugins.layers import find_layer
from orthobench.settings import whole_path
from orthobench.sinks.targets import parse_target
from orthobench.store.sqlite import default_database
from orthobench.system.cache import cache_folder
from orthobench.system.location import Location, from_home


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """An empty home folder, which is not the current one."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def parameters(command: Any, words: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield each parameter with a text as its value: its command, itself, and the type of its values."""
    for parameter in command.params:
        annotation = parameter.type_descriptor.annotation
        kind = next(iter(get_args(annotation)), annotation)
        if isinstance(kind, type) and issubclass(kind, (str, Path, Location)):
            yield pytest.param(command, parameter, kind, id=" ".join([*words, max(parameter.opts, key=len)]))
    for name, inner in getattr(command, "commands", {}).items():
        yield from parameters(inner, (*words, name))


EVERY = list(parameters(get_command(app)))
PATHS = [case for case in EVERY if case.values[2] is not str]


def cell(text: str) -> str:
    (Path.home() / "x").write_text("import torch\nclass Cell(torch.nn.Module): ...\n")
    (Path.home() / "x.py").write_text("import torch\nclass Cell(torch.nn.Module): ...\n")
    return find_layer(f"{text}.py:Cell").sources.path.removesuffix(".py")


def real(location: object) -> str:
    assert isinstance(location, Location)
    return location.real


def read(kind: Any, text: Any) -> Any:
    """Return what an argument of this type becomes."""
    return TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True, strict=True)).validate_python(text)


TEXTS: dict[str, Callable[[str], object]] = {
    "model": cell,
    "models": cell,
    "match_parameters": cell,
    "log_to": lambda text: parse_target(f"tensorboard:{text}").location.real,
    "to": lambda text: parse_target(f"wandb:{text}").location.real,
    "checkpoints": lambda text: real(RunOptions(checkpoints=text).checkpoints),
    "weights": lambda text: real(RunOptions(weights=text).weights),
    "slurm": lambda text: read_settings([f"folder={text}"]).folder,
    "db": lambda text: read(Database, text).real,
    "history": lambda text: read(Database, text).real,
    "words": lambda text: read(Databases, [text])[0].real,
    "hub": lambda text: Hub.of(text).folder,
    "selections": lambda text: Location.of(text).real,
    "run": lambda text: read(TrainedRun, f"{text}.safetensors").removesuffix(".safetensors"),
}
"""The parameters whose texts may name a file, and what becomes of such a text."""


@pytest.mark.parametrize(("command", "parameter", "kind"), PATHS)
def test_command_line_reads_it(command, parameter, kind, home):
    needed = [each for each in command.params if each.required and each is not parameter]
    words = ["x" for each in needed if each.param_type_name == "argument"]
    words += [word for each in needed if each.param_type_name == "option" for word in (each.opts[0], "pt2")]
    if parameter.param_type_name == "option":
        words += [parameter.opts[0], "~/x"]
    else:
        words.insert([each for each in command.params if each.required or each is parameter].index(parameter), "~/x")
    value = command.make_context("orthobench", words).params[parameter.name]
    assert [str(each) for each in (value if isinstance(value, list) else [value])] == [str(home / "x")]


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_the_command_line_are_read(name, home):
    assert str(TEXTS[name]("~/x")) == str(home / "x")


VARIABLES: dict[str, Callable[[], object]] = {
    "ORTHOBENCH_DATA": data_folder,
    "ORTHOBENCH_CACHE": cache_folder,
    "ORTHOBENCH_DB": lambda: default_database(writes=True).real,
    "CC": lambda: next(machine.compilers()).text.partition(":")[0],
    "MLFLOW_TRACKING_URI": lambda: parse_target("mlflow").location.real,
    "TRACKIO_DIR": lambda: parse_target("trackio").location.real,
}


@pytest.mark.parametrize("name", VARIABLES)
def test_variable_is_read(name, home, monkeypatch):
    if name != "TRACKIO_DIR":  # it names a folder
        (home / "x").touch(mode=0o755)
    monkeypatch.setenv(name, "~/x")
    assert str(VARIABLES[name]()) == str(home / "x")


PYTHON = {
    "Database": Database,
    "Databases": Databases,
    "NamedPlace": NamedPlace,
    "Places": Places,
    "HubPlace": HubPlace,
    "File": File,
    "FileName": FileName,
    "Files": Files,
    "SomeResults": SomeResults,
    "TrainedRun": TrainedRun,
}
"""The types of arguments that name files or databases."""


@pytest.mark.parametrize("kind", PYTHON)
def test_python_reads_it(kind, home):
    value = read(PYTHON[kind], "~/x")
    assert [str(each) for each in (value if isinstance(value, tuple) else [value])] == [str(home / "x")]


def test_results_and_data_folder_take_it(home):
    with use_data_folder(Path("~/x")):
        assert data_folder() == home / "x"
    assert whole_path("~/x") == str(home / "x")


@pytest.mark.parametrize("text", ["a/~/x", "./~", "postgresql://~/x", "~nobody-of-this-name/x", "", "https://h/~/x"])
def test_any_other_text_stays(text):
    assert from_home(text) == text


def test_url_of_sqlite_is_read(home):
    assert Location.of("sqlite:///~/x.db").file == home / "x.db"


def test_no_folder_of_this_name_is_created(orthobench, tiny_options, home, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DB", "~/runs.db")
    logs = "tensorboard:~/logs"
    assert orthobench("run", "adding", "rnn", *tiny_options, "--weights-at=~/kept", f"--log-to={logs}").code == 0
    assert orthobench("db", "backup", "~/copy.db").code == 0
    assert orthobench("report", "--format", "csv", "-o", "~/table.csv").code == 0
    assert {file.name for file in home.iterdir()} >= {"runs.db", "kept", "logs", "copy.db", "table.csv"}
    assert [file.name for file in Path.cwd().iterdir()] == ["home"]
