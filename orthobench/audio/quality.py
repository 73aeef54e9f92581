"""How good speech is beside its reference, at 8 kHz: segmental SNR, STOI and PESQ, over files in worker processes.

The segmental SNR is the one the uRNN program takes from VOICEBOX (`snrseg` as it comes): frames of 10 ms in which
speech is active, each aligned to within a sample, and the mean of their SNRs in dB, which are not clipped to a range.
Where speech is active is found by ITU-T P.56, method B, with VOICEBOX's high-pass in front. STOI is Taal et al. 2011,
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
_SNR_BOUND = 100.0  # dB, of segments without noise, and with the other sign of those without reference
_MARGIN = 15.9  # dB from the threshold of activity up to the active level, P.56
_SMOOTHING, _HANGOVER = 0.03, 0.2  # seconds, P.56
_THRESHOLDS = 20  # each half the power of the one before
_CUTOFF = 200.0  # Hz, where the high-pass is down by 0.25 dB
_STOPBAND_EDGE = 0.39787  # of the cutoff, where the analogue prototype (Chebyshev II, order 5) is down by 50 dB


def segmental_snr(reference: Samples, estimate: Samples) -> float:
    """Mean SNR over the 10 ms segments with active speech, in dB; nan where there are none."""
    size = min(len(reference), len(estimate))
    snr = segment_snrs(reference[:size], estimate[:size])
    active = active_speech(reference[:size])[1 : 1 + len(snr) * _SEGMENT]
    chosen = snr[active.reshape(len(snr), _SEGMENT).mean(1) > 0.5]
    return float(chosen.mean()) if len(chosen) else math.nan


def segment_snrs(reference: Samples, estimate: Samples) -> NDArray[np.float64]:
    """The SNR of every 10 ms segment, in dB, `[(L - 2) // 80]`; the first and last sample serve the alignment alone.

    The noise is the least over shifts of the reference by up to a sample: at -1, 0, 1, and the minimum of the parabola
    through these, where it lies between them.
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
    """Which samples belong to active speech, by P.56: where the held envelope is within 15.9 dB of the active level."""
    edge = RATE / math.pi * math.atan(_STOPBAND_EDGE * math.tan(math.pi * _CUTOFF / RATE))  # by the bilinear transform
    filtered = sosfilt(cheby2(5, 50, edge, "highpass", output="sos", fs=RATE), samples)
    pole = math.exp(-1 / (_SMOOTHING * RATE))
    envelope = lfilter([(1 - pole) ** 2], [1, -2 * pole, pole**2], np.abs(filtered))
    width = math.ceil(_HANGOVER * RATE) + 1
    held = maximum_filter1d(envelope, width, mode="constant", origin=(width - 1) // 2)  # over the past
    energy = float(np.square(filtered).sum())
    if energy == 0:
        return np.zeros(len(samples), dtype=bool)
    level = _active_level(held, energy)
    active: NDArray[np.bool_] = held > 10 ** ((level - _MARGIN) / 20)
    return active


def _active_level(held: Samples, energy: float) -> float:
    """The level (dB) whose margin above a threshold equals 15.9 dB, when speech is what exceeds the threshold."""
    exponents = np.frexp(held[held > 0] ** 2)[1]  # 2^(e - 1) <= held^2 < 2^e
    edges = exponents.max() - 1 - np.arange(_THRESHOLDS)
    counts = (exponents[None] > edges[:, None]).sum(1)
    counts[-1] = len(held)  # as in VOICEBOX, the last threshold is below everything
    levels = 10 * np.log10(energy / counts)
    excess = levels - 10 * math.log10(2) * edges - _MARGIN
    rises = np.flatnonzero((excess[:-1] < 0) & (excess[1:] >= 0))
    if len(rises) == 0:
        return float(levels[-1] if excess[-1] <= 0 else levels[0])
    at = rises[0]
    share = excess[at] / (excess[at] - excess[at + 1])
    return float(levels[at] + share * (levels[at + 1] - levels[at]))


def stoi(reference: Samples, estimate: Samples) -> float:
    """Short-time objective intelligibility, up to 1; nan where there is too little speech (0.4 s) to tell."""
    import pystoi

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Not enough STFT frames", category=RuntimeWarning)
        try:
            return float(pystoi.stoi(reference, estimate, RATE))
        except RuntimeWarning:
            return math.nan


def pesq(reference: Samples, estimate: Samples) -> float:
    """The P.862 score, up to 4.5; nan where no utterance is found or the speech is shorter than 0.25 s.

    The library gives it mapped to a listening quality by P.862.1, y = 0.999 + 4 / (1 + exp(4.6607 - 1.4945 x)); the
    papers' program prints x.
    """
    import pesq as p862

    try:
        mapped = p862.pesq(RATE, reference, estimate, "nb")
    except (p862.NoUtterancesError, p862.BufferTooShortError):
        return math.nan
    return (4.6607 - math.log(4 / (mapped - 0.999) - 1)) / 1.4945


def quality(reference: Samples, estimate: Samples) -> dict[str, float]:
    """All three, by the names they are logged under; nan where one is not defined."""
    return {
        "segsnr_db": segmental_snr(reference, estimate),
        "stoi": stoi(reference, estimate),
        "pesq": pesq(reference, estimate),
    }


def quality_of_predictions(
    files: Sequence[Path], predictions: Sequence[Features], report: Callable[[int, int], None]
) -> dict[str, float]:
    """The mean quality over files whose speech is rebuilt from predictions, worked out in a process for each core.

    Args:
        predictions: for each file what `rebuild` takes.
        report: told after every file how many are done, of how many.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Started afresh, since forking a process that runs threads, or holds a GPU, is not safe.
    pool = ProcessPoolExecutor(min(cores, len(files)), multiprocessing.get_context("spawn"), _ignore_interrupts)
    found: list[dict[str, float]] = []
    try:
        for measured in pool.map(_quality_of_prediction, files, predictions):
            found.append(measured)
            report(len(found), len(files))
    finally:
        pool.shutdown(cancel_futures=True)
    means = {}
    for name in found[0]:
        values = [measured[name] for measured in found if not math.isnan(measured[name])]
        if len(values) < len(found):
            log.warning("%s is not defined for %d of %d files", name, len(found) - len(values), len(found))
        means[name] = math.fsum(values) / len(values) if values else math.nan
    return means


def _quality_of_prediction(file: Path, predicted: Features) -> dict[str, float]:
    estimate, reference = rebuild(predicted, stft(read(file)))
    return quality(reference, estimate)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal; the one that started these ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
