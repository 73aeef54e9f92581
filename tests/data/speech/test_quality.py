"""Measures of quality: by hand, by their definition, and where they must rise or fall."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import soundfile
from scipy import signal
from support.speech import speech, write_speech

from orthobench.data.speech.audio_files import read_audio
from orthobench.data.speech.quality import (
    MEASURES,
    active_speech,
    pesq,
    quality_of_predictions,
    segment_snrs,
    segmental_snr,
    stoi,
)
from orthobench.data.speech.spectra import log_magnitude, reconstruct, stft


def quality(reference, estimate) -> dict[str, float]:
    return {name: measure(reference, estimate) for name, measure in MEASURES.items()}


def test_snr_by_hand():
    """Power 80 and noise 80 * 0.1^2 in every segment: 20 dB. Then 80 to 80 * 0.2^2 in the second: 13.98 dB.

    The sign alternates, so shifts only make the difference larger; where the noise changes, the parabola may gain a
    hundredth of the noise.
    """
    alternating = (-1.0) ** np.arange(162)
    np.testing.assert_allclose(segment_snrs(alternating, 1.1 * alternating), [20, 20], atol=1e-9)
    noise = alternating * np.repeat([0.1, 0.2], [81, 81])
    np.testing.assert_allclose(segment_snrs(alternating, alternating + noise), [20, 13.979], atol=0.05)
    np.testing.assert_allclose(segment_snrs(alternating, 0 * alternating), [0, 0], atol=1e-9)
    assert [len(segment_snrs(alternating[:n], alternating[:n])) for n in (0, 81, 82, 161)] == [0, 0, 1, 1]


def test_delay_of_one_sample_is_removed():
    reference = np.random.default_rng(0).standard_normal(1000)
    for shift in (-1, 1):
        np.testing.assert_array_equal(segment_snrs(reference, np.roll(reference, shift)), 100)
    assert segment_snrs(reference, np.roll(reference, 2)).mean() < 0


def test_fractional_delay_is_the_minimum_of_a_parabola():
    """Of a slow sine the squared difference over the delay is nearly a parabola, so nearly nothing is left."""
    t = np.arange(2000)
    reference, estimate = np.sin(0.05 * t), np.sin(0.05 * (t + 0.4))
    plain = 10 * np.log10(np.square(reference).sum() / np.square(reference - estimate).sum())
    assert plain < 35 < segment_snrs(reference, estimate).min() - 10


def test_segments_without_noise_or_reference_are_bounded():
    reference = np.concatenate((np.zeros(81), np.ones(81)))
    np.testing.assert_array_equal(segment_snrs(reference, reference)[1:], [100])
    np.testing.assert_array_equal(segment_snrs(np.zeros(162), np.ones(162)), [-100, -100])


def p56(samples):
    """Method B of P.56 sample by sample, after VOICEBOX's high-pass, here designed from its attenuations."""
    stop = 1 / math.cosh(math.acosh(math.sqrt((10**5 - 1) / (10**0.025 - 1))) / 5)
    edge = 2 * 8000 * math.tan(math.pi * 200 / 8000) * stop
    zeros, poles, gain = signal.bilinear_zpk(*signal.cheby2(5, 50, edge, "highpass", analog=True, output="zpk"), 8000)
    x = signal.lfilter(*signal.zpk2tf(zeros, poles, gain), samples)
    g = math.exp(-1 / (8000 * 0.03))
    p = q = 0.0
    envelope = []
    for sample in x:
        p = g * p + (1 - g) * abs(sample)
        q = g * q + (1 - g) * p
        envelope.append(q)
    sustained = np.array([max(envelope[max(0, i - 1600) : i + 1]) for i in range(len(x))])
    thresholds = [2.0 ** (e / 2) for e in np.arange(math.floor(2 * math.log2(sustained.max())), -200, -1.0)]
    before = None
    for threshold in thresholds:
        level = 10 * math.log10(np.square(x).sum() / (sustained >= threshold).sum())
        excess = level - 20 * math.log10(threshold) - 15.9
        if before is not None and before[1] < 0 <= excess:
            share = before[1] / (before[1] - excess)
            level = before[0] + share * (level - before[0])
            return sustained > 10 ** ((level - 15.9) / 20)
        before = level, excess
    raise AssertionError


def test_activity_matches_p56():
    silence = np.zeros(2000)
    samples = np.concatenate((silence, speech(0.6), 0.003 * speech(0.6, 1), silence, speech(0.4, 2), silence, silence))
    expected = p56(samples)
    assert 0.2 < expected.mean() < 0.9
    active = active_speech(samples)
    assert (active != expected).mean() < 1e-3
    assert not active[:2000].any()
    assert not active_speech(np.zeros(3000)).any()


def test_only_active_segments_count():
    reference = np.concatenate((np.zeros(8000), speech(1.0), np.zeros(8000)))
    estimate = reference + 1e-3 * np.random.default_rng(0).standard_normal(len(reference))
    active = active_speech(reference)[1:]
    snrs = segment_snrs(reference, estimate)
    by_hand = np.mean([snr for k, snr in enumerate(snrs) if active[80 * k : 80 * k + 80].sum() > 40])
    assert segmental_snr(reference, estimate) == pytest.approx(by_hand)
    assert by_hand > snrs.mean() + 10
    assert math.isnan(segmental_snr(np.zeros(4000), np.zeros(4000)))


def test_identical_speech_has_the_best_score():
    samples = speech(2.0)
    best = quality(samples, samples)
    assert best["segsnr_db"] == 100
    assert best["stoi"] == pytest.approx(1, abs=1e-9)
    assert best["pesq"] == pytest.approx(4.5, abs=1e-4)


@pytest.mark.parametrize("measure", [segmental_snr, stoi, pesq])
def test_quality_falls_with_noise(measure):
    samples = speech(2.0)
    noise = np.random.default_rng(0).standard_normal(len(samples))
    scores = [measure(samples, samples + level * noise) for level in (0, 1e-3, 1e-2, 1e-1)]
    assert all(before > after for before, after in pairwise(scores)), scores


def test_undefined_measure_is_nan():
    short = speech(0.1)
    assert math.isnan(stoi(short, short))
    assert math.isnan(pesq(short, short))
    assert math.isnan(pesq(np.zeros(8000), 0.1 * speech(1.0)))
    for size in (0, 5, 200):
        assert all(math.isnan(value) for value in quality(short[:size], short[:size]).values()), size


def test_silence_has_no_score():
    """Without reference nothing can be intelligible; a silent estimate is heard, and PESQ divides by its maximum."""
    samples, silence = speech(1.0), np.zeros(8000)
    for estimate in (samples, silence):
        assert all(math.isnan(value) for value in quality(silence, estimate).values())
    silent = quality(samples, silence)
    assert math.isnan(silent["pesq"])
    assert silent["segsnr_db"] == 0
    assert silent["stoi"] == pytest.approx(0, abs=1e-6)
    assert math.isnan(pesq(samples, 1e-320 * samples))


def test_non_finite_estimate_does_not_score_best():
    samples = speech(1.0)
    estimate = samples.copy()
    estimate[4000] = np.nan
    assert all(math.isnan(value) for value in quality(samples, estimate).values())


def utterances(count):
    return np.concatenate([np.concatenate((speech(0.7, number), np.zeros(3000))) for number in range(count)])


def test_more_utterances_than_pesq_supports_have_no_score():
    """The native code writes the 51st beyond its table: its score of a recording with itself was 4.68 from 52 on."""
    samples = utterances(52)
    assert pesq(samples[: len(utterances(50))], samples[: len(utterances(50))]) == pytest.approx(4.5, abs=1e-4)
    for count in (51, 52):
        part = samples[: len(utterances(count))]
        assert math.isnan(pesq(part, part)), count


@pytest.mark.slow
def test_files_are_measured_in_separate_processes(tmp_path):
    files = write_speech(tmp_path, 3)
    random = np.random.default_rng(0)
    predictions = []
    for file in files:
        features = log_magnitude(stft(read_audio(file)))[1:]
        predictions.append(features + random.standard_normal(features.shape).astype(np.float32))
    reports = []
    means = quality_of_predictions(files, predictions, lambda *report: reports.append(report))
    assert reports == [(1, 3), (2, 3), (3, 3)]
    single = []
    for file, predicted in zip(files, predictions, strict=True):
        estimate, reference = reconstruct(predicted, stft(read_audio(file)))
        single.append(quality(reference, estimate))
    assert set(means) == set(single[0])
    for name, mean in means.items():
        assert mean == pytest.approx(np.mean([scores[name] for scores in single]))
    assert 0.5 < means["stoi"] < 1


@pytest.mark.slow
def test_dead_process_or_exception_costs_one_measure_of_one_file(tmp_path, caplog):
    files = write_speech(tmp_path, 4)
    soundfile.write(files[1], utterances(300), 8000)  # PESQ dies
    soundfile.write(files[2], speech(1.0, 2), 8000)
    predictions = [log_magnitude(stft(read_audio(file)))[1:] for file in files]
    files[2].write_bytes(b"no recording any more")
    reports = []
    means = quality_of_predictions(files, predictions, lambda *report: reports.append(report))
    assert reports == [(1, 4), (2, 4), (3, 4), (4, 4)]
    others = [quality(*reconstruct(predictions[k], stft(read_audio(files[k])))[::-1]) for k in (0, 3)]
    assert means["pesq"] == pytest.approx(np.mean([scores["pesq"] for scores in others]))
    assert means["stoi"] == pytest.approx(1, abs=1e-3)
    assert "segsnr_db is not defined for 1 of 4 files; 02.wav: " in caplog.text
    assert "pesq is not defined for 2 of 4 files; 01.wav: its process died; 02.wav: " in caplog.text


@pytest.mark.slow
def test_stop_ends_the_processes_and_undefined_values_are_left_out(tmp_path, caplog):
    files = write_speech(tmp_path, 3)
    soundfile.write(files[0], np.zeros(8000), 8000)
    predictions = [log_magnitude(stft(read_audio(file)))[1:] for file in files]
    means = quality_of_predictions(files, predictions, lambda *_: None)
    assert set(means) == {"segsnr_db", "stoi", "pesq"}
    assert all(math.isfinite(mean) for mean in means.values())
    assert "segsnr_db is not defined for 1 of 3 files" in caplog.text

    def stop(done, total):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        quality_of_predictions(files, predictions, stop)
