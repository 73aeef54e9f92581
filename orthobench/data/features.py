"""Spectral features of speech files, computed once and stored in a memory-mapped table of frames."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from orthobench.data.speech.audio_files import read_audio
from orthobench.data.speech.spectra import BINS, FLOOR, log_magnitude, stft
from orthobench.errors import UsageError
from orthobench.options.data_folder import data_folder
from orthobench.system.files import replacing_folder

VERSION = 1
"""Increase it whenever the features of the same files change."""

PADDING, MASKED = -2, -1
"""The last two rows of the table."""

_FRAMES, _LENGTHS = "frames.f32", "lengths.npy"

_logger = logging.getLogger(__name__)


def speech_features(files: Sequence[Path]) -> tuple[Tensor, Tensor]:
    """Return the features of all files in dB, `[frames + 2, 129]`, and the frame count of each file, `[files]`.

    The frames of all files follow each other. The last two rows are `PADDING` (silence) and `MASKED` (infinity), so
    that row numbers can also gather padded inputs and masked targets.

    The features are stored below the data folder, under a hash of the files' paths, sizes and times. They are
    recomputed if any of these changes. The table is memory-mapped, so unread rows take no memory.

    Raises:
        UsageError: a file cannot be read, or the features cannot be read back.
        StorageError: the features cannot be written; no partial file remains.
    """
    folder = data_folder() / ".features" / _digest(files)
    features = _open(folder)
    if features is None:
        _logger.info("computing the spectra of %d files, once", len(files))
        with replacing_folder(folder) as new:
            _compute(files, new)
        features = _open(folder)
    if features is None:
        raise UsageError(f"{folder} cannot be read back after it was written: check the disk")
    return features


def _digest(files: Sequence[Path]) -> str:
    try:
        facts = [(str(file.resolve()), (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files]
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
    return hashlib.sha256(json.dumps([VERSION, facts]).encode()).hexdigest()[:16]


def _compute(files: Sequence[Path], folder: Path) -> None:
    lengths = []
    # Plain writes, because a full disk then raises an error; a write to a mapped file would kill the process.
    with (folder / _FRAMES).open("wb") as stream:
        for file in files:
            features = log_magnitude(stft(read_audio(file)))
            stream.write(features.tobytes())
            lengths.append(len(features))
        stream.write(np.full(BINS, FLOOR, np.float32).tobytes() + np.full(BINS, np.inf, np.float32).tobytes())
        stream.flush()
        os.fsync(stream.fileno())
    np.save(folder / _LENGTHS, np.array(lengths))


def _open(folder: Path) -> tuple[Tensor, Tensor] | None:
    """Return the stored features and frame counts, or None if they are missing or incomplete."""
    try:
        lengths = np.load(folder / _LENGTHS)
        # Copy on write although nothing writes, because torch warns about read-only memory.
        frames = np.memmap(folder / _FRAMES, np.float32, "c", shape=(int(lengths.sum()) + 2, BINS))
        if (folder / _FRAMES).stat().st_size != frames.nbytes:
            return None
    except (OSError, ValueError, EOFError):
        return None
    return torch.from_numpy(frames), torch.from_numpy(lengths)
