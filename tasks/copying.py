"""The copying memory problem (Hochreiter and Schmidhuber 1997; Arjovsky, Shah, Bengio 2016), T + 20 steps.

A sequence has ten symbols, a delay, a marker, and the answer, which is the ten symbols in order. Inputs are one-hot
over blank (0), the eight symbols (1 to 8) and the marker (9); targets are the nine classes 0 to 8, at every step.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.model import Signature
from orthobench.recurrence import cross_entropy
from orthobench.task import MULTIPLES, Batch, Metric, ScalableSettings, Size, Split, Task, constant_of, seeded_generator

BLANK, SYMBOLS, MARKER, COPIED = 0, 8, 9, 10
RECALL = Metric("recall", "max", label="accuracy of the copied symbols", is_fraction=True)


class CopyingSettings(ScalableSettings):
    sequence_length: Size = Field(
        1000, description="T, number of steps between the symbols and the answer; 1000 and 2000 in the papers"
    )
    train_size: Size = Field(20_000, description="training sequences")
    test_size: Size = Field(1_000, description="test sequences")
    layout: Literal["scornn", "exprnn", "two_markers"] = Field(
        "scornn",
        description="position of the marker; scornn: one step before the answer; exprnn: at the answer's first step; "
        "two_markers: a second marker directly after the symbols (text of the ENRNN paper)",
    )


class Copying(Task):
    version = 1
    title = "copying problem"
    short_title = "copying"
    cites = "hochreiter1997, arjovsky2016"
    Settings = CopyingSettings
    metrics = (
        Metric("cross_entropy", "min", "nats", "cross-entropy"),
        Metric("accuracy", "max", is_fraction=True),
        RECALL,
        *map(RECALL.at_multiple, MULTIPLES),
    )
    longer_metric = "recall"
    protocol = {
        "batch_size": 20,
        "epochs": 10,
        "evaluate_every": 50,
        "evaluation_batch_size": 100,
        "shuffle": False,
    }
    quick = {
        "sequence_length": 50,
        "train_size": 4_000,
        "test_size": 200,
        "epochs": 10,
        "evaluate_every": 50,
    }
    exact = {
        "model": "nnrnn",
        "train_size": 500,
        "test_size": 200,
        "evaluation_batch_size": 64,
        "epochs": 3,
        "evaluate_every": 10,
        "hidden_size": 16,
        "shuffle": True,
        "clip_value": 0.01,
        "optimizer": "rmsprop_tf1",
        "learning_rate": 0.01,
        "recurrent_optimizer": "sgd",
        "recurrent_learning_rate": 2e-3,
        "triangle_decay": 0.1,
        "modulus_penalty": 10,
        "decay_every": 2,
    }

    def __init__(self, settings: CopyingSettings, seed: int, device: torch.device) -> None:
        self.signature = Signature(input_size=MARKER + 1, output_size=SYMBOLS + 1, readout="all")

        def split(part: str, size: int, settings: CopyingSettings) -> CopyingSplit:
            return CopyingSplit(settings, size, seeded_generator(seed, "copying", part), device)

        self.generate(settings, split)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return cross-entropy in nats and accuracy over all steps, and the accuracy of the ten copied symbols."""
        entropy = nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum")
        correct = outputs.argmax(-1) == targets
        return {
            "cross_entropy": (entropy, targets.numel()),
            "accuracy": (correct.sum(), targets.numel()),
            "recall": (correct[-COPIED:].sum(), targets[-COPIED:].numel()),
        }

    def constant(self, split: Split) -> dict[str, float]:
        return constant_of(self, split, by_step=True)

    @classmethod
    def baselines(cls, settings: CopyingSettings) -> dict[str, float]:
        """The scores of predicting blanks up to the answer, and then one of eight symbols at random."""
        steps = settings.sequence_length + 2 * COPIED
        return {
            "cross_entropy": COPIED * math.log(SYMBOLS) / steps,
            "accuracy": (steps - COPIED + COPIED / SYMBOLS) / steps,
            "recall": 1 / SYMBOLS,
            **{f"recall_{multiple}t": 1 / SYMBOLS for multiple in MULTIPLES if settings.longer_tests},
        }


class CopyingSplit:
    """`size` sequences, stored as their ten symbols `[10, size]`."""

    def __init__(self, settings: CopyingSettings, size: int, generator: torch.Generator, device: torch.device) -> None:
        # Drawn on the CPU, because a GPU's generator would make other data from the same seed.
        self.symbols = torch.randint(1, SYMBOLS + 1, (COPIED, size), generator=generator).to(device)
        self.blank = torch.full((settings.sequence_length + 2 * COPIED, 1), BLANK, device=device)
        self.template = self.blank.clone()
        self.template[-COPIED if settings.layout == "exprnn" else -COPIED - 1] = MARKER
        if settings.layout == "two_markers":
            self.template[COPIED] = MARKER

    def __len__(self) -> int:
        return self.symbols.shape[1]

    def batch(self, examples: Tensor) -> Batch:
        symbols = self.symbols[:, examples]
        inputs = torch.cat((symbols, self.template[COPIED:].expand(-1, len(examples))))
        targets = torch.cat((self.blank[COPIED:].expand(-1, len(examples)), symbols))
        return Batch(nn.functional.one_hot(inputs, MARKER + 1).float(), targets)
