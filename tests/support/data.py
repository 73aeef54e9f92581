"""Small data sets in the formats of the real ones: random images, labels 0 to 9 in turn; lines of words."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np

COUNTS = {"train": 120, "test": 60}
BEGIN = {"train": "train", "test": "t10k"}


def idx(values: np.ndarray) -> bytes:
    """Return IDX bytes: two zeros, 8 for unsigned bytes, the number of dimensions, each as 32 big-endian bits."""
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def images(part: str, *shape: int) -> np.ndarray:
    random = np.random.RandomState(len(part))
    return random.randint(0, 256, (COUNTS[part], *shape)).astype(np.uint8)


def labels(part: str, classes: int = 10) -> np.ndarray:
    return (np.arange(COUNTS[part]) % classes).astype(np.uint8)


def write_mnist(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for part, begin in BEGIN.items():
        (folder / f"{begin}-images-idx3-ubyte").write_bytes(idx(images(part, 28, 28)))
        (folder / f"{begin}-labels-idx1-ubyte").write_bytes(idx(labels(part)))
    return folder


def write_emnist(folder: Path) -> Path:
    """Write the files of EMNIST's balanced split: 47 classes, and transposed images."""
    folder.mkdir(parents=True)
    for part in COUNTS:
        begin = f"emnist-balanced-{part}"
        turned = images(part, 28, 28).transpose(0, 2, 1)
        (folder / f"{begin}-images-idx3-ubyte").write_bytes(idx(turned))
        (folder / f"{begin}-labels-idx1-ubyte").write_bytes(idx(labels(part, 47)))
    return folder


def write_cifar10(folder: Path) -> Path:
    """Write the archive's files: red, green and blue planes of 32 x 32, a row of 3072 bytes an image."""
    batches = folder / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    planes, classes = images("train", 3072), labels("train").tolist()
    for number in range(5):
        part = slice(number * len(planes) // 5, (number + 1) * len(planes) // 5)
        content = {"data": planes[part], "labels": classes[part]}
        (batches / f"data_batch_{number + 1}").write_bytes(pickle.dumps(content))
    content = {"data": images("test", 3072), "labels": labels("test").tolist()}
    (batches / "test_batch").write_bytes(pickle.dumps(content))
    (batches / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    return folder


def write_ptb(folder: Path) -> Path:
    folder.mkdir(parents=True)
    words = ["the", "<unk>", "of", "N", "years", "&", "a", "company", "'s", "r\\&d", "rose", "*-1", "."]
    for split, lines in {"train": 400, "valid": 150, "test": 200}.items():
        random = np.random.RandomState(lines)
        text = "".join(f" {' '.join(random.choice(words, 10))} \n" for _ in range(lines))
        (folder / f"ptb.{split}.txt").write_text(text)
    return folder
