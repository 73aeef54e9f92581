"""The quality of speech against its reference at 8 kHz: segmental SNR, STOI and PESQ, over files in worker processes.

The segmental SNR follows VOICEBOX's `snrseg` with its defaults, as in the uRNN program. It is the mean SNR in dB over
the 10 ms segments with active speech, each aligned to within a sample. The SNRs are not clipped to a range.
ITU-T P.56, method B, decides where speech is active, after VOICEBOX's high-pass filter. STOI is Taal et al. 2011,
PESQ is ITU-T P.862, narrow band.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d
from scipy.signal import cheby2, lfilter, sosfilt

from orthobench.audio.files import RATE, Samples, read
from orthobench.audio.spectra import Features, rebuild, stft

log = logging.getLogger(__name__)

_SEGMENT = RATE // 100
_SNR_BOUND = 100.0  # dB of a segment without noise; a segment without reference has the opposite sign
_MARGIN = 15.9  # dB between the threshold of activity and the active level, P.56
_SMOOTHING, _HANGOVER = 0.03, 0.2  # seconds, P.56
_THRESHOLDS = 20  # each has half the power of the previous threshold
_CUTOFF = 200.0  # Hz, where the high-pass is down by 0.25 dB
_STOPBAND_EDGE = 0.39787  # of the cutoff, where the analogue prototype (Chebyshev II, order 5) is down by 50 dB


def segmental_snr(reference: Samples, estimate: Samples) -> float:
    """Return the mean SNR of the 10 ms segments with active speech, in dB; nan without active speech."""
    size = min(len(reference), len(estimate))
    snr = segment_snrs(reference[:size], estimate[:size])
    active = active_speech(reference[:size])[1 : 1 + len(snr) * _SEGMENT]
    chosen = snr[active.reshape(len(snr), _SEGMENT).mean(1) > 0.5]
    return float(chosen.mean()) if len(chosen) else math.nan


def segment_snrs(reference: Samples, estimate: Samples) -> NDArray[np.float64]:
    """Return the SNR of each 10 ms segment in dB, `[(L - 2) // 80]`.

    The noise is the least over shifts of up to a sample: at -1, 0 and 1, and at the minimum of the parabola
    through these, if it lies between them. The first and last sample only serve the alignment.
    """
    count = max(len(reference) - 2, 0) // _SEGMENT
    size = count * _SEGMENT

    def energies(samples: Samples) -> NDArray[np.float64]:
        sums: NDArray[np.float64] = np.square(samples).reshape(count, _SEGMENT).sum(1)
        return sums

    inner = reference[1 : 1 + size]
    before, still, after = (energies(estimate[shift : shift + size] - inner) for shift in range(3))
    curvature, slope = (before + after) / 2 - still, (after - before) / 2
    between = (curvature > 0) & (np.abs(slope) < 2 * curvature)
    bottom = still - np.divide(slope**2, 4 * curvature, out=np.zeros(count), where=between)
    noise = np.maximum(np.minimum.reduce((bottom, before, after)), 0)
    power = energies(inner)
    snr = np.full(count, _SNR_BOUND)
    both = (noise > 0) & (power > 0)
    snr[both] = 10 * np.log10(power[both] / noise[both])
    snr[power == 0] = -_SNR_BOUND
    snr[noise == 0] = _SNR_BOUND
    return snr


def active_speech(samples: Samples) -> NDArray[np.bool_]:
    """Return whether each sample is active speech, `[L]`, by P.56.

    A sample is active if the envelope with hangover is within 15.9 dB of the active level.
    """
    edge = RATE / math.pi * math.atan(_STOPBAND_EDGE * math.tan(math.pi * _CUTOFF / RATE))  # by the bilinear transform
    filtered = sosfilt(cheby2(5, 50, edge, "highpass", output="sos", fs=RATE), samples)
    pole = math.exp(-1 / (_SMOOTHING * RATE))
    envelope = lfilter([(1 - pole) ** 2], [1, -2 * pole, pole**2], np.abs(filtered))
    width = math.ceil(_HANGOVER * RATE) + 1
    sustained = maximum_filter1d(envelope, width, mode="constant", origin=(width - 1) // 2)  # over past samples
    energy = float(np.square(filtered).sum())
    if energy == 0:
        return np.zeros(len(samples), dtype=bool)
    level = _active_level(sustained, energy)
    active: NDArray[np.bool_] = sustained > 10 ** ((level - _MARGIN) / 20)
    return active


def _active_level(sustained: Samples, energy: float) -> float:
    """Return the active level in dB: 15.9 dB above the threshold that defines active speech, P.56."""
    exponents = np.frexp(sustained[sustained > 0] ** 2)[1]  # 2^(e - 1) <= sustained^2 < 2^e
    edges = exponents.max() - 1 - np.arange(_THRESHOLDS)
    counts = (exponents[None] > edges[:, None]).sum(1)
    counts[-1] = len(sustained)  # as in VOICEBOX, all samples exceed the last threshold
    levels = 10 * np.log10(energy / counts)
    excess = levels - 10 * math.log10(2) * edges - _MARGIN
    rises = np.flatnonzero((excess[:-1] < 0) & (excess[1:] >= 0))
    if len(rises) == 0:
        return float(levels[-1] if excess[-1] <= 0 else levels[0])
    at = rises[0]
    share = excess[at] / (excess[at] - excess[at + 1])
    return float(levels[at] + share * (levels[at + 1] - levels[at]))


def stoi(reference: Samples, estimate: Samples) -> float:
    """Return the short-time objective intelligibility, at most 1; nan for less than 0.4 s of speech."""
    import pystoi

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Not enough STFT frames", category=RuntimeWarning)
        try:
            return float(pystoi.stoi(reference, estimate, RATE))
        except RuntimeWarning:
            return math.nan


def pesq(reference: Samples, estimate: Samples) -> float:
    """Return the P.862 score, at most 4.5; nan without an utterance or for less than 0.25 s of speech.

    The library returns the listening quality of P.862.1, y = 0.999 + 4 / (1 + exp(4.6607 - 1.4945 x)). The papers'
    program prints x, as this function does.
    """
    import pesq as p862

    try:
        mapped = p862.pesq(RATE, reference, estimate, "nb")
    except (p862.NoUtterancesError, p862.BufferTooShortError):
        return math.nan
    return (4.6607 - math.log(4 / (mapped - 0.999) - 1)) / 1.4945


def quality(reference: Samples, estimate: Samples) -> dict[str, float]:
    """Return all three measures by their metric names; nan for a measure that is undefined."""
    return {
        "segsnr_db": segmental_snr(reference, estimate),
        "stoi": stoi(reference, estimate),
        "pesq": pesq(reference, estimate),
    }


def quality_of_predictions(
    files: Sequence[Path], predictions: Sequence[Features], report: Callable[[int, int], None]
) -> dict[str, float]:
    """Return the mean quality of speech rebuilt from predictions, computed with a process for each core.

    Args:
        predictions: the argument `predicted` of `rebuild`, for each file.
        report: called after each file with the numbers of finished files and of all files.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Spawned, because forking a process with threads or a GPU context is not safe.
    pool = ProcessPoolExecutor(min(cores, len(files)), multiprocessing.get_context("spawn"), _ignore_interrupts)
    measurements: list[dict[str, float]] = []
    try:
        for measured in pool.map(_quality_of_prediction, files, predictions):
            measurements.append(measured)
            report(len(measurements), len(files))
    finally:
        pool.shutdown(cancel_futures=True)
    means = {}
    for name in measurements[0]:
        values = [measured[name] for measured in measurements if not math.isnan(measured[name])]
        if undefined := len(measurements) - len(values):
            log.warning("%s is not defined for %d of %d files", name, undefined, len(measurements))
        means[name] = math.fsum(values) / len(values) if values else math.nan
    return means


def _quality_of_prediction(file: Path, predicted: Features) -> dict[str, float]:
    estimate, reference = rebuild(predicted, stft(read(file)))
    return quality(reference, estimate)


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C and the terminal's end, which reach all its processes: the parent process ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
