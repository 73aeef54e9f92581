"""Character-level language modelling on the Penn Treebank (as prepared by Mikolov) or any other text.

The text is cut into equal columns, one per sequence of a batch, and the remainder is dropped. Columns are read from top
to bottom in pieces of `unroll_length` steps. A piece starts from the final state of the previous piece, without
gradient (truncated back-propagation); the state is zero at the start of an epoch. Loss: cross-entropy in nats, the mean
over all steps. Metric: bits per character, nats / ln 2. Test and validation texts are read in the same way.

Penn Treebank has 50 distinct characters, including the line end. Lines are stripped of surrounding blanks: 5 017 482
characters for training, 393 042 for validation and 442 423 for testing. Programs that keep these blanks count 5 101
618, 399 782 and 449 945. Some programs have 49 characters, because `<unk>` is one symbol or the line end is dropped.
Batch size, unroll length and evaluation batches come from the nnRNN program (Kerg et al. 2019), because the ENRNN
paper's values are lost. Characters are one-hot, so a model's input matrix U is the trained embedding: ENRNN's
"embedding of size n, U = I". For programs with an embedding in addition to U there is the models' setting
`embedding_size`.

`text` names a UTF-8 file to read instead, character by character, without a byte-order mark and with one character for
each line end. The first 90 % are for training, the next 5 % for
validation, and the rest for testing. The alphabet consists of all characters in the file, sorted by code point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.data.checksums import with_checksum
from orthobench.data.download import md5
from orthobench.data.ptb import ALPHABET, SPLITS, is_cleaned, read_split, read_text
from orthobench.data.registry import dataset
from orthobench.model import Signature
from orthobench.recurrence import cross_entropy
from orthobench.settings import Settings
from orthobench.task import Batch, Metric, Size, Task


class PTBSettings(Settings):
    unroll_length: Size = Field(150, description="steps of truncated backpropagation; 150 and 300 in the nnRNN paper")
    text: str | None = Field(
        None, description="UTF-8 file to read instead of the Penn Treebank; none: the Penn Treebank"
    )
    text_md5: str | None = Field(None, description="MD5 checksum of the text file; computed from the file unless set")

    @model_validator(mode="before")
    @classmethod
    def _add_checksum(cls, values: dict[str, Any]) -> dict[str, Any]:
        return with_checksum(values, "text", md5)


class PTB(Task):
    version = 1
    title = "character-level language"
    short_title = "Penn Treebank"
    cites = "marcus1993, mikolov2011"
    Settings = PTBSettings
    metrics = (
        Metric("bpc", "min", label="bits per character", is_graded=True),
        Metric("accuracy", "max", is_fraction=True),
    )
    carries_state = True
    protocol = {"batch_size": 128, "epochs": 20, "evaluation_batch_size": 10, "shuffle": False}
    quick = {
        "unroll_length": 50,
        "hidden_size": 128,
        "learning_rate": 2e-3,
        "batch_size": 32,
        "epochs": 1,
        "max_iterations": 1500,
        "evaluate_every": 500,
        "evaluation_batch_size": 100,
    }
    exact = {
        "model": "scornn",
        "evaluate_every": "none",
        "batch_size": 2_000,
        "epochs": 2,
        "hidden_size": 16,
        "learning_rate": 1e-3,
        "recurrent_learning_rate": 1e-4,
        "clip_norm": 0.1,
        "plateau_decay": 0.5,
        "learning_rate_decay": 0.5,
    }

    def __init__(self, settings: PTBSettings, seed: int, device: torch.device) -> None:
        corpus = _open(settings)
        symbols = len(corpus.alphabet)
        self.signature = Signature(input_size=symbols, output_size=symbols, readout="all")
        self.train, self.validation, self.test = (
            SymbolText(torch.from_numpy(part).to(device), symbols, settings.unroll_length) for part in corpus.parts
        )

    @classmethod
    def version_of(cls, settings: PTBSettings) -> int:
        """Return 2 for a text of which version 1 read a byte-order mark or carriage returns as symbols."""
        is_changed = settings.text and settings.text_md5 and is_cleaned(Path(settings.text), settings.text_md5)
        return cls.version + bool(is_changed)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return bits per character, and the share of characters that are the most likely prediction."""
        nats = nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum")
        correct = (outputs.argmax(-1) == targets).sum()
        return {"bpc": (nats / math.log(2), targets.numel()), "accuracy": (correct, targets.numel())}

    @classmethod
    def baselines(cls, settings: PTBSettings) -> dict[str, float]:
        """The best score of a constant prediction: the entropy of the test text's characters."""
        counts = np.bincount(_open(settings).parts[-1])
        shares = counts[counts > 0] / counts.sum()
        return {"bpc": float(-(shares * np.log2(shares)).sum()), "accuracy": float(shares.max())}


class SymbolText:
    """A text as symbol numbers `[N]`, one byte each if that suffices; all but the last are inputs of a prediction.

    A stream reads it in columns; example k by itself is the piece of `unroll_length` steps from k `unroll_length`.
    """

    def __init__(self, characters: Tensor, symbols: int, unroll_length: int) -> None:
        self.characters = characters
        self.symbols = symbols
        self.unroll_length = unroll_length

    def __len__(self) -> int:
        return self._steps(columns=1) // self.unroll_length

    def batch(self, examples: Tensor) -> Batch:
        steps = torch.arange(self.unroll_length + 1, device=self.characters.device)
        return self._batch(self.characters[steps.unsqueeze(1) + self.unroll_length * examples])

    def pieces(self, columns: int) -> int:
        return math.ceil(self._steps(columns) / self.unroll_length)

    def piece(self, position: int, columns: int) -> Batch:
        steps, start = self._steps(columns), position * self.unroll_length
        # The last character of a column is only a target there; it is the first input of the next column.
        by_column = self.characters[: columns * steps + 1].unfold(0, steps + 1, steps).T
        return self._batch(by_column[start : start + self.unroll_length + 1])

    def _steps(self, columns: int) -> int:
        return max(0, len(self.characters) - 1) // columns

    def _batch(self, characters: Tensor) -> Batch:
        """Return the batch of characters `[T + 1, B]`."""
        read = characters.long()
        inputs = torch.zeros(len(read) - 1, read.shape[1], self.symbols, device=read.device)
        return Batch(inputs.scatter_(2, read[:-1].unsqueeze(-1), 1.0), read[1:])


@dataclass(frozen=True)
class Corpus:
    """The alphabet, and the texts for training, validation and test as numbers of its symbols."""

    alphabet: str
    parts: tuple[npt.NDArray[Any], ...]


def _open(settings: PTBSettings) -> Corpus:
    if settings.text is None:
        folder = dataset("ptb").require()
        return Corpus(ALPHABET, tuple(_encode(read_split(folder, split), ALPHABET) for split in SPLITS))
    text = read_text(Path(settings.text))
    # Sorted, because the order of a set of letters differs between processes.
    alphabet = "".join(sorted(set(text)))
    borders = (len(text) * 90 // 100, len(text) * 95 // 100)
    return Corpus(alphabet, tuple(np.split(_encode(text, alphabet), borders)))


def _encode(text: str, alphabet: str) -> npt.NDArray[Any]:
    # UTF-32, because every character then has the same number of bytes.
    known, read = (np.frombuffer(part.encode("utf-32-le"), np.uint32) for part in (alphabet, text))
    return np.searchsorted(known, read).astype(np.uint8 if len(alphabet) <= 256 else np.int32)
