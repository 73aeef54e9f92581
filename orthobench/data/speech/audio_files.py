"""Read audio files as the uRNN program does: the first channel, at 8 kHz, with 16-bit resolution.

libsndfile reads WAV, FLAC and NIST SPHERE (TIMIT's format). The resampling is polyphase with a Kaiser-windowed sinc:
ten zero crossings a side, beta 5. MATLAB's `resample` and SciPy's `resample_poly` use the same filter.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from orthobench.errors import UsageError

if TYPE_CHECKING:
    import soundfile

RATE = 8000
"""Samples per second of all speech after `read_audio`."""
RATES = range(1000, 768_001)
"""Samples per second that `read_audio` accepts; other rates mean that the header is damaged."""

_FULL_SCALE = 1 << 15

Samples = NDArray[np.float64]


def read_audio(path: Path) -> Samples:
    """Return the first channel at 8 kHz, `[ceil(samples * 8000 / rate)]`, as multiples of 2^-15 in [-1, 1).

    Raises:
        UsageError: the file does not exist, is not readable audio, is empty, or holds numbers that are not finite.
    """
    import soundfile

    with _opened(path) as file:
        try:
            samples = file.read(dtype="float64", always_2d=True)[:, 0]
        except soundfile.LibsndfileError as error:
            raise UsageError(f"{path} is cut off or damaged: {error.error_string}") from error
        if len(samples) < file.frames:
            raise UsageError(f"{path} is cut off: {len(samples)} of {file.frames} samples are present")
        if not np.isfinite(samples).all():
            raise UsageError(f"{path} holds samples that are not finite: export it again")
        return in_16_bits(resample(samples, file.samplerate))


def sample_count(path: Path) -> int:
    """Return the number of samples that `read_audio` would return, using only the file's header.

    Raises:
        UsageError: as for `read_audio`, except for faults that only show in the samples.
    """
    with _opened(path) as file:
        return -(-int(file.frames) * RATE // int(file.samplerate))


def resample(samples: Samples, rate: int) -> Samples:
    """Resample `[L]` samples at a rate in Hz to 8 kHz, `[ceil(L * 8000 / rate)]`."""
    if rate == RATE:
        return samples
    from scipy.signal import resample_poly  # slow to import, and not needed for headers

    common = math.gcd(rate, RATE)
    resampled: Samples = resample_poly(samples, RATE // common, rate // common)
    return resampled


def in_16_bits(samples: Samples) -> Samples:
    """Round samples to 16 bits, as a 16-bit file stores them, and clip them to full scale."""
    steps: Samples = np.clip(np.rint(samples * _FULL_SCALE), -_FULL_SCALE, _FULL_SCALE - 1)
    return steps / _FULL_SCALE


def _opened(path: Path) -> soundfile.SoundFile:
    """Open an audio file that is not empty.

    Raises:
        UsageError: the file cannot be read, is empty, or is not audio.
    """
    import soundfile

    try:
        with path.open("rb") as stream:
            head = stream.read(1024)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise UsageError(f"{path} is empty: replace it by a complete copy, or remove it")
    if head.startswith(b"NIST_1A") and b"shorten" in head:
        raise UsageError(
            f"{path} is compressed with shorten, which orthobench cannot read: "
            "unpack it first, for example with the LDC's `sph2pipe -p`"
        )
    try:
        file = soundfile.SoundFile(path)
    except soundfile.LibsndfileError as error:
        raise UsageError(f"{path} is not readable audio (WAV, FLAC, SPHERE): {error.error_string}") from error
    if file.frames == 0:
        file.close()
        raise UsageError(f"{path} has no samples: replace it by a complete copy, or remove it")
    if file.samplerate not in RATES:
        rate = file.samplerate
        file.close()
        raise UsageError(
            f"{path} has {rate} samples per second, beyond {RATES[0]} to {RATES[-1]}: its header is damaged, export it "
            "again"
        )
    return file
