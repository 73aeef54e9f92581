"""`orthobench plugins NAME`: settings explain themselves."""

from __future__ import annotations

import json

import pytest

from orthobench.plugins import Catalog
from orthobench.settings import describe_settings
from orthobench.task import TrainingSettings


def test_every_setting_has_a_description():
    catalog = Catalog()
    classes = [plugin.load().Settings for plugin in catalog if plugin.kind != "probe"]
    missing = [
        (cls.__name__, setting.name)
        for cls in [*classes, TrainingSettings]
        for setting in describe_settings(cls)
        if not (setting.meaning and setting.values)
    ]
    assert missing == []


def test_model_page_lists_its_settings(orthobench):
    explained = json.loads(orthobench("plugins", "scornn", "--json").out)
    assert (explained["kind"], explained["version"]) == ("model", 1)
    assert "Scaled Cayley" in explained["paper"]
    settings = {setting["name"]: setting for setting in explained["settings"]}
    assert set(settings) == set(Catalog().load("model", "scornn").Settings.model_fields)
    size = settings["hidden_size"]
    assert (size["symbol"], size["default"], size["values"]) == ("n", "170", "whole number at least 1")
    assert size["meaning"] == "number of hidden units n"
    assert {"value": 190, "sources": ["helfrich2018 figure 1", "helfrich2020 figure 2", "helfrich2017 figure 1"]} in (
        size["papers"]
    )
    assert settings["optimizer"]["meaning"].startswith(
        "optimiser of all parameters"
    )  # only its default is scoRNN's own
    assert settings["bandwidth"]["values"] == "whole number at least 1, or none"
    assert settings["learning_rate"]["values"] == "number above 0"
    assert settings["activation"]["values"] == "modrelu, relu, tanh"

    lines = orthobench("plugins", "scornn").out.splitlines()
    assert lines[0] == "model scornn: scoRNN"
    assert "hidden_size (n) = 170" in lines
    assert "    number of hidden units n" in lines
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ("", ["learning_rate", "optimizer"]),
        ("    learning_rate: Positive = 0.1", ["optimizer"]),
        ("    optimizer: OptimizerName = 'sgd'", []),
    ],
)
def test_model_page_says_what_the_protocol_of_a_task_sets(orthobench, tmp_path, settings, left):
    (tmp_path / "mine.py").write_text(
        "from orthobench.model.base import ModelSettings, OptimizerName, Positive\n"
        "from orthobench.models.rnn import RNN\n"
        f"class Own(ModelSettings):\n    forget: float = 1.0\n{settings}\n"
        "class Mine(RNN):\n    Settings = Own\n"
    )
    explained = json.loads(orthobench("plugins", "mine", "--plugin", "mine.py", "--json").out)
    meanings = {setting["name"]: setting["meaning"] for setting in explained["settings"]}
    assert [name for name, meaning in sorted(meanings.items()) if "the task's protocol" in meaning] == left
    layer = json.loads(orthobench("plugins", "torch.nn:RNN", "--json").out)
    (optimizer,) = (setting for setting in layer["settings"] if setting["name"] == "optimizer")
    assert optimizer["meaning"].endswith("; if the task's protocol names one, that is the default")


def test_task_training_and_probe_pages_list_their_settings(orthobench):
    explained = json.loads(orthobench("plugins", "adding", "--json").out)
    values = {setting["name"]: [each["value"] for each in setting["papers"]] for setting in explained["settings"]}
    assert set(values["sequence_length"]) >= {200, 400, 750}
    assert explained["quick"]["sequence_length"] == "100"
    assert "--preset quick sets: sequence_length=100" in orthobench("plugins", "adding").out

    training = json.loads(orthobench("plugins", "training", "--json").out)
    assert {setting["name"] for setting in training["settings"]} == set(TrainingSettings.model_fields)
    (epochs,) = [setting for setting in training["settings"] if setting["name"] == "epochs"]
    assert any("helfrich2018" in source for each in epochs["papers"] for source in each["sources"])

    shown = orthobench("plugins", "heat_map").out
    assert "It measures before training and at the end." in shown
    assert "-s probes=heat_map" in shown
    shown = orthobench("plugins", "orthogonality").out
    assert "It measures before training, after every epoch, and at the end." in shown


def test_paper_values_equal_their_files(orthobench):
    """Read from the TOML again, by hand."""
    import tomllib
    from importlib.resources import files

    paper = tomllib.loads(files("orthobench.papers").joinpath("helfrich2018.toml").read_text("utf-8"))
    expected = {
        (experiment["model_settings"]["hidden_size"], f"helfrich2018 {experiment['artifact']}")
        for experiment in paper["experiment"]
        if experiment["model"] == "lstm"
    }
    settings = json.loads(orthobench("plugins", "lstm", "--json").out)["settings"]
    (size,) = [setting for setting in settings if setting["name"] == "hidden_size"]
    shown = {
        (each["value"], f"helfrich2018 {artifact}")
        for each in size["papers"]
        for source in each["sources"]
        if source.startswith("helfrich2018 ")
        for artifact in source.removeprefix("helfrich2018 ").split(", ")
    }
    assert shown == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("scorn",), "unknown task, model or probe 'scorn': did you mean scornn or cornn?"),
        (("model/scorn",), "unknown model 'scorn': did you mean scornn"),
        (("scornn", "--params"), "--params covers all models: leave out scornn"),
        (("scorn", "--check"), "unknown task, model or probe 'scorn': did you mean scornn"),
        (("--check", "--params"), "give one of them"),
    ],
)
def test_invalid_names_are_one_line(orthobench, arguments, message):
    outcome = orthobench("plugins", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_check_refuses_a_file_of_layers_alone(orthobench, tmp_path, monkeypatch):
    """Nothing in it would be checked, and "all is well" would be said of the built-in plugins."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cell.py").write_text("import torch\n\nclass Cell(torch.nn.RNN): ...\n")
    outcome = orthobench("plugins", "--check", "--plugin", "./cell.py")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.endswith("`orthobench plugins cell.py:CLASS` tries a layer\n")


def test_name_of_two_kinds_needs_its_kind(orthobench, tmp_path):
    (tmp_path / "adding.py").write_text(
        "from orthobench.models.rnn import RNN\nclass Adding(RNN):\n    title = 'a model'\n"
    )
    refused = orthobench("plugins", "adding", "--plugin", "adding.py")
    assert refused.code == 2
    assert "several plugins have the name 'adding': write task/adding or model/adding" in refused.err
    shown = orthobench("plugins", "model/adding", "--plugin", "adding.py")
    assert shown.out.startswith("model adding: a model\n")
