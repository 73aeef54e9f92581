"""TIMIT in all its distributed forms; splits; features stored completely or not at all."""

from __future__ import annotations

import errno
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from support.speech import SENTENCES, speech, sphere, write_speech, write_timit_sample

from orthobench.data.features import speech_features
from orthobench.data.registry import dataset
from orthobench.data.speech.audio_files import read_audio
from orthobench.data.speech.spectra import log_magnitude, stft
from orthobench.data.timit import CORE_TEST, VALIDATION, speech_folder
from orthobench.errors import StorageError, UsageError
from orthobench.options.data_folder import use_data_folder


@pytest.fixture(autouse=True)
def data(tmp_path):
    with use_data_folder(tmp_path / "data"):
        yield tmp_path / "data"


def speakers() -> dict[str, list[str]]:
    """462 and 168 codes, the true ones where a split names them."""
    train = [f"M{chr(65 + i // 100)}{chr(65 + i // 10 % 10)}X{i % 10}" for i in range(462)]
    named = sorted(name.upper() for name in CORE_TEST | VALIDATION)
    return {"TRAIN": train, "TEST": named + [f"FZ{chr(65 + i // 10)}Y{i % 10}" for i in range(168 - len(named))]}


def corpus(folder: Path, lower: bool = False) -> Path:
    """The LDC's tree with a few samples in every file."""
    content = sphere(np.arange(300, dtype=np.int16))
    for part, names in speakers().items():
        for number, name in enumerate(names):
            inside = f"TIMIT/{part}/DR{number % 8 + 1}/{name}"
            where = folder / (inside.lower() if lower else inside)
            where.mkdir(parents=True)
            for sentence in SENTENCES:
                file = f"{sentence.upper()}.WAV"
                (where / (file.lower() if lower else file)).write_bytes(content)
            (where / "SA1.PHN").write_text("0 1 h#")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("lower", [False, True])
def test_whole_corpus_is_imported(tmp_path, lower):
    timit = dataset("timit")
    timit.import_files(corpus(tmp_path / "ldc", lower))
    assert timit.verify() == []
    split = timit.speech()
    assert [len(part) for part in (split.train, split.validation, split.test)] == [3696, 400, 192]
    assert len(split.held_out) == 1344
    assert {file.parent.name for file in split.test} == CORE_TEST
    assert {file.parent.name for file in split.validation} == VALIDATION
    assert not any(file.name.startswith("sa") for file in timit.folder().rglob("*.wav"))
    used = [*split.train, *split.validation, *split.test]
    assert len(set(used)) == len(used)


def test_lists_of_speakers_match_the_documentation():
    assert (len(CORE_TEST), len(VALIDATION)) == (24, 50)
    assert not CORE_TEST & VALIDATION
    assert sum(name.startswith("m") for name in CORE_TEST) == 16  # two men and a woman of each region


def test_sample_is_imported_and_split(tmp_path):
    timit = dataset("timit_sample")
    timit.import_files(write_timit_sample(tmp_path / "nltk"))
    assert timit.verify() == []
    split = timit.speech()
    assert [len(part) for part in (split.train, split.validation, split.test)] == [80, 16, 32]
    regions = [{file.parent.name[2] for file in part} for part in (split.train, split.validation, split.test)]
    assert regions == [set("12345"), set("6"), set("78")]
    assert split.held_out == split.validation + split.test


def test_sample_is_imported_from_its_archive(tmp_path):
    folder = write_timit_sample(tmp_path / "timit")
    with zipfile.ZipFile(tmp_path / "timit.zip", "w") as archive:
        for file in folder.rglob("*.wav"):
            archive.write(file, file.relative_to(tmp_path))
    dataset("timit_sample").import_files(tmp_path / "timit.zip")
    assert dataset("timit_sample").verify() == []
    (tmp_path / "timit.zip").write_bytes((tmp_path / "timit.zip").read_bytes()[:1000])
    with pytest.raises(UsageError, match=r"timit\.zip is not a complete ZIP archive"):
        dataset("timit_sample").import_files(tmp_path / "timit.zip")
    assert dataset("timit_sample").verify() == []  # the previous data stays


def test_incomplete_or_broken_sample_is_refused(tmp_path):
    folder = write_timit_sample(tmp_path / "nltk")
    (folder / "dr1-faaa0" / "sx1.wav").unlink()
    (folder / "dr2-faba0" / "si2.wav").write_bytes(b"")
    timit = dataset("timit_sample")
    with pytest.raises(UsageError, match=r"dr1-faaa0 has 7 of 8 sentences; dr2-faba0/si2\.wav is empty"):
        timit.import_files(folder)
    assert not timit.present()
    with pytest.raises(UsageError, match="orthobench data get timit_sample"):
        timit.require()
    with pytest.raises(UsageError, match=r"holds no files of TIMIT.*name the folder"):
        timit.import_files(tmp_path / "data")


def test_missing_corpus_names_the_licence():
    with pytest.raises(UsageError, match=r"it needs a licence \(https.*orthobench data import timit"):
        dataset("timit").speech()


def names(files, folder):
    return {file.relative_to(folder).as_posix() for file in files}


def test_folder_of_speech_is_split_by_subfolder(tmp_path):
    for number in range(20):
        write_speech(tmp_path / "mine" / f"speaker{number}", 2, 0.02)
    (tmp_path / "mine" / "notes.txt").write_text("not speech")
    split = speech_folder(tmp_path / "mine")
    parts = [{file.parent for file in part} for part in (split.train, split.validation, split.test)]
    assert [len(part) for part in parts] == [16, 2, 2]
    assert len(set.union(*parts)) == 20
    (tmp_path / "mine").rename(tmp_path / "moved")
    again = speech_folder(tmp_path / "moved")
    assert names(again.test, tmp_path / "moved") == names(split.test, tmp_path / "mine")


def test_flat_folder_is_split_by_file(tmp_path):
    files = write_speech(tmp_path, 5, 0.02)
    files[0].rename(files[0].with_suffix(".FLAC"))
    split = speech_folder(tmp_path)
    assert [len(part) for part in (split.train, split.validation, split.test)] == [3, 1, 1]
    assert len({*split.train, *split.validation, *split.test}) == 5


def test_unusable_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="nowhere cannot be read: No such file"):
        speech_folder(tmp_path / "nowhere")
    write_speech(tmp_path, 2, 0.02)
    with pytest.raises(UsageError, match="has 2 WAV or FLAC files"):
        speech_folder(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_folder_without_permission_is_named(tmp_path):
    write_speech(tmp_path / "open", 3, 0.02)
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(UsageError, match="closed cannot be read: Permission denied"):
        speech_folder(tmp_path)


def test_features_are_computed_once_and_mapped(tmp_path, data, monkeypatch):
    files = write_speech(tmp_path / "mine", 3, 0.1)
    frames, lengths = speech_features(files)
    expected = [log_magnitude(stft(read_audio(file))) for file in files]
    assert lengths.tolist() == [len(features) for features in expected]
    np.testing.assert_array_equal(frames[:-2].numpy(), np.concatenate(expected))
    assert (frames[-2] == -50).all()
    assert torch.isinf(frames[-1]).all()
    monkeypatch.setattr("orthobench.data.features.read_audio", None)
    again, _ = speech_features(files)
    assert torch.equal(again, frames)


def test_features_follow_the_files(tmp_path):
    files = write_speech(tmp_path / "mine", 3, 0.1)
    before, _ = speech_features(files)
    soundfile.write(files[0], speech(0.2, 5, 16000), 16000, subtype="PCM_16")
    after, lengths = speech_features(files)
    np.testing.assert_array_equal(after[: lengths[0]].numpy(), log_magnitude(stft(read_audio(files[0]))))
    assert len(after) != len(before)


@pytest.mark.parametrize("damage", ["frames.f32", "lengths.npy", "longer"])
def test_damaged_features_are_computed_again(tmp_path, data, damage):
    files = write_speech(tmp_path / "mine", 3, 0.1)
    before = speech_features(files)[0].clone()
    (features_folder,) = (entry for entry in (data / ".features").iterdir() if entry.is_dir())
    if damage == "longer":
        with (features_folder / "frames.f32").open("ab") as stream:
            stream.write(b"1234")
    else:
        (features_folder / damage).write_bytes((features_folder / damage).read_bytes()[:-20])
    assert torch.equal(speech_features(files)[0], before)


@pytest.mark.parametrize("fault", ["a full disk", "a broken file"])
def test_partial_features_are_removed(tmp_path, data, fault, monkeypatch):
    files = write_speech(tmp_path / "mine", 3, 0.1)
    if fault == "a broken file":
        files[2].write_bytes(b"")
        kind, message = UsageError, r"02\.wav is empty"
    else:

        def fill(samples):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("orthobench.data.features.stft", fill)
        kind, message = StorageError, "No space left"
    with pytest.raises(kind, match=message):
        speech_features(files)
    assert not [entry for entry in (data / ".features").iterdir() if entry.is_dir()]
