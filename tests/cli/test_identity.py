"""A run's identity has the content of the files and folders that its settings name, and not their place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.speech import write_speech

import orthobench as ob
from orthobench.data import checksums
from orthobench.data.download import md5
from orthobench.data.timit import speech_folder, speech_md5
from orthobench.options.data_folder import use_data_folder
from orthobench.plugins import Catalog
from orthobench.settings import CHECKSUM, Settings
from orthobench.spec.resolve import RunSpec, resolve
from orthobench.store import open_store
from orthobench.task import TrainingSettings

SMALL = {"unroll_length": "5", "batch_size": "2", "evaluation_batch_size": "2", "epochs": "1", "hidden_size": "4"}
SHORT = [word for name, value in SMALL.items() for word in ("-s", f"{name}={value}")]
RUN = ["run", "ptb", "rnn", "-s", "text=book.txt", *SHORT]
PLAN = ("--dry-run", "--no-profile")
SWEEP = ["sweep", "ptb", "--models", "rnn", "-s", "text=book.txt", *SHORT]
NUMBERS = ("factor_sizes",)
"""Settings that are a text and name no file."""
BOOK = "the quick brown fox jumps over the lazy dog, again and again. " * 20


def key_of(orthobench, words: list[str]) -> str:
    """Return the key of the one run of a command, trained or planned."""
    done = orthobench(*words)
    assert done.code == 0, done.err
    if words[0] == "run":
        return done.out.split()[1]
    return next(word for word in done.out.split() if len(word) == 16 and set(word) <= set("0123456789abcdef"))


def stored(database: str = "results.db") -> dict[str, dict]:
    with open_store(database) as store:
        return {run.key: run.spec["task_settings"] for run in store.runs()}


def test_edited_text_is_another_run_in_every_command(orthobench, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text(BOOK)
    first = key_of(orthobench, RUN)
    assert key_of(orthobench, RUN) == first
    book.write_text(BOOK + "zzz")
    assert key_of(orthobench, [*SWEEP, *PLAN]) != first
    second = key_of(orthobench, RUN)
    assert second != first
    assert ob.run("ptb", "rnn", settings={"text": "book.txt", **SMALL}).key == second
    assert "finished" in orthobench(*SWEEP).out
    assert len(stored()) == 2
    book.write_text(BOOK + "yyy")
    assert orthobench(*SWEEP).code == 0
    assert len(stored()) == 3
    book.write_text(BOOK)
    assert key_of(orthobench, RUN) == first


def test_another_text_at_the_same_relative_path_is_another_run(orthobench, tmp_path, monkeypatch):
    keys = []
    for folder, content in (("d1", BOOK), ("d2", BOOK[::-1]), ("d3", BOOK)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "book.txt").write_text(content)
        monkeypatch.chdir(tmp_path / folder)
        keys.append(key_of(orthobench, [*RUN, "--db", str(tmp_path / "both.db")]))
    assert keys[0] != keys[1]
    assert keys[2] == keys[0]  # a copy of the first text is the same data
    assert len(stored(str(tmp_path / "both.db"))) == 2


@pytest.mark.parametrize("words", [RUN, SWEEP, [*SWEEP, "--dry-run"]])
def test_missing_text_is_one_line(words, orthobench, tmp_path):
    (tmp_path / "book.txt").write_text(BOOK)
    assert orthobench(*RUN).code == 0
    (tmp_path / "book.txt").unlink()
    outcome = orthobench(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: text=book.txt cannot be read: No such file or directory\n"


def spec_of(audio: Path) -> RunSpec:
    return resolve(Catalog(), "timit", "rnn", {"audio": str(audio)}).spec


def test_recordings_are_identified_by_name_and_content(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    write_speech(tmp_path / "rec", 4, 0.1)
    first = spec_of(tmp_path / "rec")
    shutil.copytree(tmp_path / "rec", tmp_path / "copy")
    for name in ("notes.txt", "._00.wav", ".DS_Store", "Thumbs.db", ".trash/old.wav", "__MACOSX/._01.wav"):
        (tmp_path / "copy" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "copy" / name).write_text("no recording")
    copied = spec_of(tmp_path / "copy")
    assert (copied.key, copied.variant, copied.condition) == (first.key, first.variant, first.condition)
    assert copied.task_settings["audio"] == str(tmp_path / "copy")  # where a worker reads them
    assert len(speech_folder(tmp_path / "copy").train) == 2
    seen = {first.key}
    for change in (
        lambda rec: (rec / "03.wav").rename(rec / "04.wav"),
        lambda rec: shutil.copy(rec / "00.wav", rec / "05.wav"),
        lambda rec: shutil.copy(rec / "01.wav", rec / "00.wav"),
        lambda rec: (rec / "05.wav").unlink(),
    ):
        change(tmp_path / "rec")
        spec = spec_of(tmp_path / "rec")
        assert spec.key not in seen
        assert spec.condition != first.condition
        seen.add(spec.key)


def test_changed_recordings_are_trained_again(orthobench, tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    write_speech(tmp_path / "rec", 5, 0.1)
    settings = ("audio=rec", "audio_metrics=false", "hidden_size=4", "batch_size=2", "epochs=1")
    words = ["timit", "rnn", *(word for setting in settings for word in ("-s", setting))]
    first = key_of(orthobench, ["run", *words])
    (tmp_path / "rec" / "01.wav").unlink()
    dry = ["sweep", "timit", "--models", *words[1:], *PLAN]
    assert key_of(orthobench, dry) != first
    assert key_of(orthobench, ["run", *words]) == key_of(orthobench, dry)
    shutil.rmtree(tmp_path / "rec")
    outcome = orthobench("run", *words)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "rec cannot be read: No such file or directory" in outcome.err


def test_cached_checksums_are_renewed_after_a_change(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(checksums, "md5", lambda file, md5=md5: read.append(file.name) or md5(file))
    files = write_speech(tmp_path / "rec", 3, 0.1)
    with use_data_folder(tmp_path / "data"):
        first = speech_md5(tmp_path / "rec")
        assert speech_md5(tmp_path / "rec") == first
        assert len(read) == 6  # files that changed just now may change again in the same moment
        monkeypatch.setattr(checksums, "SETTLED_SECONDS", -1)
        assert speech_md5(tmp_path / "rec") == first
        read.clear()
        assert speech_md5(tmp_path / "rec") == first
        assert read == []
        content, facts = bytearray(files[1].read_bytes()), files[1].stat()
        content[-1] ^= 1
        files[1].write_bytes(content)
        os.utime(files[1], ns=(facts.st_atime_ns, facts.st_mtime_ns))  # the size and the time of before
        assert speech_md5(tmp_path / "rec") != first
        assert read == ["01.wav"]
        (entry,) = (tmp_path / "data" / ".checksums").iterdir()
        entry.write_text("[damaged")
        content[-1] ^= 1
        files[1].write_bytes(content)
        assert speech_md5(tmp_path / "rec") == first


def test_checksum_given_by_the_user_is_compared(orthobench, tmp_path):
    (tmp_path / "book.txt").write_text(BOOK)
    outcome = orthobench(*RUN, "-s", "text_md5=0")
    assert outcome.code == 2
    assert "text=book.txt has changed" in outcome.err


@pytest.mark.parametrize("name", ["ptb", "timit"])
def test_tilde_is_the_users_folder(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    write_speech(tmp_path / "rec", 3, 0.1)
    (tmp_path / "book.txt").write_text(BOOK)
    setting, name_there = {"ptb": ("text", "book.txt"), "timit": ("audio", "rec")}[name]
    settings = resolve(Catalog(), name, "rnn", {setting: f"~/{name_there}"}).spec.task_settings
    assert settings[setting] == str(tmp_path / name_there)
    with pytest.raises(ob.UsageError, match="cannot be read"):
        resolve(Catalog(), name, "rnn", {setting: f"~nobody-of-this-name/{name_there}"})


def test_runs_on_data_sets_keep_their_keys():
    """The keys of the stored results of both tasks, as the reference database has them."""
    with open_store(str(Path(__file__).parents[2] / "results.db")) as store:
        specs = {run.key: RunSpec(**run.spec) for run in store.runs() if run.task in ("ptb", "timit")}
    assert {spec.task for spec in specs.values()} == {"ptb", "timit"}
    assert {key: spec.key for key, spec in specs.items()} == {key: key for key in specs}


def test_every_setting_that_names_a_file_has_a_checksum():
    """A free text among the settings is the name of a file."""
    catalog = Catalog()
    named = set()
    for plugin in catalog:
        if plugin.kind == "probe":
            continue
        settings: type[Settings] = plugin.load().Settings
        texts = {
            name
            for name, field in settings.model_fields.items()
            if name not in (*TrainingSettings.model_fields, *NUMBERS) and field.annotation in (str, str | None)
        }
        paths = {name for name in texts if not name.endswith(CHECKSUM)}
        assert texts == paths | {name + CHECKSUM for name in paths}, plugin.name
        named |= paths
    assert named == {"text", "audio"}


def test_finished_run_refuses_the_same_options_as_an_unfinished_one(orthobench, tiny_options):
    """The options that are checked on this machine are so for stored results too."""
    run = ["run", "adding", "rnn", *tiny_options]
    sweep = ["sweep", "adding", "--models", "rnn", *tiny_options]
    assert orthobench(*run).code == 0
    for words in (run, sweep):
        for option in (["--cuda-graph", "on"], ["--checkpoints", "s3://bucket/x"], ["--weights-at", "nowhere://x"]):
            finished = orthobench(*words, *option)
            unfinished = orthobench(*words, *option, *(["--seed", "7"] if words is run else ["--seeds", "2"]))
            assert (finished.code, finished.err) == (unfinished.code, unfinished.err)
            assert finished.code == 2, option
