"""Formal languages, tested on longer strings than trained on: parity, even pairs, cycle, modular arithmetic.

| language | answer |
| --- | --- |
| parity | whether the number of one of two symbols is odd |
| even_pairs | whether the first and the last of two symbols differ |
| cycle_nav | the position on a cycle of five after steps of 0, +1 and -1 |
| mod_arith | the value modulo 5 of d op d op ... d, with precedence |
| mod_arith_brackets | the value modulo 5 of an expression with brackets |

The protocols are those of three programs (`_language_forms.py`), and their results are not comparable:

| protocol | tokens | operators with brackets | steps, batch | largest learning rate |
| --- | --- | --- | --- | --- |
| slice | 0 is padding; answers are tokens | + - * | 100 000, 256 | 2e-3, AdamW, warm-up, cosine |
| xlstm | as slice, but with brackets the numbers come first | + - | 20 000, 256 | 1e-3, AdamW, warm-up, cosine |
| deepmind | numbers from 0; answers are separate classes | + - * | 10 000, 128 | 1e-3, Adam, gradient norm at most 1 |

In each the answer is read at a single step, the string's last: after the last symbol, `=`, or the
blank that asks for it. This agrees with the xLSTM program, which appends the answer and shifts. Every epoch has new
strings. A length in steps includes the last token, so a string of 41 symbols has 42 steps with deepmind. Loss: mean
cross-entropy in nats. Sources: Deletang et al. 2023; Beck et al. 2024; Grazzi et al. 2025; Walker et al. 2025.
Differences: D-50, D-51, D-52.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.model import Signature
from orthobench.task import Batch, Metric, Size, Split, Task, constant_of

from ._draws import OFFSETS, Draws
from ._language_forms import FORMS, LanguageForm
from ._lengths import GeneratedSplit, LengthSettings

PROTOCOLS: Mapping[str, Mapping[str, int]] = {
    "slice": {"shortest": 3, "longest": 40, "test_shortest": 40, "test_longest": 256}
    | {"train_size": 25_600_000, "test_size": 8192},
    "xlstm": {"shortest": 3, "longest": 40, "test_shortest": 40, "test_longest": 256}
    | {"train_size": 5_120_000, "test_size": 8192},
    "deepmind": {"shortest": 1, "longest": 40, "test_shortest": 41, "test_longest": 100}
    | {"train_size": 1_280_000, "test_size": 30_720},
}
"""Each program's lengths and numbers of sequences: 100 000, 20 000, 10 000 steps with batches of 256, 256, 128."""
SHORTEST = {"slice": 1, "xlstm": 3, "deepmind": 1}


class FormalLanguageSettings(LengthSettings):
    language: Literal["parity", "even_pairs", "cycle_nav", "mod_arith", "mod_arith_brackets"] = Field(
        "parity", description="the strings and their answers"
    )
    protocol: Literal["slice", "xlstm", "deepmind"] = Field(
        "slice",
        description="program whose tokens, lengths and answers to use; sets the lengths and sizes that you do not; "
        "xlstm: lengths count the answer; deepmind: one length per batch",
    )
    train_size: Size = Field(25_600_000, description="training sequences per epoch; xlstm 5.12, deepmind 1.28 million")
    test_size: Size = Field(8192, description="number of test sequences; deepmind 30 720, 512 of each length")
    shortest: int = Field(3, ge=1, lt=OFFSETS // 2, description="shortest training length; deepmind 1")
    longest: int = Field(40, ge=1, lt=OFFSETS // 2, description="longest training length")
    test_shortest: int = Field(
        40,
        ge=1,
        lt=OFFSETS // 2,
        description="shortest test length; deepmind 41, although its program averages from 42 on",
    )
    test_longest: int = Field(256, ge=1, lt=OFFSETS // 2, description="longest test length; deepmind 100")
    same_length: Size = Field(
        128, description="deepmind only: number of successive training sequences of one length; use the same batch_size"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_by_protocol(cls, values: Any) -> Any:
        protocol = PROTOCOLS.get(str(values.get("protocol", "slice")))
        return values if protocol is None else {**protocol, **values}

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        for name in ("", "test_"):
            shortest, longest = getattr(self, f"{name}shortest"), getattr(self, f"{name}longest")
            if shortest > longest:
                raise ValueError(
                    f"{name}shortest={shortest} is greater than {name}longest={longest}: give a smaller one"
                )
            if shortest < self.least:
                counted = "the answer" if self.protocol == "xlstm" else "`=`"
                raise ValueError(
                    f"{name}shortest={shortest} is too short for protocol={self.protocol}, whose lengths include "
                    f"{counted}: give at least {self.least}"
                )
        return self

    @property
    def least(self) -> int:
        """The smallest length in the program for which a string has a symbol before its final token."""
        form = self.form
        lengths = range(SHORTEST[self.protocol], OFFSETS)
        return next(length for length in lengths if min(form.lengths(length, length)) > form.end)

    @property
    def form(self) -> LanguageForm:
        return FORMS[self.protocol][self.language]


class FormalLanguage(Task):
    version = 1
    title = "formal languages"
    short_title = "formal language"
    cites = "deletang2023, beck2024, grazzi2025, walker2025"
    affine_fails = "the answer depends on counts modulo a number"
    Settings = FormalLanguageSettings
    metrics = (Metric("accuracy", "max", is_fraction=True), Metric("cross_entropy", "min", "nats", "cross-entropy"))
    loss_metric = "cross_entropy"
    length_metric = "accuracy"
    tracks_states = True
    draws_ahead = True
    protocol = {
        "batch_size": 256,
        "epochs": 1,
        "evaluate_every": 5000,
        "shuffle": False,
        "warmup": 0.1,
        "schedule": "cosine",
        "final_rate": 1e-5,
        "optimizer": "adamw",
        "learning_rate": 2e-3,
        "solved_at": 0.9995,
    }
    quick = {
        "longest": 10,
        "train_size": 256 * 2000,
        "test_size": 1024,
        "evaluate_every": 100,
        "hidden_size": 32,
        "learning_rate": 2e-2,
        "warmup": 0.6,  # decides whether parity is learnt, as do the starts of the LSTM below
        "bias_start": "zeros",
        "output_weight": "glorot",
        "output_bias": "zeros",
    }
    exact = {
        "model": "lstm",
        "bias_start": "torch",
        "output_weight": "linear",
        "output_bias": "linear",
        "language": "mod_arith_brackets",
        "train_size": 2_560,
        "test_size": 200,
        "test_longest": 80,
        "evaluation_batch_size": 64,
        "batch_size": 64,
        "epochs": 2,
        "evaluate_every": 20,
        "hidden_size": 16,
        "embedding_size": 8,
        "learning_rate": 0.02,
        "clip_norm": 1.0,
        "warmup": 0.1,
        "shuffle": True,
        "learning_rate_decay": 0.8,
    }

    def __init__(self, settings: FormalLanguageSettings, seed: int, device: torch.device) -> None:
        form = settings.form
        self.signature = Signature(form.input_size, form.output_size, "last_valid", tokens=True)
        names = ("formal_language", settings.protocol, settings.language)
        same_length = settings.same_length if settings.protocol == "deepmind" else 1
        self.train = StringSplit(
            form,
            settings.train_size,
            form.lengths(settings.shortest, settings.longest),
            Draws(seed, *names, "train"),
            device,
            same_length=same_length,
            epoch=lambda: self.epoch,
        )
        self.test = StringSplit(
            form,
            settings.test_size,
            form.lengths(settings.test_shortest, settings.test_longest),
            Draws(seed, *names, "test"),
            device,
            sorted_by_length=True,
            equal_shares=settings.protocol == "deepmind",
        )
        if settings.validation_size:
            prefix = "test_" if settings.validation_lengths == "test" else ""
            self.validation = StringSplit(
                form,
                settings.validation_size,
                form.lengths(getattr(settings, f"{prefix}shortest"), getattr(settings, f"{prefix}longest")),
                Draws(seed, *names, "validation"),
                device,
                sorted_by_length=True,
            )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        return {
            "accuracy": (self.score(outputs, targets).sum(), len(targets)),
            "cross_entropy": (nn.functional.cross_entropy(outputs, targets, reduction="sum"), len(targets)),
        }

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return 1 for each correct answer, else 0, `[B]`."""
        return (outputs.argmax(-1) == targets).to(outputs.dtype)

    @classmethod
    def version_of(cls, settings: FormalLanguageSettings) -> int:
        return cls.version + settings.form.version - 1

    @classmethod
    def trained_lengths(cls, settings: FormalLanguageSettings) -> tuple[int, int]:
        """Return the shortest and the longest training length, in steps."""
        lengths = settings.form.lengths(settings.shortest, settings.longest)
        return min(lengths), max(lengths)

    def constant(self, split: Split) -> dict[str, float]:
        return constant_of(self, split)

    @classmethod
    def baselines(cls, settings: FormalLanguageSettings) -> dict[str, float]:
        """The accuracy of the most likely answer over the test lengths, and the entropy of the answers."""
        form = settings.form
        lengths = np.array(form.lengths(settings.test_shortest, settings.test_longest)) - form.end
        chances = form.language.distributions(lengths.max())[lengths].mean(0)
        entropy = -sum(chance * math.log(chance) for chance in chances if chance > 0)
        return {"accuracy": float(chances.max()), "cross_entropy": entropy}


class StringSplit(GeneratedSplit):
    """Strings of a language under a protocol; `args` and `options` go to the base class."""

    def __init__(self, form: LanguageForm, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.form = form
        self.tokens = torch.tensor([*form.tokens, form.padding], device=self.lengths.device)

    def make(self, examples: Tensor, lengths: Tensor, steps: int) -> Batch:
        form, strings = self.form, lengths - self.form.end
        symbols, answers = form.language.strings(self.draws, examples, strings, steps)
        offset = torch.arange(steps, device=examples.device)
        symbols = torch.where(offset < strings.unsqueeze(1), symbols, form.language.alphabet)
        symbols = torch.where(offset < lengths.unsqueeze(1), symbols, len(form.tokens))
        return Batch(self.tokens[symbols].T.contiguous(), answers + form.first_answer, lengths)
