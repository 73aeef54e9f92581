"""`orthobench data`, and runs on data sets."""

from __future__ import annotations

import json

from support.data import write_mnist

IMAGES = ("-s", "batch_size=10", "-s", "epochs=2", "-s", "hidden_size=4", "-s", "train_size=40", "-s", "test_size=20")


def test_list_import_verify_and_a_run(orthobench, data_folder, tmp_path):
    source_folder = write_mnist(tmp_path / "theirs")
    assert "mnist          no" in orthobench("data", "list").out
    assert orthobench("data", "verify").out == "no data set is installed: orthobench data get NAME\n"

    missing = orthobench("run", "mnist", "rnn", *IMAGES)
    assert missing.code == 2
    assert missing.err == (
        "error: mnist is not installed: orthobench data get mnist (files you have: orthobench data import mnist PATH); "
        f"looked in {data_folder / 'mnist'}\n"
    )

    brought = orthobench("data", "import", "mnist", str(source_folder))
    assert (brought.code, brought.out) == (0, f"mnist is in {data_folder / 'mnist'}\n")
    assert "mnist          yes" in orthobench("data", "list").out
    (record,) = [entry for entry in json.loads(orthobench("data", "list", "--json").out) if entry["name"] == "mnist"]
    assert record["here"]
    assert record["folder"] == str(data_folder / "mnist")
    assert record["bytes"] == sum(file.stat().st_size for file in source_folder.iterdir())

    verified = orthobench("data", "verify", "mnist")
    assert verified.code == 1
    assert "mnist: not the canonical copy" in verified.out
    in_json = orthobench("data", "verify", "mnist", "--json")
    assert in_json.code == 1
    ((record),) = json.loads(in_json.out)
    assert (record["name"], verified.out) == ("mnist", f"mnist: {'; '.join(record['problems'])}\n")

    ran = orthobench("run", "mnist", "rnn", *IMAGES, "-s", "validation_size=10")
    assert ran.code == 0, ran.err
    shown = json.loads(orthobench("show", ran.out.split()[1], "--json").out)
    points = {name: [point["iteration"] for point in row] for name, row in shown["metrics"].items()}
    assert points["valid/accuracy"] == points["test/accuracy"] == [0, 4, 8]


def test_data_folder_is_an_option_of_data_run_and_sweep(orthobench, data_folder, tmp_path):
    source_folder, other = write_mnist(tmp_path / "theirs"), str(tmp_path / "other")
    assert orthobench("data", "import", "mnist", str(source_folder), "--data-dir", other).code == 0
    assert not data_folder.exists()
    assert "mnist is not installed" in orthobench("run", "mnist", "rnn", *IMAGES, "-s", "validation_size=0").err
    assert orthobench("run", "mnist", "rnn", "--data-dir", other, *IMAGES, "-s", "validation_size=0").code == 0
    sweep = ("sweep", "mnist", "--models", "rnn", "--data-dir", other, *IMAGES, "-s", "validation_size=10")
    assert orthobench(*sweep).code == 0


def test_invalid_paths_and_names_are_one_line(orthobench, data_folder, tmp_path):
    for words, message in (
        (("import", "mnist", "nowhere"), "error: nowhere does not exist: name the file or folder with MNIST\n"),
        (("get", "minst"), "error: unknown data set 'minst': did you mean mnist or kmnist?\n"),
        (
            ("verify", "cifar10"),
            "error: cifar10 is not installed: orthobench data get cifar10 "
            "(files you have: orthobench data import cifar10 PATH); "
            f"looked in {data_folder / 'cifar10'}\n",
        ),
    ):
        outcome = orthobench("data", *words)
        assert (outcome.code, outcome.err) == (2, message)
