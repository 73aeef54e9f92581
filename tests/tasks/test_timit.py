"""Next-frame prediction: padding, masks, both averages, and what is measured at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from support.speech import speech, write_speech, write_timit_sample

from orthobench.data.registry import dataset
from orthobench.data.speech.audio_files import read_audio
from orthobench.data.speech.spectra import log_magnitude, stft
from orthobench.data.timit import speech_folder
from orthobench.options.data_folder import use_data_folder
from orthobench.store import open_store
from orthobench.tasks.timit import Timit, TimitSettings
from orthobench.testing import problems

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path):
    """Twelve files: ten train, one selects, one tests."""
    write_speech(tmp_path / "mine", 12, 0.1)
    with use_data_folder(tmp_path / "data"):
        yield str(tmp_path / "mine")


@pytest.fixture
def task(folder):
    return Timit(TimitSettings(audio=folder), 0, CPU)


def features(file):
    return log_magnitude(stft(read_audio(file)))


def test_frames_padding_and_mask_match_the_recordings(task, folder):
    files = speech_folder(Path(folder)).train
    longest = max(len(features(file)) for file in files)
    batch = task.train.batch(torch.tensor([4, 0, 7]))
    assert batch.inputs.shape == batch.targets.shape == (longest, 3, 129)
    for column, file in enumerate((files[4], files[0], files[7])):
        x = features(file)
        n = len(x)
        np.testing.assert_array_equal(batch.inputs[:n, column], x)
        assert (batch.inputs[n:, column] == -50).all()
        np.testing.assert_array_equal(batch.targets[: n - 1, column], x[1:])
        assert (batch.targets[n - 1, column] == -50).all()  # the mask is not shortened: padding is to be predicted
        assert torch.isinf(batch.targets[n:, column]).all()


def test_exchanged_shows_the_next_frame_and_asks_for_the_current_one(task, folder, monkeypatch):
    exchanged = Timit(TimitSettings(audio=folder, exchanged=True), 0, CPU)
    x = features(speech_folder(Path(folder)).train[4])
    batch, n = exchanged.train.batch(torch.tensor([4])), len(x)
    np.testing.assert_array_equal(batch.inputs[: n - 1, 0], x[1:])
    assert (batch.inputs[n - 1 :, 0] == -50).all()
    np.testing.assert_array_equal(batch.targets[:n, 0], x)
    assert torch.isinf(batch.targets[n:, 0]).all()
    rebuilt = []
    monkeypatch.setattr(
        "orthobench.tasks.timit.quality_of_predictions",
        lambda files, predictions, report: rebuilt.append(predictions) or {},
    )
    every = exchanged.test.batch(torch.arange(len(exchanged.test)))
    exchanged.final_metrics(lambda inputs: (every.targets, None), lambda done, of: None)  # a perfect answer
    true = features(speech_folder(Path(folder)).test[0])
    np.testing.assert_array_equal(rebuilt[0][0], true[1:])  # the frames after the first, which is given


def test_exchanged_has_its_own_key_and_leaves_others_unchanged():
    assert "exchanged" not in TimitSettings().canonical()
    assert TimitSettings(exchanged=True).canonical()["exchanged"] is True


def test_validation_and_test_share_their_length(task):
    every = torch.arange(1)
    steps = {len(split.batch(every).inputs) for split in (task.validation, task.test)}
    assert steps == {max(int(split.lengths.max()) for split in (task.validation, task.test))}


def test_both_averages_match_a_sum_by_hand(task):
    """Two steps of two sequences, of which three count: errors 3, 1 and 2 in every bin."""
    targets = torch.zeros(2, 2, 129)
    targets[1, 1] = torch.inf
    outputs = torch.tensor([[3.0, 1.0], [2.0, 77.0]]).unsqueeze(-1).expand(2, 2, 129).clone().requires_grad_()
    measured = {
        name: float(total) / weight for name, (total, weight) in task.measure(outputs.detach(), targets).items()
    }
    assert measured == pytest.approx({"mse_padded": 14 / 4, "mse_valid": 14 / 3})
    task.loss(outputs, targets).backward()
    expected = torch.tensor([[3.0, 1.0], [2.0, 0.0]]) * 2 / (4 * 129)
    torch.testing.assert_close(outputs.grad, expected.unsqueeze(-1).expand(2, 2, 129))


def test_baseline_is_the_mean_frame(task, folder):
    mean = np.concatenate([features(file) for file in speech_folder(Path(folder)).train]).mean(0, dtype=np.float64)
    (file,) = task.test_files
    x = features(file).astype(np.float64)
    targets = np.concatenate((x[1:], np.full((1, 129), -50)))
    squares = np.square(targets - mean).sum()
    steps = len(task.test.batch(torch.arange(1)).inputs)
    baselines = Timit.baselines(TimitSettings(audio=folder))
    assert baselines["mse_valid"] == pytest.approx(squares / x.size, rel=1e-4)
    assert baselines["mse_padded"] == pytest.approx(squares / (steps * 129), rel=1e-4)


def test_task_meets_the_contract(tmp_path):
    with use_data_folder(tmp_path / "data"):
        dataset("timit_sample").import_files(write_timit_sample(tmp_path / "nltk"))
        assert problems("task", Timit) == []


def test_predictions_are_passed_on_by_file(task, monkeypatch):
    """A model that outputs what it is given predicts that a frame comes again."""
    handed = {}

    def note(files, predictions, report):
        handed.update(zip(files, predictions, strict=True))
        return {"stoi": 0.5}

    monkeypatch.setattr("orthobench.tasks.timit.quality_of_predictions", note)
    assert task.final_metrics(lambda inputs: (inputs, ()), lambda *_: None) == {"stoi": 0.5}
    (file,) = task.test_files
    np.testing.assert_array_equal(handed[file], features(file)[:-1])


def test_audio_metrics_are_optional(folder):
    task = Timit(TimitSettings(audio=folder, audio_metrics=False), 0, CPU)
    assert task.final_metrics(None, None) == {}


def test_folder_is_the_same_from_every_working_directory(tmp_path, monkeypatch):
    write_speech(tmp_path / "mine", 3, 0.1)
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    assert TimitSettings(audio="mine") == TimitSettings(audio=str(tmp_path / "mine"))


def test_missing_data_names_the_command(orthobench, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", "nowhere")
    outcome = orthobench("run", "timit", "rnn", "--preset", "quick")
    assert outcome.code == 2
    assert "orthobench data get timit_sample" in outcome.err
    outcome = orthobench("run", "timit", "rnn", "-s", "audio=nowhere")
    assert outcome.code == 2
    assert "nowhere cannot be read" in outcome.err


@pytest.mark.slow
def test_run_trains_from_start_to_end(orthobench, tmp_path):
    write_speech(tmp_path / "mine", 12, 0.6)
    options = ("audio=mine", "hidden_size=8", "batch_size=5", "epochs=1")
    with use_data_folder(tmp_path / "data"):
        outcome = orthobench("run", "timit", "rnn", *(word for option in options for word in ("-s", option)))
    assert outcome.code == 0, outcome.err
    assert "final metrics 1/1" in outcome.err
    with open_store("results.db") as store:
        (run,) = store.runs()
        last = {m.name: m.iteration for m in store.metrics([run.id]) if m.split == "test" and m.iteration == 2}
    assert set(last) == {"mse_padded", "mse_valid", "segsnr_db", "stoi", "pesq"}


def test_real_sample_has_its_counts_of_frames(real_data):
    """490 s of speech with the dialect sentences; the counts of frames follow from the files' own."""
    real_data("timit_sample")
    assert dataset("timit_sample").verify() == []
    task = Timit(TimitSettings(dataset="timit_sample"), 0, CPU)
    assert [len(split) for split in (task.train, task.validation, task.test)] == [80, 16, 32]
    assert task.train.lengths[:3].tolist() == [267, 175, 272]  # dr1-fvmh0: si1466, si2096, si836
    assert len(task.test.batch(torch.arange(1)).inputs) == 349  # dr6-fapb0/si2323, the longest of regions 6 to 8
    batch = task.train.batch(torch.arange(80))
    said = batch.inputs[:, :, 40:50][batch.inputs[:, :, 40:50] > -50]
    assert -45 < said.mean() < -25
    assert said.max() < 42.2  # 20 log10(128), a full-scale sine


def run_timit(tmp_path, folder, *settings):
    """Run a small network in a process, and return its run, the values of its last rows and what it printed."""
    options = ["audio=" + folder, "epochs=1", "hidden_size=4", "batch_size=10", "evaluation_batch_size=1", *settings]
    command = [sys.executable, "-m", "orthobench", "run", "timit", "lstm", "--db", "r.db"]
    command += [word for option in options for word in ("-s", option)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    with open_store(str(tmp_path / "r.db")) as store:
        (run,) = store.runs()
        values = {row.name: row.value for row in store.metrics([run.id], iteration=run.iterations)}
    return run, values, done


@pytest.mark.slow
def test_five_minute_recording_does_not_end_the_run(folder, tmp_path):
    """P.862's native code dies of it, and takes its process along."""
    sentences = [np.concatenate((speech(1.0, number), np.zeros(4000))) for number in range(200)]
    soundfile.write(speech_folder(Path(folder)).test[0], np.concatenate(sentences), 8000)
    run, values, done = run_timit(tmp_path, folder)
    assert (done.returncode, run.status) == (0, "finished"), done.stderr
    assert np.isnan(values["pesq"])
    assert np.isfinite([values["mse_padded"], values["segsnr_db"], values["stoi"]]).all()
    assert "pesq is not defined for 1 of 1 files; 11.wav: its process died" in done.stderr


@pytest.mark.slow
def test_silent_reconstruction_does_not_end_the_run(folder, tmp_path):
    for file in Path(folder).iterdir():  # quiet, so that one step of 300 dB leads to silence
        soundfile.write(file, 0.002 * speech(1.0), 8000)
    run, values, done = run_timit(tmp_path, folder, "optimizer=adam", "learning_rate=300", "diverged_above=none")
    assert (done.returncode, run.status) == (0, "finished"), done.stderr
    assert np.isnan(values["pesq"])
    assert values["segsnr_db"] == pytest.approx(0, abs=0.01)
    assert "pesq is not defined for 1 of 1 files" in done.stderr
