"""The commands show kept weights, and move or remove them with their runs."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from orthobench.training.checkpoint import checkpoints_at


@pytest.fixture
def key(after, tiny_options) -> str:
    orthobench = after(("run", "adding", "rnn", *tiny_options, "--keep-weights", "both"))
    return json.loads(orthobench("ls", "--json").out)[0]["run"]


def files(folder="results.db.weights") -> set[str]:
    return {file.name for file in Path(folder).glob("*")}


def names(key, *kinds) -> set[str]:
    return {f"{key}.{kind}.safetensors" for kind in kinds}


def test_ls_and_show_list_kept_weights(orthobench, key, tiny_options):
    assert "best, last, state" in orthobench("ls").out
    shown = orthobench("show", key)
    assert f"{Path('results.db.weights').resolve()}/{key}.best.safetensors: iteration" in shown.out
    assert "MISSING" not in shown.out
    Path("results.db.weights", f"{key}.best.safetensors").unlink()
    assert orthobench("show", key).out.count("MISSING") == 1
    content = json.loads(orthobench("show", key, "--json").out)
    assert {row["kind"]: row["exists"] for row in content["weights"]} == {"best": False, "last": True, "state": True}
    orthobench("run", "adding", "rnn", *tiny_options, "--seed", "1", "--keep-weights", "none")
    other = json.loads(orthobench("ls", "--seed", "1", "--json").out)[0]["run"]
    assert "none are kept" in orthobench("show", other).out


def test_continued_run_names_the_earlier_run(orthobench, key, tiny_options):
    orthobench("run", "adding", "rnn", *tiny_options[:8], *tiny_options[10:], "--epochs", "4")
    runs = json.loads(orthobench("ls", "--json").out)
    assert [run["epochs"] for run in runs] == [3, 4]
    assert json.loads(orthobench("show", runs[1]["run"], "--json").out)["continued_from"] == key


def test_key_does_not_depend_on_kept_weights(orthobench, key, tiny_options):
    again = orthobench("run", "adding", "rnn", *tiny_options, "--keep-weights", "none", "--force")
    assert f"run {key} finished" in again.out
    assert files() == set()


def test_info_and_doctor_report_kept_weights(orthobench, key):
    assert "weights: 3 files, " in orthobench("db", "info").out
    assert json.loads(orthobench("db", "info", "--json").out)["weights"]["files"] == 3
    assert "3 files, " in orthobench("doctor").out
    Path("results.db.weights", f"{key}.best.safetensors").unlink()
    assert f"missing files: 1, such as {key}.best.safetensors" in orthobench("doctor").out
    (line,) = [line for line in orthobench("db", "info").out.splitlines() if line.startswith("weights: ")]
    assert line.startswith("weights: 2 files, ")
    assert "results.db.weights; missing: 1 file, " in line
    shown = json.loads(orthobench("db", "info", "--json").out)["weights"]
    assert (shown["files"], shown["missing"]) == (2, 1)
    assert shown["bytes"] == sum(path.stat().st_size for path in Path("results.db.weights").iterdir())


def test_merge_copies_the_files(orthobench, key):
    Path("results.db.weights", f"{key}.last.safetensors").write_bytes(b"changed")
    done = orthobench("db", "merge", "results.db", "--db", "all.db")
    assert "2 files of weights copied, 1 are missing or were changed, and are not copied" in done.out
    assert files("all.db.weights") == names(key, "best", "state")
    evaluated = json.loads(orthobench("evaluate", key, "--db", "all.db", "--json").out)
    assert evaluated["metrics"][0]["value"] == evaluated["metrics"][0]["stored"]
    assert "copied" not in orthobench("db", "merge", "results.db", "--db", "all.db").out


def test_backup_names_the_location_of_the_weights(orthobench, key):
    done = orthobench("db", "backup", "copy.db")
    assert f"3 files of weights left in {Path('results.db.weights').resolve()}" in done.out
    assert not Path("copy.db.weights").exists()
    assert "3 files of weights copied\n" in orthobench("db", "backup", "whole.db", "--weights").out
    assert files("whole.db.weights") == names(key, "best", "last", "state")


def test_dropping_weights_keeps_results(orthobench, key):
    assert orthobench("db", "drop-weights", "--older-than", "1", "--yes").out == (
        "there are no such weights: nothing is removed\n"
    )
    done = orthobench("db", "drop-weights", "--kind", "state", "--dry-run")
    assert "1 file, " in done.out
    assert "would be removed" in done.out
    assert len(files()) == 3
    orthobench("db", "drop-weights", "--kind", "state", "--kind", "last", "--model", "rnn", "--yes")
    assert files() == names(key, "best")
    assert [run["weights"] for run in json.loads(orthobench("ls", "--json").out)] == [["best"]]
    done = orthobench("db", "drop-weights", "--kind", "first", "--yes")
    assert (done.code, done.err) == (2, "error: unknown kind of weights 'first': known: best, last, state\n")


def test_exported_tables_name_the_files(orthobench, key):
    orthobench("db", "export", "out")
    rows = list(csv.DictReader(Path("out", "weights.csv").read_text().splitlines()))
    assert [(row["run"], row["kind"]) for row in rows] == [(key, kind) for kind in ("best", "last", "state")]


def test_deleted_run_removes_its_files(orthobench, key):
    orthobench("delete", key, "--yes")
    assert files() == set()


@pytest.mark.parametrize("words", [("delete", "{key}", "--yes"), ("db", "drop-weights", "--yes")])
def test_files_behind_a_link_are_kept(orthobench, key, caplog, words):
    """The link of a database from elsewhere may lead to the weights and checkpoints of another one."""
    for name in ("weights", "checkpoints"):
        folder = Path(f"results.db.{name}")
        folder.rename(f"mine.db.{name}")
        folder.symlink_to(Path(f"mine.db.{name}").absolute())
    checkpoints = checkpoints_at(Path("mine.db.checkpoints"), key)
    checkpoints.save({"logged": 0})
    before = files("mine.db.weights")
    assert orthobench(*(word.format(key=key) for word in words)).code == 0
    assert files("mine.db.weights") == before == names(key, "best", "last", "state")
    assert checkpoints.exists()
    stays = [record.getMessage() for record in caplog.records if record.getMessage().startswith("stays: ")]
    assert [line.split()[1] for line in stays] == [
        *([str(Path("results.db.checkpoints", key).absolute())] if words[0] == "delete" else []),
        *(str(Path("results.db.weights", name).absolute()) for name in sorted(before)),
    ]


def test_location_that_the_database_cannot_record_is_refused(orthobench, tmp_path, tiny_options):
    words = ("--keep-weights", "last", "--weights-at", os.fsdecode(b"w\xe9"))
    done = orthobench("run", "adding", "rnn", *tiny_options, *words)
    assert done.code == 2
    assert "the database records the path, which is not UTF-8; name another folder with --weights-at" in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_files_behind_a_link_are_removed_if_the_command_names_it(orthobench, key):
    Path("results.db.weights").rename("mine.db.weights")
    Path("results.db.weights").symlink_to(Path("mine.db.weights").absolute())
    orthobench("delete", key, "--yes", "--weights-at", "mine.db.weights")
    assert files("mine.db.weights") == set()


@pytest.mark.parametrize(("mode", "is_named"), [("best", True), ("none", False)])
@pytest.mark.slow
def test_plan_estimates_the_size(orthobench, tiny_options, mode, is_named):
    command = ("sweep", "adding", "--models", "rnn", *tiny_options, "--dry-run", "--keep-weights", mode)
    assert ("of weights to keep" in orthobench(*command).out) == is_named
