"""Log-magnitude spectra, and speech reconstructed from predicted spectra, as in the uRNN program.

Samples are zero-padded at the end to a whole number of hops, and then by 256 zeros at both ends. Frames of 256 samples
under a periodic Hann window start every 128 samples and give 129 bins:

    x_t = 10 log10(1e-5 + |X_t|^2) dB,     not normalised, at least -50 dB

S. Wisdom, T. Powers, J. Hershey, J. Le Roux, L. Atlas, "Full-Capacity Unitary Recurrent Neural Networks", NIPS 2016,
section 5.3, and its program. Later papers state the same window and hop.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from orthobench.data.speech.audio_files import Samples, in_16_bits

FRAME, HOP = 256, 128
BINS = FRAME // 2 + 1
FLOOR = -50.0
"""The feature of silence and of padding, in dB."""

_CEILING = 60.0  # dB; no frame of samples in [-1, 1] exceeds 20 log10(128) = 42.1

Spectrum = NDArray[np.complex128]
Features = NDArray[np.float32]


def frame_count(samples: int) -> int:
    """Return the number of frames of `stft` for this number of samples."""
    return math.ceil(samples / HOP) + 3


def stft(samples: Samples) -> Spectrum:
    """Return the spectrum X `[frames, 129]` of samples `[L]`, with ceil(L / 128) + 3 frames."""
    import librosa

    end = -len(samples) % HOP
    padded = np.pad(samples, (FRAME, FRAME + end))
    spectrum: Spectrum = librosa.stft(padded, n_fft=FRAME, hop_length=HOP, window="hann", center=False).T
    return spectrum


def istft(spectrum: Spectrum) -> Samples:
    """Return the samples `[128 (frames - 3)]` of X `[frames, 129]`, without the padding at both ends.

    This is the overlap-add of the windowed inverse transforms, divided by the sum of the squared windows.
    """
    import librosa

    padded = librosa.istft(spectrum.T, hop_length=HOP, n_fft=FRAME, window="hann", center=False)
    samples: Samples = padded[FRAME:-FRAME]
    return samples


def log_magnitude(spectrum: Spectrum) -> Features:
    """Return the features x in dB, `[frames, 129]`."""
    features: Features = (10 * np.log10(1e-5 + np.abs(spectrum) ** 2)).astype(np.float32)
    return features


def reconstruct(predicted: Features, spectrum: Spectrum) -> tuple[Samples, Samples]:
    """Reconstruct speech from predicted magnitudes and the true phase; return it with its reference, both in 16 bits.

    Args:
        predicted: features of frames 1, 2, ... in dB, `[frames - 1, 129]`; frame 0 is the true one.
        spectrum: the true X, `[frames, 129]`.

    Returns:
        The reconstructed samples and the true samples, `[128 (frames - 3)]` each.
    """
    decibels = np.minimum(predicted.astype(np.float64), _CEILING)
    rebuilt = spectrum.copy()
    rebuilt[1:] = 10 ** (decibels / 20) * np.exp(1j * np.angle(spectrum[1:]))
    return _saved(istft(rebuilt)), _saved(istft(spectrum))


def _saved(samples: Samples) -> Samples:
    """Round samples to 16 bits, after scaling them down to full scale if they exceed it."""
    return in_16_bits(samples / max(1.0, np.abs(samples).max()))
