"""Spectral features of speech files, computed once: a memory-mapped table of frames that later runs open at once."""

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

from orthobench.audio.files import read
from orthobench.audio.spectra import BINS, FLOOR, log_magnitude, stft
from orthobench.data.dataset import data_folder
from orthobench.errors import UsageError
from orthobench.store.atomic import replacing_folder

VERSION = 1
"""Raised whenever the features of the same files change."""

PADDING, MASKED = -2, -1
"""Rows of the table."""

_FRAMES, _LENGTHS = "frames.f32", "lengths.npy"

log = logging.getLogger(__name__)


def speech_features(files: Sequence[Path]) -> tuple[Tensor, Tensor]:
    """The features of all files, one after the other, in dB, and how many frames each has, `[files]`.

    The table is `[frames + 2, 129]`: the last rows are `PADDING`, silence, and `MASKED`, infinity, so that padded
    inputs and masked targets are gathered by row numbers like everything else.

    They are kept below the data folder under a name made of the files' paths, sizes and times, and computed again if
    any of these changes. The table is mapped into memory: what is not read takes none.

    Raises:
        UsageError: a file cannot be read, or the features cannot be kept; nothing half-written stays.
    """
    folder = data_folder() / ".features" / _digest(files)
    found = _open(folder)
    if found is None:
        log.info("computing the spectra of %d files, once", len(files))
        with replacing_folder(folder) as new:
            _compute(files, new)
        found = _open(folder)
    if found is None:
        raise UsageError(f"{folder} cannot be read back after it was written: check the disk")
    return found


def _digest(files: Sequence[Path]) -> str:
    try:
        facts = [(str(file.resolve()), (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files]
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
    return hashlib.sha256(json.dumps([VERSION, facts]).encode()).hexdigest()[:16]


def _compute(files: Sequence[Path], folder: Path) -> None:
    lengths = []
    # Plain writes: a full disk is then an error, where a mapped file would end the process.
    with (folder / _FRAMES).open("wb") as stream:
        for file in files:
            features = log_magnitude(stft(read(file)))
            stream.write(features.tobytes())
            lengths.append(len(features))
        stream.write(np.full(BINS, FLOOR, np.float32).tobytes() + np.full(BINS, np.inf, np.float32).tobytes())
        stream.flush()
        os.fsync(stream.fileno())
    np.save(folder / _LENGTHS, np.array(lengths))


def _open(folder: Path) -> tuple[Tensor, Tensor] | None:
    """What was kept, or None if it is not there or not whole."""
    try:
        lengths = np.load(folder / _LENGTHS)
        # Copy on write, though nothing writes: torch takes no read-only memory without a warning.
        frames = np.memmap(folder / _FRAMES, np.float32, "c", shape=(int(lengths.sum()) + 2, BINS))
        if (folder / _FRAMES).stat().st_size != frames.nbytes:
            return None
    except (OSError, ValueError, EOFError):
        return None
    return torch.from_numpy(frames), torch.from_numpy(lengths)
