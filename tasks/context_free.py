"""Context-free languages, tested on longer and deeper strings than trained on: brackets and reversed strings.

| language | question |
| --- | --- |
| dyck | after each symbol of a balanced string: which bracket may close next, if any? |
| reverse_string | after the string, at each of as many blanks: what is its next symbol from the end? |

A stack answers both, and a finite memory only up to some depth or length. For dyck, opening brackets may always follow,
so the answer determines the set of symbols that may follow, which Suzgun et al. (2019) predict. Like them we count a
string as correct if all answers are. Hewitt et al. (2020) bound the depth, as do the settings `depth` and `test_depth`.
Strings are uniform among those of their length and depth; Suzgun et al. draw them from a grammar.

Lengths are of the strings and equally likely; a reversed string has twice as many steps. Loss: mean cross-entropy of
the answers in nats. Every epoch has new strings. Sources: `tasks/dyck_generator.py` in suzgunmirac/marnns; Deletang et
al. (2023), `tasks/dcf/reverse_string.py` in google-deepmind/neural_networks_chomsky_hierarchy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from orthobench.model import Signature
from orthobench.task import Batch, Metric, Size

from ._answers import IGNORED, AnswerTask
from ._brackets import Brackets, baseline
from ._draws import Draws
from ._lengths import GeneratedSplit, LengthSettings

LANGUAGES: Mapping[str, Mapping[str, int]] = {
    "dyck": {"shortest": 2, "longest": 50, "test_shortest": 52, "test_longest": 100},
    "reverse_string": {"shortest": 1, "longest": 40, "test_shortest": 41, "test_longest": 100},
}
"""The lengths of the sources."""
LONGEST = 2048
"""The longest string: the tables of brackets grow with the square of it."""


class ContextFreeSettings(LengthSettings):
    language: Literal["dyck", "reverse_string"] = Field(
        "dyck", description="strings and questions; sets the lengths that you do not"
    )
    kinds: int = Field(2, ge=2, description="kinds of brackets, or symbols of a reversed string")
    depth: int | None = Field(
        None, ge=2, description="dyck: most open brackets in training; none: as many as a string can have"
    )
    test_depth: int | None = Field(
        None, ge=2, description="dyck: most open brackets in tests; none: as many as a string can have"
    )
    shortest: int = Field(2, ge=1, le=LONGEST, description="shortest training length; reverse_string 1")
    longest: int = Field(50, ge=1, le=LONGEST, description="longest training length; reverse_string 40")
    test_shortest: int = Field(52, ge=1, le=LONGEST, description="shortest test length; reverse_string 41")
    test_longest: int = Field(100, ge=1, le=LONGEST, description="longest test length")
    train_size: Size = Field(1_280_000, description="training strings per epoch")
    test_size: Size = Field(5000, description="test strings")

    @model_validator(mode="before")
    @classmethod
    def _fill_by_language(cls, values: Any) -> Any:
        lengths = LANGUAGES.get(str(values.get("language", "dyck")))
        return values if lengths is None else {**lengths, **values}

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("", "test_"):
            shortest, longest = getattr(self, f"{name}shortest"), getattr(self, f"{name}longest")
            if not self.lengths(shortest, longest):
                even = "" if self.language == "reverse_string" else ", or the only one is odd, and strings are even"
                raise ValueError(f"{name}shortest={shortest} is greater than {name}longest={longest}{even}")
            if self.language != "dyck" and getattr(self, f"{name}depth") is not None:
                raise ValueError(f"{name}depth is for brackets: add language=dyck, or leave it out")
        return self

    def lengths(self, shortest: int, longest: int) -> list[int]:
        """Return the lengths of strings in this range."""
        return [length for length in range(shortest, longest + 1) if self.language != "dyck" or length % 2 == 0]

    @property
    def trained(self) -> list[int]:
        """The lengths of training strings."""
        return self.lengths(self.shortest, self.longest)

    @property
    def tested(self) -> list[int]:
        """The lengths of test strings."""
        return self.lengths(self.test_shortest, self.test_longest)

    def depth_of(self, lengths: list[int], most: int | None) -> int:
        """Return how many brackets can be open in strings of these lengths."""
        return max(2, min(max(lengths) // 2, most or LONGEST))


class ContextFree(AnswerTask):
    version = 1
    title = "context-free languages"
    short_title = "context-free language"
    cites = "deletang2023, suzgun2019, hewitt2020"
    Settings = ContextFreeSettings
    metrics = (
        Metric("sequence_accuracy", "max", label="sequence accuracy", is_fraction=True),
        Metric("accuracy", "max", label="accuracy of an answer", is_fraction=True),
        Metric("cross_entropy", "min", "nats", "cross-entropy"),
    )
    length_metric = "sequence_accuracy"
    draws_ahead = True
    protocol = {
        "batch_size": 128,
        "epochs": 1,
        "evaluate_every": 1000,
        "shuffle": False,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "solved_at": 0.9995,
    }
    quick = {
        "longest": 12,
        "test_shortest": 14,
        "test_longest": 24,
        "train_size": 128 * 1500,
        "test_size": 500,
        "evaluate_every": 250,
        "hidden_size": 16,
        "learning_rate": 1e-2,
    }
    exact = {
        "model": "gru",
        "longest": 8,
        "depth": 3,
        "test_shortest": 4,
        "test_longest": 12,
        "train_size": 1_000,
        "test_size": 200,
        "evaluation_batch_size": 64,
        "batch_size": 50,
        "epochs": 4,
        "evaluate_every": 20,
        "hidden_size": 16,
        "learning_rate": 0.02,
        "shuffle": True,
        "clip_norm": 0.5,
        "learning_rate_decay": 0.8,
    }

    def __init__(self, settings: ContextFreeSettings, seed: int, device: torch.device) -> None:
        is_dyck = settings.language == "dyck"
        tokens, classes = (2 * settings.kinds, settings.kinds + 1) if is_dyck else (settings.kinds + 1, settings.kinds)
        self.signature = Signature(tokens, classes, "all", tokens=True)

        def split(part: str, size: int, lengths: list[int], depth: int | None) -> GeneratedSplit:
            draws = Draws(seed, "context_free", settings.language, part)
            is_sorted, epoch = part != "train", (lambda: self.epoch) if part == "train" else None
            if not is_dyck:
                steps = [2 * length for length in lengths]
                return Reversed(settings.kinds, size, steps, draws, device, sorted_by_length=is_sorted, epoch=epoch)
            brackets = Brackets(settings.kinds, max(lengths), settings.depth_of(lengths, depth), device)
            return Balanced(brackets, size, lengths, draws, device, sorted_by_length=is_sorted, epoch=epoch)

        self.train = split("train", settings.train_size, settings.trained, settings.depth)
        self.test = split("test", settings.test_size, settings.tested, settings.test_depth)
        if size := settings.validation_size:
            as_tested = settings.validation_lengths == "test"
            lengths, depth = (settings.tested, settings.test_depth) if as_tested else (settings.trained, settings.depth)
            self.validation = split("validation", size, lengths, depth)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return the shares of strings and answers that are correct, and the cross-entropy of an answer."""
        whole = self.score(outputs, targets)
        return {"sequence_accuracy": (whole.sum(), len(whole)), **super().measure(outputs, targets)}

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return 1 for each string all of whose answers are correct, else 0, `[B]`."""
        return ((outputs.argmax(-1) == targets) | (targets == IGNORED)).all(0).to(outputs.dtype)

    @classmethod
    def trained_lengths(cls, settings: ContextFreeSettings) -> tuple[int, int]:
        """Return the shortest and the longest training sequence, in steps."""
        steps = 1 if settings.language == "dyck" else 2
        return steps * settings.trained[0], steps * settings.trained[-1]

    @classmethod
    def baselines(cls, settings: ContextFreeSettings) -> dict[str, float]:
        """The scores of the best predictor that knows the current symbol alone."""
        lengths, kinds = settings.tested, settings.kinds
        if settings.language == "dyck":
            scores = baseline(kinds, settings.depth_of(lengths, settings.test_depth), lengths)
        else:
            scores = sum(kinds**-length for length in lengths) / len(lengths), 1 / kinds, math.log(kinds)
        return dict(zip(("sequence_accuracy", "accuracy", "cross_entropy"), scores, strict=True))


class Balanced(GeneratedSplit):
    """Balanced strings of brackets; `args` and `options` go to the base class."""

    def __init__(self, brackets: Brackets, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.brackets = brackets

    def make(self, examples: Tensor, lengths: Tensor, steps: int) -> Batch:
        symbols, targets = self.brackets.strings(self.draws, examples, lengths, steps)
        padded = torch.arange(steps, device=examples.device).unsqueeze(1) >= lengths
        return Batch(symbols.masked_fill(padded, 0), targets.masked_fill(padded, IGNORED), lengths)


class Reversed(GeneratedSplit):
    """Strings of symbols 0 to `kinds` - 1, each followed by as many blanks, the symbol `kinds`."""

    def __init__(self, kinds: int, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kinds = kinds

    def make(self, examples: Tensor, lengths: Tensor, steps: int) -> Batch:
        strings, step = lengths // 2, torch.arange(steps, device=examples.device).unsqueeze(1)
        symbols = self.draws.rows(self.kinds, examples, steps).T
        mirrored = (lengths - 1 - step).clamp(min=0)
        is_answer = (step >= strings) & (step < lengths)
        targets = torch.where(is_answer, symbols.gather(0, mirrored), IGNORED)
        return Batch(torch.where(step < strings, symbols, self.kinds), targets, lengths)
