"""TIMIT: predict the next frame of a log-magnitude spectrogram from all previous frames (Wisdom et al. 2016, section
5.3).

    x_t in R^129, dB, 62.5 frames a second;   the target of step t is x_{t+1}

All files of a part are padded with silence (-50 dB) to the longest, and steps beyond a file's end are masked. The last
step of a file is not masked: as in the uRNN program, its target is the first frame of padding. There are two averages
of the squared error. The uRNN program and the ENRNN paper divide by the number of all steps, including padding; this is
the loss here. The EXPRNN program divides by the number of steps that are not masked:

    mse_padded = sum of mask * error^2 / (B T_max 129),      mse_valid = sum of mask * error^2 / (129 * sum of lengths)

The EXPRNN program shows x_{t+1} and asks for x_t, the previous frame. A model can recall it almost without error, so
the results of this task, `-s exchanged=true`, are not comparable (D-19).

After the last iteration the test files are reconstructed from the predicted magnitudes and the true phases and compared
with the originals: segmental SNR, STOI, PESQ (`orthobench.data.speech`). As in the program, this uses the final
parameters (D-21).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.data.checksums import with_checksum
from orthobench.data.features import MASKED, PADDING, speech_features
from orthobench.data.speech import require_audio
from orthobench.data.speech.audio_files import sample_count
from orthobench.data.speech.quality import quality_of_predictions
from orthobench.data.speech.spectra import BINS, frame_count
from orthobench.data.timit import TimitCorpus, TimitSample, speech_folder, speech_md5
from orthobench.model import Model, Signature
from orthobench.settings import Settings
from orthobench.task import Batch, Metric, Task

EVALUATED_TOGETHER = 32

_CORPORA = {"timit": TimitCorpus, "timit_sample": TimitSample}


class TimitSettings(Settings):
    dataset: Literal["timit", "timit_sample"] = Field(
        "timit", description="data set; timit: the whole corpus; timit_sample: its public sample"
    )
    audio: str | None = Field(
        None, description="folder of WAV or FLAC files to read instead of TIMIT; none: the data set"
    )
    audio_md5: str | None = Field(
        None,
        description="checksum of the recordings' relative paths and contents; computed unless set",
        json_schema_extra={"neutral": None},
    )
    exchanged: bool = Field(
        False,
        description="predict the previous frame, as in EXPRNN's program; false: the next frame",
        json_schema_extra={"neutral": False},
    )
    audio_metrics: bool = Field(
        True, description="reconstruct the test files after training and measure SegSNR, STOI and PESQ"
    )

    @model_validator(mode="before")
    @classmethod
    def _add_checksum(cls, values: dict[str, Any]) -> dict[str, Any]:
        return with_checksum(values, "audio", speech_md5)


class Timit(Task):
    version = 1
    title = "TIMIT speech prediction"
    short_title = "TIMIT"
    cites = "garofolo1993, wisdom2016"
    Settings = TimitSettings
    metrics = (
        Metric("mse_padded", "min", "dB²", "MSE over all steps", is_graded=True),
        Metric("mse_valid", "min", "dB²", "MSE over the files' own steps"),
        Metric("segsnr_db", "max", "dB", "segmental SNR"),
        Metric("stoi", "max", label="STOI"),
        Metric("pesq", "max", label="PESQ"),
    )
    protocol = {
        "batch_size": 28,
        "epochs": 100,
        "evaluation_batch_size": 100,
        "optimizer": "adam_tf1",
        "learning_rate": 1e-3,
    }
    quick = {
        "dataset": "timit_sample",
        "batch_size": 4,
        "epochs": 40,
        "hidden_size": 128,
        "optimizer": "adam_tf1",
        "learning_rate": 1e-2,
        "recurrent_learning_rate": 1e-4,
        "learning_rate_decay": 0.95,
    }
    exact = {
        "model": "enrnn",
        "audio_metrics": False,
        "epochs": 3,
        "hidden_size": 16,
        "learning_rate": 1e-4,
        "recurrent_learning_rate": 3e-4,
        "clip_norm": 1.0,
        "learning_rate_decay": 0.5,
        "shuffle": True,
    }

    train: FrameSplit
    validation: FrameSplit
    test: FrameSplit

    def __init__(self, settings: TimitSettings, seed: int, device: torch.device) -> None:
        require_audio()
        self.signature = Signature(input_size=BINS, output_size=BINS, readout="all")
        self.audio_metrics, self.device = settings.audio_metrics, device
        speech = speech_folder(Path(settings.audio)) if settings.audio else _CORPORA[settings.dataset]().speech()
        parts = (speech.train, speech.validation, speech.test)
        frames, lengths = speech_features([file for part in parts for file in part])
        if device.type == "cuda" and frames.nbytes < torch.cuda.mem_get_info(device)[0] / 2:
            frames = frames.to(device)
        starts = lengths.cumsum(0) - lengths
        trained, validation, test = torch.arange(len(lengths)).split([len(part) for part in parts])
        held_out = max(frame_count(sample_count(file)) for file in speech.held_out)

        def split(files: Tensor, steps: int) -> FrameSplit:
            return FrameSplit(frames, starts[files], lengths[files], steps, settings.exchanged, device)

        self.train = split(trained, int(lengths[trained].max()))
        self.validation, self.test = split(validation, held_out), split(test, held_out)
        self.first_answer = int(settings.exchanged)  # the target of step 0 would be the first frame, which is given
        self.test_files, self.test_lengths = speech.test, lengths[test].tolist()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _squared_errors(outputs, targets).sum() / targets.numel()

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return both averages, in dB^2."""
        total = _squared_errors(outputs, targets).sum(dtype=torch.float64)
        return {"mse_padded": (total, targets.numel()), "mse_valid": (total, float(targets.isfinite().sum()))}

    @torch.no_grad()
    def final_metrics(self, model: Model, report: Callable[[int, int], None]) -> dict[str, float]:
        """Return SegSNR (dB), STOI and PESQ of the reconstructed test files, averaged over files."""
        if not self.audio_metrics:
            return {}
        predictions = []
        for examples in torch.arange(len(self.test), device=self.device).split(EVALUATED_TOGETHER):
            outputs, _ = model(self.test.batch(examples).inputs)
            for file, column in zip(examples.tolist(), outputs.unbind(1), strict=True):
                answers = column[self.first_answer :][: self.test_lengths[file] - 1]
                predictions.append(answers.cpu().numpy())
        return quality_of_predictions(self.test_files, predictions, report)

    @classmethod
    def baselines(cls, settings: TimitSettings) -> dict[str, float]:
        """The test error of always predicting the mean training frame."""
        task = cls(settings, 0, torch.device("cpu"))
        mean = task.train.frames[: int(task.train.lengths.sum())].mean(0)  # the training files come first
        batch = task.test.batch(torch.arange(len(task.test)))
        measured = task.measure(mean.expand_as(batch.inputs), batch.targets)
        return {name: float(total) / weight for name, (total, weight) in measured.items()}


class FrameSplit:
    """Files in a table of frames as computed by `speech_features`, given by start and length, padded to `steps`."""

    def __init__(
        self, frames: Tensor, starts: Tensor, lengths: Tensor, steps: int, exchanged: bool, device: torch.device
    ) -> None:
        self.frames, self.exchanged, self.device = frames, exchanged, device
        self.starts, self.lengths = starts.to(frames.device), lengths.to(frames.device)
        self.time = torch.arange(steps + 1, device=frames.device).unsqueeze(1)

    def __len__(self) -> int:
        return len(self.starts)

    def batch(self, examples: Tensor) -> Batch:
        """Return inputs and targets `[time, batch, 129]`; masked targets are infinite."""
        examples = examples.to(self.frames.device)
        lengths = self.lengths[examples]
        rows = torch.where(self.time < lengths, self.starts[examples] + self.time, len(self.frames) + PADDING)
        inputs, answers = (rows[1:], rows[:-1]) if self.exchanged else (rows[:-1], rows[1:])
        targets = torch.where(self.time[:-1] < lengths, answers, len(self.frames) + MASKED)
        return Batch(*(nn.functional.embedding(part, self.frames).to(self.device) for part in (inputs, targets)))


def _squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error of every element; zero where the target is masked."""
    return torch.where(targets.isfinite(), outputs - targets, 0).square()
