"""Synthetic speech and files of it, for tests without real recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

SENTENCES = ("sa1", "sa2", "si1", "si2", "si3", "sx1", "sx2", "sx3", "sx4", "sx5")


def speech(seconds: float = 1.5, seed: int = 0, rate: int = 8000) -> np.ndarray:
    """Return the harmonics of a voice, four syllables a second, with some noise; the peak is 0.5."""
    random = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    pitch = 2 * np.pi * np.cumsum(110 + 20 * seed + 15 * np.sin(2 * np.pi * 1.3 * t)) / rate
    voice = sum(np.sin(k * pitch + random.uniform(0, 6)) / k for k in range(1, 20))
    samples = voice * (0.55 - 0.45 * np.cos(2 * np.pi * 4 * t)) + 0.01 * random.standard_normal(len(t))
    return 0.5 * samples / np.abs(samples).max()


def write_speech(folder: Path, count: int, seconds: float = 1.0) -> list[Path]:
    """Write WAV files at 16 kHz, of different lengths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:02}.wav" for number in range(count)]
    for number, file in enumerate(files):
        soundfile.write(file, speech(seconds + 0.05 * number, number, 16000), 16000, subtype="PCM_16")
    return files


def write_timit_sample(folder: Path) -> Path:
    """Write files like those of TIMIT's public sample: a woman and a man from each of eight regions, 20 ms a file."""
    for region in range(1, 9):
        for number, name in enumerate((f"fa{chr(96 + region)}a0", f"ma{chr(96 + region)}a0")):
            speaker = folder / f"dr{region}-{name}"
            speaker.mkdir(parents=True)
            for sentence in SENTENCES:
                samples = speech(0.02 + 0.002 * number, region, 16000)
                soundfile.write(speaker / f"{sentence}.wav", samples, 16000, subtype="PCM_16")
    return folder


def sphere(samples: np.ndarray, extra: str = "") -> bytes:
    """Return a NIST SPHERE file like those of TIMIT: 16 kHz, 16 bits, low byte first, without a coding."""
    fields = [
        "NIST_1A\n   1024\ndatabase_id -s5 TIMIT",
        f"channel_count -i 1\nsample_count -i {len(samples)}\nsample_rate -i 16000",
        f"sample_n_bytes -i 2\nsample_byte_format -s2 01\nsample_sig_bits -i 16\n{extra}end_head\n",
    ]
    return "\n".join(fields).ljust(1024).encode() + samples.astype("<i2").tobytes()
