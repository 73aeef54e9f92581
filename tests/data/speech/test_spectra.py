"""Spectra against the discrete Fourier transform written out; rebuilt speech against what must come out."""

from __future__ import annotations

import numpy as np
import pytest
from support.speech import speech

from orthobench.data.speech.audio_files import in_16_bits
from orthobench.data.speech.spectra import BINS, FLOOR, frame_count, istft, log_magnitude, reconstruct, stft


@pytest.mark.parametrize("size", [1, 127, 128, 129, 1000])
def test_transform_matches_the_equation(size):
    samples = np.random.default_rng(size).standard_normal(size)
    hops = -(-size // 128)
    padded = np.zeros(128 * hops + 512)
    padded[256 : 256 + size] = samples
    n, k = np.arange(256), np.arange(129)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * n / 256)
    kernel = np.exp(-2j * np.pi * np.outer(k, n) / 256) * window
    expected = np.array([kernel @ padded[128 * t : 128 * t + 256] for t in range(hops + 3)])
    spectrum = stft(samples)
    assert spectrum.shape == (frame_count(size), BINS) == expected.shape
    np.testing.assert_allclose(spectrum, expected, atol=1e-12)
    decibels = 10 * np.log10(1e-5 + expected.real**2 + expected.imag**2)
    np.testing.assert_allclose(log_magnitude(spectrum), decibels, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("size", [1, 128, 4000, 12345])
def test_transform_round_trip(size):
    samples = np.random.default_rng(size).uniform(-1, 1, size)
    back = istft(stft(samples))
    assert len(back) == 128 * -(-size // 128)
    np.testing.assert_allclose(back[:size], samples, atol=1e-4)
    np.testing.assert_allclose(back[size:], 0, atol=1e-4)


def test_silence_is_at_the_floor():
    np.testing.assert_array_equal(log_magnitude(stft(np.zeros(500))), FLOOR)


def test_true_frames_rebuild_the_signal():
    """Up to the 1e-5 that the features add, which the way back leaves in: magnitudes of 0.0032 at the most."""
    samples = in_16_bits(speech())
    spectrum = stft(samples)
    rebuilt, truth = reconstruct(log_magnitude(spectrum)[1:], spectrum)
    np.testing.assert_allclose(truth[: len(samples)], samples, atol=0.5 / 32768)
    assert np.sqrt(np.square(rebuilt - truth).mean()) < 2 * 10**-2.5 / np.sqrt(256)


def test_prediction_6_db_too_low_is_half_as_loud():
    spectrum = stft(speech())
    full, _ = reconstruct(log_magnitude(spectrum)[1:], spectrum)
    half, _ = reconstruct(log_magnitude(spectrum)[1:] - np.float32(20 * np.log10(2)), spectrum)
    np.testing.assert_allclose(half, full / 2, atol=1 / 32768)


def test_first_frame_is_true_and_the_others_are_predicted():
    spectrum = stft(speech())
    silent, truth = reconstruct(np.full((len(spectrum) - 1, BINS), -200, np.float32), spectrum)
    np.testing.assert_array_equal(silent, 0)  # all of frame 0 that is speech lies in the padding that is dropped
    assert np.abs(truth).max() > 0.4


def test_overload_is_scaled_down():
    spectrum = stft(speech())
    for excess in (20, 1000):  # dB; no number is too large
        loud, _ = reconstruct(log_magnitude(spectrum)[1:] + np.float32(excess), spectrum)
        assert 0.99 < np.abs(loud).max() <= 1
