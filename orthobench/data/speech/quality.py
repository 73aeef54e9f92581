"""The quality of speech relative to a reference at 8 kHz: segmental SNR, STOI and PESQ, measured in worker processes.

The segmental SNR follows VOICEBOX's `snrseg` with its defaults, as in the uRNN program. It is the mean SNR in dB over
the 10 ms segments with active speech, each aligned to within a sample. The SNRs are not clipped to a range.
ITU-T P.56, method B, decides where speech is active, after VOICEBOX's high-pass filter. STOI is Taal et al. 2011,
PESQ is ITU-T P.862, narrow band.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d
from scipy.signal import cheby2, lfilter, sosfilt

from orthobench.data.speech.audio_files import RATE, Samples, read_audio
from orthobench.data.speech.spectra import Features, reconstruct, stft
from orthobench.errors import one_line
from orthobench.system.cores import cores
from orthobench.system.spawn import Spawning

_logger = logging.getLogger(__name__)

_SEGMENT = RATE // 100
_SNR_BOUND = 100.0  # dB of a segment without noise; a segment without reference has the opposite sign
_MARGIN = 15.9  # dB between the threshold of activity and the active level, P.56
_SMOOTHING, _HANGOVER = 0.03, 0.2  # seconds, P.56
_THRESHOLDS = 20  # each has half the power of the previous threshold
_CUTOFF = 200.0  # Hz, where the high-pass filter is down by 0.25 dB
_STOPBAND_EDGE = 0.39787  # of the cutoff, where the analogue prototype (Chebyshev II, order 5) is down by 50 dB
_BEST_PESQ = 4.5
_SURELY_FITS = 20 * RATE
"""Number of samples that cannot have more than P.862's 50 utterances, which last 0.2 s and have gaps of 0.2 s."""


def segmental_snr(reference: Samples, estimate: Samples) -> float:
    """Return the mean SNR of the 10 ms segments with active speech, in dB; nan without active speech."""
    size = min(len(reference), len(estimate))
    snr = segment_snrs(reference[:size], estimate[:size])
    active = active_speech(reference[:size])[1 : 1 + len(snr) * _SEGMENT]
    chosen = snr[active.reshape(len(snr), _SEGMENT).mean(1) > 0.5]
    return float(chosen.mean()) if len(chosen) else math.nan


def segment_snrs(reference: Samples, estimate: Samples) -> NDArray[np.float64]:
    """Return the SNR of each 10 ms segment in dB, `[(L - 2) // 80]`; nan if one of its samples is nan.

    The noise is the minimum over shifts of up to one sample: at -1, 0 and 1, and at the minimum of the parabola through
    these, if it is between them. The first and last samples are used only for the alignment.
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
    snr = np.full(count, np.nan)
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
    if len(samples) == 0:
        return np.zeros(0, dtype=bool)
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

    if len(reference) < RATE * 0.4 or _is_silent(reference):
        return math.nan
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Not enough STFT frames", category=RuntimeWarning)
        try:
            return float(pystoi.stoi(reference, estimate, RATE))
        except RuntimeWarning:
            return math.nan


def pesq(reference: Samples, estimate: Samples) -> float:
    """Return the P.862 score, at most 4.5; nan for silence, less than 0.25 s of speech, or more than 50 utterances.

    The library returns the listening quality of P.862.1, y = 0.999 + 4 / (1 + exp(4.6607 - 1.4945 x)). Like the papers'
    program, this function returns x.

    The library's native code has a table of 50 utterances and writes beyond it. With a few more the scores are wrong,
    so nan is returned instead. With about 60, some three minutes of sentences, the process dies, so call this function
    in a separate process.
    """
    import pesq as p862

    if _is_silent(estimate):
        return math.nan
    try:
        if len(reference) > _SURELY_FITS and _overflows(reference):
            return math.nan
        return _p862_score(reference, estimate)
    except (p862.NoUtterancesError, p862.BufferTooShortError):
        return math.nan


def _p862_score(reference: Samples, estimate: Samples) -> float:
    import pesq as p862

    mapped = p862.pesq(RATE, reference, estimate, "nb")
    return (4.6607 - math.log(4 / (mapped - 0.999) - 1)) / 1.4945


def _overflows(reference: Samples) -> bool:
    """Return whether the table of utterances is too small for a reference.

    Two utterances too many overwrite the mode, which changes the best score, namely the score of a recording compared
    with itself. One utterance, the loudest 20 ms repeated, is appended so that a single one too many is detected, too.
    """
    loudest = int(np.argmax(np.abs(reference[: -RATE // 50])))
    utterance = np.tile(reference[loudest : loudest + RATE // 50], 30)
    longer = np.concatenate((reference, np.zeros(RATE // 2), utterance, np.zeros(RATE // 2)))
    return abs(_p862_score(longer, longer) - _BEST_PESQ) > 1e-3


def _is_silent(samples: Samples) -> bool:
    """Return whether the samples vanish in the libraries' float32, or a sample is nan."""
    return not np.abs(samples).max(initial=0.0).astype(np.float32) > 0


MEASURES: dict[str, Callable[[Samples, Samples], float]] = {"segsnr_db": segmental_snr, "stoi": stoi, "pesq": pesq}
"""The measures by their metric names; nan where a measure is undefined."""


def quality_of_predictions(
    files: Sequence[Path], predictions: Sequence[Features], report: Callable[[int, int], None]
) -> dict[str, float]:
    """Return the mean quality of speech reconstructed from predictions, computed with one process per core.

    If a measure fails for a file, or its process dies, it is nan for this file only, and a warning counts such files.

    Args:
        predictions: the argument `predicted` of `reconstruct`, for each file.
        report: called after each file with the number of finished files and the number of all files.
    """
    measurements: list[dict[str, float | str]] = []
    isolated = _Isolated()
    threads = ThreadPoolExecutor(min(cores(), len(files)))
    try:
        for measured in threads.map(isolated.measure, files, predictions):
            measurements.append(measured)
            report(len(measurements), len(files))
    finally:
        threads.shutdown(cancel_futures=True)
        isolated.close()
    return {name: _mean(name, [measured[name] for measured in measurements], files) for name in MEASURES}


def _mean(name: str, values: Sequence[float | str], files: Sequence[Path]) -> float:
    """Return the mean of the defined values of a measure, and warn about the others: nan, or why the measure failed."""
    numbers = [value for value in values if not isinstance(value, str) and not math.isnan(value)]
    if undefined := len(values) - len(numbers):
        failures = [f"; {file.name}: {why}" for file, why in zip(files, values, strict=True) if isinstance(why, str)]
        more = f"; and {len(failures) - 3} more" if len(failures) > 3 else ""
        listed = "".join(failures[:3]) + more
        _logger.warning("%s is not defined for %d of %d files%s", name, undefined, len(values), listed)
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


class _Isolated:
    """Measures files in processes, one per calling thread, and replaces a process that dies."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._pools: list[ProcessPoolExecutor] = []

    def measure(self, file: Path, predicted: Features) -> dict[str, float | str]:
        """Return every measure of a file: its value, or why it failed."""
        return {name: self._value(name, file, predicted) for name in MEASURES}

    def close(self) -> None:
        """End the processes."""
        for pool in self._pools:
            pool.shutdown()

    def _value(self, name: str, file: Path, predicted: Features) -> float | str:
        try:
            return self._pool().submit(_value_of_prediction, name, file, predicted).result()
        except BrokenProcessPool:
            self._own.pool = None
            return "its process died"
        except Exception as error:
            return one_line(error)

    def _pool(self) -> ProcessPoolExecutor:
        if getattr(self._own, "pool", None) is None:
            # Spawn, because forking a process with threads or a GPU context is not safe.
            pool = ProcessPoolExecutor(1, Spawning(), _ignore_interrupts)
            self._own.pool = pool
            self._pools.append(pool)
        own: ProcessPoolExecutor = self._own.pool
        return own


def _value_of_prediction(name: str, file: Path, predicted: Features) -> float:
    estimate, reference = reconstruct(predicted, stft(read_audio(file)))
    return MEASURES[name](reference, estimate)


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C and hang-ups, which reach all processes of a terminal: the parent ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
