"""Multi-query associative recall (Arora et al. 2024): pairs of keys and values, then keys whose values are asked for.

A sequence of T tokens begins with P pairs: distinct keys from 1 to V / 2 - 1, distinct values from V / 2 to V - 1. In
the rest, each key occurs once more (a query) at an even distance 2 g from the end of the pairs, where the output should
name its value. The keys have different gaps g = 0, 1, ..., drawn one after another with probabilities proportional to
(g + 1)^(a - 1). Tokens in between are random, or 0. Only the outputs at the queries are read; loss: mean cross-entropy
in nats. Source: `zoology/data/multiquery_ar.py` in HazyResearch/zoology. It uses the same data in every epoch, with one
size per batch, in the order of the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from orthobench.model import Signature
from orthobench.task import Batch, Metric, Size, Split, SyntheticSettings, constant_of

from ._answers import IGNORED, AnswerTask
from ._draws import OFFSETS, Draws

KEYS, VALUES, GAPS, FILLERS = range(4)
"""Channels of the draws."""
SIZES: Mapping[str, int] = {"train_size": 180_000, "test_size": 7000}
"""Number of sequences in the mixture."""
TRAINED = ((64, 4, 5), (128, 8, 1), (256, 16, 1), (256, 32, 1), (256, 64, 1))
TESTED = ((64, 4, 1), (64, 8, 1), (64, 16, 1), (128, 32, 1), (256, 64, 1), (512, 128, 1), (1024, 256, 1))
"""Sizes of the mixture: T, P, and the share of the sequences."""
PAIRS = (4, 8, 16, 32, 64, 128, 256)


class MQARSettings(SyntheticSettings):
    sizes: Literal["mixture", "single"] = Field(
        "mixture",
        description="mixture: training with T/P = 64/4 (5/9 of the sequences), 128/8, 256/16, 256/32, 256/64 (rest), "
        "testing with 64/4, 64/8, 64/16, 128/32, 256/64, 512/128 and 1024/256; single: T and P as given",
    )
    train_size: Size = Field(180_000, description="training sequences; in the mixture 5/9 have T = 64; single: 100 000")
    test_size: Size = Field(7000, description="test sequences; the mixture has equal shares; single: 1000")
    sequence_length: int = Field(64, ge=4, lt=OFFSETS, multiple_of=2, description="T, for sizes=single")
    pairs: Size = Field(4, description="P, number of key-value pairs, for sizes=single; at most T / 4")
    vocabulary: int = Field(8192, ge=4, lt=OFFSETS, description="V, number of tokens; more than T")
    power: float = Field(0.01, gt=0, description="a; the gap g has a probability proportional to (g + 1)^(a - 1)")
    fillers: Literal["random", "zero"] = Field("random", description="tokens between the queries")

    @model_validator(mode="before")
    @classmethod
    def _fill_sizes(cls, values: Any) -> Any:
        single = str(values.get("sizes", "mixture")) == "single"
        return {**({"train_size": 100_000, "test_size": 1000} if single else SIZES), **values}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sizes == "mixture":
            for name, value in (("sequence_length", self.sequence_length), ("pairs", self.pairs)):
                if value != type(self).model_fields[name].default:
                    raise ValueError(f"{name}={value} needs sizes=single: add it, or leave {name} out")
        for steps, pairs, _ in (*self.parts("train"), *self.parts("test")):
            if 4 * pairs > steps:
                raise ValueError(f"pairs={pairs} needs {4 * pairs} tokens, more than sequence_length={steps}")
            if self.vocabulary <= steps:
                raise ValueError(f"vocabulary={self.vocabulary} must be greater than the {steps} tokens of a sequence")
        if len(self.parts("test")) > self.test_size:
            raise ValueError(f"test_size={self.test_size} is less than one sequence per size: give 7 or more")
        return self

    def parts(self, split: Literal["train", "test"]) -> Sequence[tuple[int, int, int]]:
        """Return T, P and the share of each size of a split."""
        if self.sizes == "single":
            return ((self.sequence_length, self.pairs, 1),)
        return TRAINED if split == "train" else TESTED


class MQAR(AnswerTask):
    version = 1
    title = "multi-query associative recall"
    short_title = "MQAR"
    cites = "arora2024"
    affine_fails = "an answer is a product of keys and queries"
    state_matters = True
    Settings = MQARSettings
    metrics = (
        Metric("accuracy", "max", is_fraction=True),
        *(Metric(f"accuracy_{pairs}", "max", label=f"accuracy, {pairs} pairs", is_fraction=True) for pairs in PAIRS),
        Metric("cross_entropy", "min", "nats", "cross-entropy"),
    )
    length_metric = "accuracy"
    protocol = {"batch_size": 256, "epochs": 32, "evaluation_batch_size": 32, "shuffle": False}
    quick = {
        "sizes": "single",
        "sequence_length": 16,
        "pairs": 2,
        "vocabulary": 32,
        "train_size": 25_600,
        "test_size": 1000,
        "batch_size": 128,
        "epochs": 30,
        "hidden_size": 64,
        "learning_rate": 5e-3,
    }
    exact = {
        "model": "deltanet",
        "sizes": "single",
        "sequence_length": 16,
        "pairs": 2,
        "vocabulary": 18,
        "train_size": 1_000,
        "test_size": 200,
        "evaluation_batch_size": 64,
        "batch_size": 50,
        "epochs": 4,
        "hidden_size": 16,
        "embedding_size": 8,
        # No Adam, because it divides a factor on the gradient of a whole parameter away.
        "optimizer": "sgd_momentum",
        "learning_rate": 0.2,
        "shuffle": True,
        "clip_value": 0.1,
        "learning_rate_decay": 0.8,
    }

    def __init__(self, settings: MQARSettings, seed: int, device: torch.device) -> None:
        self.signature = Signature(settings.vocabulary, settings.vocabulary, "positions", tokens=True)

        def split(part: Literal["train", "test"], size: int, stream: str = "") -> RecallSplit:
            return RecallSplit(settings, settings.parts(part), size, Draws(seed, "mqar", stream or part), device)

        self.train, self.test = split("train", settings.train_size), split("test", settings.test_size)
        if size := settings.validation_size:
            self.validation = split("train", size, "validation")

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return the mean share of correct answers, also by number of pairs, and the cross-entropy of an answer."""
        scores, answers = self.score(outputs, targets), (targets != IGNORED).sum(0)
        measured = {**super().measure(outputs, targets), "accuracy": (scores.sum(), len(scores))}
        for pairs in PAIRS:
            if count := int((answers == pairs).sum()):
                measured[f"accuracy_{pairs}"] = (scores[answers == pairs].sum(), count)
        return measured

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the share of correct answers in each sequence, `[B]`."""
        right = (outputs.argmax(-1) == targets).sum(0)
        return right.to(outputs.dtype) / (targets != IGNORED).sum(0)

    @classmethod
    def trained_lengths(cls, settings: MQARSettings) -> tuple[int, int]:
        """Return the smallest and the largest T in training."""
        steps = [part[0] for part in settings.parts("train")]
        return min(steps), max(steps)

    def constant(self, split: Split) -> dict[str, float]:
        return constant_of(self, split)

    @classmethod
    def baselines(cls, settings: MQARSettings) -> dict[str, float]:
        """The scores of guessing a value at random."""
        values = settings.vocabulary - settings.vocabulary // 2
        pairs = {part[1] for part in settings.parts("test")} & set(PAIRS)
        names = ["accuracy", *(f"accuracy_{count}" for count in sorted(pairs))]
        return dict.fromkeys(names, 1 / values) | {"cross_entropy": math.log(values)}


@dataclass(frozen=True)
class Recall:
    """Sequences of one size: inputs `[B, T]`, the queries' steps `[B, P]` in order, and their answers `[B, P]`."""

    inputs: Tensor
    positions: Tensor
    answers: Tensor


class RecallSplit(Split):
    """Sequences of one or several sizes, one size after another, generated on the CPU from their numbers."""

    def __init__(
        self,
        settings: MQARSettings,
        parts: Sequence[tuple[int, int, int]],
        size: int,
        draws: Draws,
        device: torch.device,
    ) -> None:
        self.settings, self.parts, self.size, self.draws, self.device = settings, parts, size, draws, device
        shares = torch.tensor([share for _, _, share in parts]).cumsum(0)
        self.ends = shares * size // shares[-1]

    def __len__(self) -> int:
        return self.size

    def batch(self, examples: Tensor) -> Batch:
        """Return the sequences, padded to the longest; repeating the last query pads the number of queries."""
        examples = examples.cpu()
        part = torch.searchsorted(self.ends, examples, right=True)
        sizes = torch.tensor([(steps, pairs) for steps, pairs, _ in self.parts])[part]
        steps, answers = sizes.amax(0).tolist()
        inputs = torch.zeros(len(examples), steps, dtype=torch.long)
        positions = torch.zeros(len(examples), answers, dtype=torch.long)
        targets = torch.full((len(examples), answers), IGNORED)
        for number in part.unique().tolist():
            length, pairs, _ = self.parts[number]
            rows = (part == number).nonzero().squeeze(1)
            recall = self.make(examples[rows], length, pairs)
            inputs[rows, :length] = recall.inputs
            positions[rows] = torch.nn.functional.pad(recall.positions, (0, answers - pairs), "replicate")
            targets[rows, :pairs] = recall.answers
        tensors = (inputs.T.contiguous(), targets.T.contiguous(), sizes[:, 0].contiguous(), positions.T.contiguous())
        return Batch(*(tensor.to(self.device) for tensor in tensors))

    def make(self, examples: Tensor, steps: int, pairs: int) -> Recall:
        """Return sequences of T steps with P pairs."""
        vocabulary, context = self.settings.vocabulary, 2 * pairs
        keys = 1 + self._distinct(examples, vocabulary // 2 - 1, pairs, KEYS)
        values = vocabulary // 2 + self._distinct(examples, vocabulary - vocabulary // 2, pairs, VALUES)
        positions = context + 2 * self._gaps(examples, (steps - context) // 2, pairs)
        if self.settings.fillers == "random":
            inputs = self.draws.rows(vocabulary, examples, steps, FILLERS)
        else:
            inputs = torch.zeros(len(examples), steps, dtype=torch.long)
        inputs[:, :context:2], inputs[:, 1:context:2] = keys, values
        inputs.scatter_(1, positions, keys)
        positions, order = positions.sort(1)
        return Recall(inputs, positions, values.gather(1, order))

    def _distinct(self, examples: Tensor, choices: int, count: int, channel: int) -> Tensor:
        """Return `count` distinct numbers below `choices` per example, the first part of a Fisher-Yates shuffle."""
        shuffled = torch.arange(choices).repeat(len(examples), 1)
        offsets = torch.arange(count)
        swaps = offsets + self.draws.below(choices - offsets, examples.unsqueeze(1), offsets, channel)
        for offset in range(count):
            column, swap = shuffled[:, offset : offset + 1], swaps[:, offset : offset + 1]
            drawn = shuffled.gather(1, swap)
            shuffled.scatter_(1, swap, column.clone())
            column.copy_(drawn)
        return shuffled[:, :count]

    def _gaps(self, examples: Tensor, space: int, count: int) -> Tensor:
        """Return distinct gaps below `space`, drawn one after another with probabilities that follow the power law.

        Equivalently, draw exponential waiting times with these rates and take the gaps in the order of the times.
        """
        rates = torch.arange(1, space + 1, dtype=torch.float64) ** (self.settings.power - 1)
        # Half a step above 0, because 0 has no logarithm.
        uniform = (self.draws.bits(examples.unsqueeze(1), torch.arange(space), GAPS) + 0.5) / 2**32
        return (-uniform.log() / rates).argsort(1)[:, :count]
