"""Words over a finite group: after each element x_t of a word, name the product x_1 ... x_t.

The groups are S3, S5, A5, Z60 and A4 x Z5 (`_groups.py`). The elements of a word are drawn from the whole group, or
from a few of its elements. Sequence accuracy counts a word only if all its products are right, so it is far below token
accuracy. The metric over length is the sequence accuracy of words cut off after each step. Loss: mean cross-entropy in
nats over all valid steps.

| protocol | lengths for training | for tests | source |
| --- | --- | --- | --- |
| word_problem | 2 to 20 | 20 | Merrill, Petty, Sabharwal 2024; jopetty/word-problem |
| deltaproduct | 128 | 512 | Siems et al. 2025; automl/DeltaProduct |
| pd_ssm | 3 to 40 | 40 to 256 | Terzic et al. 2025, table 3 |

D-53 and D-54 describe how the programs differ from this task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from orthobench.model import Signature
from orthobench.task import Batch, Metric, Size

from ._answers import IGNORED, AnswerTask, entropy
from ._draws import OFFSETS, Draws
from ._groups import Group, GroupName, group
from ._lengths import GeneratedSplit, LengthSettings

PROTOCOLS: Mapping[str, Mapping[str, int]] = {
    "word_problem": {"shortest": 2, "longest": 20, "test_shortest": 20, "test_longest": 20}
    | {"train_size": 100_000, "test_size": 10_000},
    "deltaproduct": {"shortest": 128, "longest": 128, "test_shortest": 512, "test_longest": 512}
    | {"train_size": 99_000, "test_size": 1_000},
    "pd_ssm": {"shortest": 3, "longest": 40, "test_shortest": 40, "test_longest": 256}
    | {"train_size": 25_600_000, "test_size": 8192},
}


class GroupWordSettings(LengthSettings):
    group: GroupName = Field("A5", description="the group")
    generators: Size | None = Field(
        None,
        description="number of elements that occur in words, of which the first generate the group; "
        "none: the whole group",
    )
    protocol: Literal["word_problem", "deltaproduct", "pd_ssm"] = Field(
        "word_problem", description="sets the lengths and sizes that you do not"
    )
    train_size: Size = Field(100_000, description="number of training words; deltaproduct 99 000, pd_ssm 25.6 million")
    test_size: Size = Field(10_000, description="number of test words; deltaproduct 1000, pd_ssm 8192")
    shortest: int = Field(2, ge=1, lt=OFFSETS, description="shortest training word; deltaproduct 128, pd_ssm 3")
    longest: int = Field(20, ge=1, lt=OFFSETS, description="longest training word; deltaproduct 128, pd_ssm 40")
    test_shortest: int = Field(20, ge=1, lt=OFFSETS, description="shortest test word; deltaproduct 512, pd_ssm 40")
    test_longest: int = Field(20, ge=1, lt=OFFSETS, description="longest test word; deltaproduct 512, pd_ssm 256")

    @model_validator(mode="before")
    @classmethod
    def _fill_by_protocol(cls, values: Any) -> Any:
        protocol = PROTOCOLS.get(str(values.get("protocol", "word_problem")))
        return values if protocol is None else {**protocol, **values}

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("", "test_"):
            shortest, longest = getattr(self, f"{name}shortest"), getattr(self, f"{name}longest")
            if shortest > longest:
                raise ValueError(
                    f"{name}shortest={shortest} is greater than {name}longest={longest}: give a smaller one"
                )
        least, most = len(group(self.group).generators), group(self.group).order
        if self.generators is not None and not least <= self.generators <= most:
            raise ValueError(f"generators={self.generators} for {self.group}: give {least} to {most}")
        return self


class GroupWord(AnswerTask):
    version = 1
    title = "words over a group"
    short_title = "group words"
    cites = "merrill2024, siems2025, terzic2025"
    affine_fails = "a product depends on all its factors at once"
    Settings = GroupWordSettings
    metrics = (
        Metric("sequence_accuracy", "max", label="sequence accuracy", is_fraction=True),
        Metric("accuracy", "max", label="token accuracy", is_fraction=True),
        Metric("final_accuracy", "max", label="accuracy of the last product", is_fraction=True),
        Metric("prefix_accuracy", "max", label="sequence accuracy up to a step", is_fraction=True),
        Metric("cross_entropy", "min", "nats", "cross-entropy"),
    )
    length_metric = "prefix_accuracy"
    tracks_states = True
    draws_ahead = True
    protocol = {"batch_size": 512, "epochs": 100, "solved_at": 0.99}
    quick = {
        "group": "S3",
        "longest": 12,
        "test_shortest": 4,
        "test_longest": 24,
        "train_size": 20_000,
        "test_size": 1000,
        "batch_size": 100,
        "epochs": 8,
        "hidden_size": 64,
        "learning_rate": 5e-3,
    }
    exact = {
        "model": "gru",
        "group": "A4xZ5",
        "generators": 5,
        "longest": 4,
        "train_size": 1_000,
        "test_size": 200,
        "test_shortest": 2,
        "test_longest": 8,
        "evaluation_batch_size": 64,
        "batch_size": 50,
        "epochs": 12,
        "hidden_size": 16,
        "learning_rate": 0.02,
        "shuffle": True,
        "learning_rate_decay": 0.8,
        "clip_norm": 0.5,
    }

    def __init__(self, settings: GroupWordSettings, seed: int, device: torch.device) -> None:
        words_over = group(settings.group)
        tokens = words_over.tokens(settings.generators)
        self.signature = Signature(len(tokens), words_over.order, "all", tokens=True)

        def split(part: str, size: int, shortest: int, longest: int) -> WordSplit:
            return WordSplit(
                words_over,
                tokens,
                size,
                range(shortest, longest + 1),
                Draws(seed, "group_word", settings.group, part),
                device,
                sorted_by_length=part != "train",
            )

        self.train = split("train", settings.train_size, settings.shortest, settings.longest)
        self.test = split("test", settings.test_size, settings.test_shortest, settings.test_longest)
        if size := settings.validation_size:
            prefix = "test_" if settings.validation_lengths == "test" else ""
            shortest, longest = getattr(settings, f"{prefix}shortest"), getattr(settings, f"{prefix}longest")
            self.validation = split("validation", size, shortest, longest)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return the shares of correct words, products, last products and prefixes, and the cross-entropy."""
        valid = targets != IGNORED
        right, count = (outputs.argmax(-1) == targets) & valid, float(valid.sum())
        last = (valid.sum(0) - 1).unsqueeze(0)
        return {
            "sequence_accuracy": ((right | ~valid).all(0).sum(), targets.shape[1]),
            "accuracy": (right.sum(), count),
            "final_accuracy": (right.gather(0, last).sum(), targets.shape[1]),
            "prefix_accuracy": ((self.score(outputs, targets) * valid).sum(), count),
            "cross_entropy": (entropy(outputs, targets, "sum"), count),
        }

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return 1 for each step up to which all products of a word are correct, else 0, `[T, B]`."""
        return (outputs.argmax(-1) == targets).to(outputs.dtype).cumprod(0)

    @classmethod
    def trained_lengths(cls, settings: GroupWordSettings) -> tuple[int, int]:
        """Return the shortest and the longest trained length; the shortest is 1, because every prefix has a target."""
        return 1, settings.longest

    @classmethod
    def baselines(cls, settings: GroupWordSettings) -> dict[str, float]:
        """The scores of a predictor that knows only x_t and always guesses the same element as the product before it.

        It gets a word right only if all products before x_t are that element, so they and their factors are the
        identity.
        """
        words_over = group(settings.group)
        tokens = words_over.tokens(settings.generators)
        before = _prefix_distributions(words_over, tokens, settings.test_longest)
        lengths = range(settings.test_shortest, settings.test_longest + 1)
        chances = sum(before[:length].sum(0) for length in lengths) / sum(lengths)
        identity = (0 in tokens) / len(tokens)
        return {
            "sequence_accuracy": sum(identity ** (length - 1) for length in lengths) / len(lengths),
            "accuracy": float(chances.max()),
            "prefix_accuracy": sum(identity**t for length in lengths for t in range(length)) / sum(lengths),
            "final_accuracy": float(sum(before[length - 1] for length in lengths).max()) / len(lengths),
            "cross_entropy": -sum(chance * math.log(chance) for chance in chances if chance > 0),
        }


def _prefix_distributions(words_over: Group, tokens: list[int], steps: int) -> np.ndarray:
    """Return the distribution of x_1 ... x_{t-1} for t = 1 to steps, `[steps, order]`."""
    chances = np.zeros((steps, words_over.order))
    chances[0, 0] = 1
    for t in range(1, steps):
        for token in tokens:
            chances[t, words_over.table[:, token]] += chances[t - 1] / len(tokens)
    return chances


class WordSplit(GeneratedSplit):
    """Words and their products; `args` and `options` go to the base class."""

    def __init__(self, words_over: Group, tokens: list[int], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.order = words_over.order
        self.table = torch.from_numpy(words_over.table).flatten().to(self.lengths.device)
        self.elements = torch.tensor(tokens, device=self.lengths.device)

    def make(self, examples: Tensor, lengths: Tensor, steps: int) -> Batch:
        tokens = self.draws.rows(len(self.elements), examples, steps).T
        padded = torch.arange(steps, device=examples.device).unsqueeze(1) >= lengths
        targets = self.products(self.elements[tokens]).masked_fill(padded, IGNORED)
        return Batch(tokens.masked_fill(padded, 0), targets, lengths)

    def products(self, elements: Tensor) -> Tensor:
        """Return the product of the elements up to each step `[T, B]`, computed in log2(T) rounds."""
        shift = 1
        while shift < len(elements):
            longer = self.table[elements[:-shift] * self.order + elements[shift:]]
            elements = torch.cat((elements[:shift], longer))
            shift *= 2
        return elements
