"""A command whose runs cannot start makes no database and ends with exit code 2."""

from __future__ import annotations

import pytest
import torch

SIZES = "sequence_length=10,train_size=40,test_size=20,batch_size=10,epochs=1,hidden_size=8"
SHORT = [word for setting in SIZES.split(",") for word in ("-s", setting)]
COMMANDS = {
    "run": ["run", "adding", "rnn", *SHORT],
    "sweep": ["sweep", "adding", "--models", "rnn,lstm", "--seeds", "2", *SHORT],
    "tune": ["tune", "adding", "--models", "rnn", "--grid", "learning_rate=1e-3,1e-2", "--trials", "2", *SHORT],
}
MISSING_DATA = {
    "run": ["run", "mnist", "rnn"],
    "sweep": ["sweep", "mnist", "--models", "rnn,lstm"],
    "tune": ["tune", "mnist", "--models", "rnn", "--grid", "learning_rate=1e-3,1e-2", "--trials", "2"],
    "reproduce": ["reproduce", "helfrich2018", "--where", "task=mnist"],
    "study": ["study", "orthogonality"],
}
CANNOT_START = {
    "batch larger than the data": (["batch_size=41"], "batch_size=41 is more than the training set of 40"),
    "no validation data": (
        ["batch_size=10", "-s", "plateau_decay=0.5"],
        "adding has no validation data to judge a plateau by",
    ),
}


def refused(orthobench, tmp_path, arguments: list[str]) -> str:
    done = orthobench(*arguments)
    assert done.code == 2, done
    assert "Traceback" not in done.err
    assert sorted(path.name for path in tmp_path.iterdir() if "db" in path.name) == []
    return done.err


@pytest.mark.parametrize("command", MISSING_DATA)
def test_missing_data_creates_no_database(command, orthobench, data_folder, tmp_path):
    error = refused(orthobench, tmp_path, MISSING_DATA[command])
    assert error.count("\n") == 1
    assert "is not installed: orthobench data get" in error


@pytest.mark.parametrize("command", MISSING_DATA | COMMANDS)
def test_missing_device_creates_no_database(command, orthobench, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    error = refused(orthobench, tmp_path, [*(MISSING_DATA | COMMANDS)[command], "--device", "cuda"])
    assert "there is no CUDA device here" in error


@pytest.mark.parametrize("reason", CANNOT_START)
@pytest.mark.parametrize("command", COMMANDS)
def test_incompatible_settings_create_no_database(command, reason, orthobench, tmp_path):
    settings, message = CANNOT_START[reason]
    at = COMMANDS[command].index("batch_size=10")
    arguments = [*COMMANDS[command][:at], *settings, *COMMANDS[command][at + 1 :]]
    assert message in refused(orthobench, tmp_path, arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_model_that_does_not_fit_the_task_creates_no_database(command, orthobench, tmp_path):
    (tmp_path / "rnn_of_images.py").write_text(
        "from orthobench.models.rnn import RNN\n"
        "class ImageRNN(RNN):\n"
        "    title = 'x'\n"
        "    def __init__(self, settings, signature, generator):\n"
        "        raise ValueError('the model reads images')\n"
    )
    arguments = [word.replace("rnn,lstm", "rnn") for word in COMMANDS[command]]
    arguments = ["rnn_of_images" if word == "rnn" else word for word in arguments]
    error = refused(orthobench, tmp_path, [*arguments, "--plugin", "rnn_of_images.py"])
    assert error == "error: adding and rnn_of_images do not fit: the model reads images (rnn_of_images.py:5)\n"


def test_sweep_with_one_possible_run_is_trained(orthobench, tmp_path):
    settings = [word for setting in SIZES.split(",") if "batch" not in setting for word in ("-s", setting)]
    done = orthobench("sweep", "adding", "--models", "rnn", *settings, "--grid", "batch_size=41,10")
    assert done.code == 1, done
    assert (tmp_path / "results.db").exists()
