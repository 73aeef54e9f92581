"""The parity of a stream of bits, shown bit by bit or as events (Hasani et al. 2022, CfC; Lechner and Hasani 2020).

A sequence has L bits, with L uniform in 2, ..., P - 1. The target is whether the number of ones is odd. The encodings
come from the program's `XORData`:

    equidistant    a step shows each bit:  (b_i, 1 / P),  i = 1, ..., L
    event          a step shows bit i where i = 1, b_i differs from b_{i-1}, or i = L:
                   (b_i, (i - j) / P),  j the bit of the step before, 0 at the first

The sequence is padded with zeros up to P steps; the output is read after the last valid step, as with the program's
mask. Loss: binary cross-entropy of one logit, in nats.

A step of the event encoding represents up to P - 2 equal bits, so a model has to use the second input to tell whether
their number is odd. With `elapsed=false` a step shows only b_i, which reveals the first bit, the number of events, and
whether the last event repeats the previous bit. No model can then be right for more than 55.0 % of event streams with P
= 32 (D-65). The program evaluates the parameters after the last epoch and reports their accuracy as the best.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from orthobench.model import Signature
from orthobench.task import Batch, Metric, Split, SyntheticSettings, Task, constant_of, derive_seed

PROGRAM_SEEDS = {"train": 1234984, "test": 48736}


class XORStreamSettings(SyntheticSettings):
    pad_size: int = Field(32, ge=3, le=255, description="P, steps of a padded sequence; streams have 2 to P - 1 bits")
    encoding: Literal["equidistant", "event"] = Field(
        "event", description="equidistant: a step shows each bit; event: only the first, changed and last bits"
    )
    elapsed: bool = Field(
        True,
        description="also show the time since the previous step; false: a step shows only its bit",
        json_schema_extra={"neutral": True},
    )
    data_seed: Literal["program", "run"] = Field(
        "program",
        description="seeds of the streams; program: NumPy's RandomState(1234984) for training and (48736) for tests in "
        "every run; run: the run's seed",
    )


class XORStream(Task):
    version = 1
    title = "bit-stream XOR"
    short_title = "XOR stream"
    cites = "hasani2022, lechner2020"
    affine_fails = "parity is not linear"
    Settings = XORStreamSettings
    metrics = (
        Metric("accuracy", "max", is_fraction=True),
        Metric("cross_entropy", "min", "nats", "cross-entropy"),
    )
    loss_metric = "cross_entropy"
    protocol = {"batch_size": 128, "epochs": 200}
    quick = {
        "encoding": "equidistant",
        "pad_size": 12,
        "train_size": 20_000,
        "test_size": 1_000,
        "epochs": 10,
        "hidden_size": 64,
        "learning_rate": 5e-3,
    }
    exact = {
        "model": "gru",
        "encoding": "event",
        "train_size": 1_000,
        "test_size": 200,
        "evaluation_batch_size": 64,
        "epochs": 3,
        "evaluate_every": 5,
        "batch_size": 50,
        "hidden_size": 16,
        "learning_rate": 0.01,
        "shuffle": True,
        "clip_norm": 0.5,
        "learning_rate_decay": 0.8,
    }

    def __init__(self, settings: XORStreamSettings, seed: int, device: torch.device) -> None:
        self.signature = Signature(2 if settings.elapsed else 1, output_size=1, readout="last_valid")

        def split(part: Literal["train", "test", "validation"], size: int) -> StreamSplit:
            own = settings.data_seed == "run" or part == "validation"  # the program has no validation data
            # The remainder, because RandomState accepts seeds of 32 bits only.
            chosen = derive_seed(seed, "xor_stream", part) % 2**32 if own else PROGRAM_SEEDS[part]
            bits, lengths = streams(size, settings.pad_size, chosen)
            return StreamSplit(bits, lengths, settings, device)

        self.train, self.test = split("train", settings.train_size), split("test", settings.test_size)
        if size := settings.validation_size:
            self.validation = split("validation", size)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(outputs, targets)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return accuracy, where a positive logit means odd, and cross-entropy."""
        correct = (outputs > 0) == (targets > 0)
        entropy = nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="sum")
        return {"accuracy": (correct.sum(), len(targets)), "cross_entropy": (entropy, len(targets))}

    def constant(self, split: Split) -> dict[str, float]:
        return constant_of(self, split, output=torch.logit)

    @classmethod
    def baselines(cls, settings: XORStreamSettings) -> dict[str, float]:
        """The scores of guessing, since half of all bit strings of a given length have an odd number of ones."""
        return {"accuracy": 0.5, "cross_entropy": math.log(2)}


class StreamSplit:
    """Encoded streams: bits and numbers of elapsed bits `[size, P]`, valid steps `[size]`, and targets `[size, 1]`."""

    def __init__(
        self, bits: NDArray[np.uint8], lengths: NDArray[np.int64], settings: XORStreamSettings, device: torch.device
    ) -> None:
        self.targets = torch.from_numpy(bits.sum(1, dtype=np.int64) % 2).float().unsqueeze(1).to(device)
        encode = encode_events if settings.encoding == "event" else encode_bits
        shown, elapsed, steps = encode(bits, lengths)
        self.shown, self.elapsed, self.steps = (torch.from_numpy(part).to(device) for part in (shown, elapsed, steps))
        self.pad_size, self.shows_time = settings.pad_size, settings.elapsed

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, examples: Tensor) -> Batch:
        """Return inputs `[P, batch, 2]`, bits alone `[P, batch, 1]`, with their valid lengths; targets `[batch, 1]`."""
        inputs = self.shown[examples].T.float().unsqueeze(-1)
        if self.shows_time:
            elapsed = self.elapsed[examples].T.float() / self.pad_size
            inputs = torch.cat((inputs, elapsed.unsqueeze(-1)), -1)
        return Batch(inputs, self.targets[examples], lengths=self.steps[examples])


def streams(size: int, pad_size: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return bits `[size, P]`, zero after each stream's end, and lengths `[size]`.

    The order of the draws is the program's: for each stream its length, then its bits.
    """
    random = np.random.RandomState(seed)
    bits, lengths = np.zeros((size, pad_size), np.uint8), np.empty(size, np.int64)
    for stream in range(size):
        lengths[stream] = length = random.randint(2, pad_size)
        bits[stream, :length] = random.randint(0, 2, length)
    return bits, lengths


def encode_bits(
    bits: NDArray[np.uint8], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bits of each stream, the number of elapsed bits per step (always 1), and the number of steps."""
    valid = np.arange(bits.shape[1]) < lengths[:, None]
    return bits, valid.astype(np.uint8), lengths


def encode_events(
    bits: NDArray[np.uint8], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bits of the events, the number of bits since the previous event, and the number of events."""
    column = np.arange(bits.shape[1])
    events = np.zeros(bits.shape, bool)
    events[:, 1:] = bits[:, 1:] != bits[:, :-1]
    events = (events | (column == 0) | (column == lengths[:, None] - 1)) & (column < lengths[:, None])
    stream, at = events.nonzero()
    steps = events.sum(1)
    step = events.cumsum(1)[stream, at] - 1
    shown, elapsed = np.zeros_like(bits), np.zeros_like(bits)
    shown[stream, step] = bits[stream, at]
    elapsed[stream, step] = np.diff(at, prepend=-1) * (step > 0) + (step == 0)
    return shown, elapsed, steps
