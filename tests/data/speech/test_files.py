"""Files are read as the uRNN program reads them, and broken ones are named."""

from __future__ import annotations

import math

import numpy as np
import pytest
import soundfile
from support.speech import speech, sphere

from orthobench.data.speech.audio_files import in_16_bits, read_audio, resample, sample_count
from orthobench.errors import UsageError


def tone(frequency, rate, seconds=0.5):
    return 0.5 * np.sin(2 * np.pi * frequency * np.arange(int(seconds * rate)) / rate)


def by_the_equation(samples, up, down):
    """Zeros between the samples, a sinc under a Kaiser window of beta 5 (ten zero crossings a side), each down-th."""
    most = max(up, down)
    half = 10 * most
    n = np.arange(-half, half + 1)
    kernel = np.sinc(n / most) * np.i0(5 * np.sqrt(np.maximum(1 - (n / half) ** 2, 0))) / np.i0(5)
    kernel *= up / kernel.sum()
    spread = np.zeros(len(samples) * up)
    spread[::up] = samples
    return np.convolve(spread, kernel)[half:][: len(samples) * up : down]


@pytest.mark.parametrize(("rate", "up", "down"), [(16000, 1, 2), (48000, 1, 6), (44100, 80, 441), (4000, 2, 1)])
@pytest.mark.parametrize("size", [1, 2, 7, 600, 601])
def test_resampling_matches_the_equation(rate, up, down, size):
    samples = np.random.default_rng(size).standard_normal(size)
    resampled = resample(samples, rate)
    assert len(resampled) == math.ceil(size * 8000 / rate)
    np.testing.assert_allclose(resampled, by_the_equation(samples, up, down)[: len(resampled)], atol=1e-12)


@pytest.mark.parametrize("rate", [16000, 48000])
def test_resampling_keeps_the_passband_and_removes_aliases(rate):
    inner = slice(200, -200)
    np.testing.assert_allclose(resample(tone(1000, rate), rate)[inner], tone(1000, 8000)[inner], atol=2e-3)
    assert np.abs(resample(tone(5500, rate), rate)[inner]).max() < 0.5 * 10 ** (-45 / 20)  # would be at 2.5 kHz


def test_speech_at_8_khz_is_unchanged(tmp_path):
    samples = in_16_bits(speech())
    soundfile.write(tmp_path / "a.wav", samples, 8000, subtype="PCM_16")
    np.testing.assert_array_equal(read_audio(tmp_path / "a.wav"), samples)


def test_sixteen_bit_samples_are_scaled():
    samples = np.array([0, 0.4 / 32768, 0.6 / 32768, 1.0, 2.0, -1.0, -2.0])
    np.testing.assert_array_equal(in_16_bits(samples) * 32768, [0, 0, 1, 32767, 32767, -32768, -32768])


@pytest.mark.parametrize("kind", ["wav", "flac", "sphere"])
def test_every_file_format_gives_the_same_samples(tmp_path, kind):
    samples = np.round(speech(0.3, rate=16000) * 32767).astype(np.int16)
    path = tmp_path / ("a.flac" if kind == "flac" else "SX37.WAV")
    if kind == "sphere":
        path.write_bytes(sphere(samples))
    else:
        soundfile.write(path, samples, 16000)
    expected = np.rint(by_the_equation(samples / 32768, 1, 2)[:2400] * 32768) / 32768
    np.testing.assert_allclose(read_audio(path), expected, atol=1 / 32768)
    assert sample_count(path) == len(read_audio(path)) == 2400


def test_stereo_uses_the_first_channel(tmp_path):
    left = in_16_bits(speech())
    soundfile.write(tmp_path / "a.wav", np.stack((left, np.zeros_like(left)), 1), 8000, subtype="PCM_16")
    np.testing.assert_array_equal(read_audio(tmp_path / "a.wav"), left)


def _wav(path, samples=None, **options):
    soundfile.write(path, speech(0.2) if samples is None else samples, 8000, **options)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: _wav(path, np.zeros(0)), "has no samples"),
        (lambda path: path.write_bytes(b"speech, I promise"), "is not readable audio"),
        (
            lambda path: path.write_bytes(sphere(np.arange(9), "sample_coding -s26 pcm,embedded-shorten-v2.00\n")),
            "sph2p",
        ),
        (lambda path: _wav(path, np.array([0, np.nan]), subtype="FLOAT"), "not finite"),
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
    ],
)
def test_broken_file_is_named(tmp_path, break_it, message):
    path = tmp_path / "broken.wav"
    break_it(path)
    with pytest.raises(UsageError, match=message) as error:
        read_audio(path)
    assert str(path) in str(error.value)


def test_truncated_flac_file_is_named(tmp_path):
    path = tmp_path / "cut.flac"
    soundfile.write(path, speech(2), 8000)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(UsageError, match=r"cut\.flac is cut off"):
        read_audio(path)
