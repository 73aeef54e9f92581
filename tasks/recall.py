"""In-context recall of the MAD suite (Poli et al. 2024): name the value of each key that occurs for the second time.

A sequence consists of pairs of a key and a value, which are drawn anew for each sequence. Where a key has occurred
before, it has the same value, which the output should name token by token: the first token after the last token of the
key, the second after the first. The last pair always repeats an earlier key.

| form | sequences |
| --- | --- |
| plain | keys and values of one token |
| noisy | a fifth of the pairs are noise: two tokens without meaning, from a vocabulary of their own |
| fuzzy | keys and values of one to three different tokens; in tests, keys always have three |

Keys are uniform over all keys of their size, sizes are uniform, and the query is uniform over the earlier keys. With
largest sizes K and Q of keys and values, T // (K + Q) pairs fit into T tokens however they are drawn, so shorter sizes
give shorter sequences. The last token is only a target. Only outputs that name a value are read; loss: mean
cross-entropy in nats.

Source: `mad/data/instances.py` in athms/mad-lab, with `multi_query`. There the loss of training is over every next
token, and fuzzy sequences are filled with pairs and then padded at the start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from orthobench.model import Signature
from orthobench.task import MULTIPLES, Batch, Metric, ScalableSettings, Size, Split

from ._answers import IGNORED, AnswerTask
from ._draws import OFFSETS, Draws

KEYS, KEY_SIZES, VALUES, VALUE_SIZES, NOISE, IS_NOISE, QUERY = range(7)
"""Channels of the draws."""
FORMS: Mapping[str, Mapping[str, Any]] = {
    "plain": {"noise": 0.0, "key_length": 1, "value_length": 1, "keys": 8},
    "noisy": {"noise": 0.2, "key_length": 1, "value_length": 1, "keys": 8},
    "fuzzy": {"noise": 0.0, "key_length": 3, "value_length": 3, "keys": 7},
}
ACCURACY = Metric("accuracy", "max", label="accuracy of a value's token", is_fraction=True)


class RecallSettings(ScalableSettings):
    form: Literal["noisy", "fuzzy", "plain"] = Field(
        "noisy", description="the form whose noise, sizes and number of keys to use, unless you set them"
    )
    sequence_length: Size = Field(128, description="T, largest number of tokens, with the last answer")
    noise: float = Field(0.2, ge=0, lt=1, description="share of noise among the pairs; fuzzy and plain 0")
    noise_tokens: Size = Field(16, description="number of noise tokens, if there is noise")
    keys: Size = Field(8, description="number of tokens for keys; fuzzy 7")
    values: int = Field(8, ge=2, description="number of tokens for values")
    key_length: Size = Field(1, description="K, most tokens of a key; fuzzy 3")
    value_length: Size = Field(1, description="Q, most tokens of a value; fuzzy 3")
    train_size: Size = Field(12_800, description="training sequences")
    test_size: Size = Field(1280, description="test sequences")

    @model_validator(mode="before")
    @classmethod
    def _fill_by_form(cls, values: Any) -> Any:
        form = FORMS.get(str(values.get("form", "noisy")))
        return values if form is None else {**form, **values}

    @model_validator(mode="after")
    def _check(self) -> Self:
        for size, tokens in (("key_length", "keys"), ("value_length", "values")):
            if getattr(self, size) > getattr(self, tokens):
                raise ValueError(
                    f"{size}={getattr(self, size)} is more than {tokens}={getattr(self, tokens)}: tokens differ, so "
                    "give a smaller one"
                )
        if self.pairs < 2:
            raise ValueError(
                f"sequence_length={self.sequence_length} is too short: give {2 * self.pair_length} or more"
            )
        most = max(self.keys, self.values, self.pair_length)
        if (self.sequence_length * max(MULTIPLES) // self.pair_length) * most >= OFFSETS:
            raise ValueError(f"sequence_length={self.sequence_length} is too long for {most} tokens: give less")
        return self

    @property
    def pair_length(self) -> int:
        """Most tokens of a pair."""
        return self.key_length + self.value_length

    @property
    def pairs(self) -> int:
        """The number of pairs of a sequence, with noise and the last pair."""
        return self.sequence_length // self.pair_length

    @property
    def vocabulary(self) -> int:
        """The number of tokens: keys, then values, then noise."""
        return self.keys + self.values + (self.noise_tokens if self.noise else 0)


class Recall(AnswerTask):
    version = 1
    title = "in-context recall"
    cites = "poli2024"
    affine_fails = "an answer is a product of keys and queries"
    state_matters = True
    Settings = RecallSettings
    metrics = (ACCURACY, Metric("cross_entropy", "min", "nats", "cross-entropy"), *map(ACCURACY.at_multiple, MULTIPLES))
    longer_metric = "accuracy"
    protocol = {
        "batch_size": 128,
        "epochs": 200,
        "evaluation_batch_size": 100,
        "schedule": "cosine",
        "final_rate": 1e-6,
        "optimizer": "adamw",
        "learning_rate": 5e-4,
    }
    quick = {
        "sequence_length": 16,
        "noise": 0.2,
        "noise_tokens": 4,
        "keys": 4,
        "values": 4,
        "test_size": 1000,
        "epochs": 12,
        "hidden_size": 64,
        "learning_rate": 5e-3,
    }
    exact = {
        "model": "gated_deltanet",
        "form": "fuzzy",
        "sequence_length": 16,
        "key_length": 2,
        "value_length": 2,
        "keys": 2,
        "values": 3,
        "noise": 0.3,
        "train_size": 1_000,
        "test_size": 200,
        "evaluation_batch_size": 64,
        "batch_size": 50,
        "epochs": 4,
        "hidden_size": 16,
        # No Adam, because it divides a factor on the gradient of a whole parameter away.
        "optimizer": "sgd_momentum",
        "learning_rate": 0.5,
        "shuffle": True,
        "clip_value": 0.1,
        "learning_rate_decay": 0.8,
    }

    def __init__(self, settings: RecallSettings, seed: int, device: torch.device) -> None:
        self.signature = Signature(settings.vocabulary, settings.vocabulary, "positions", tokens=True)

        def split(part: str, size: int, settings: RecallSettings) -> RecallSplit:
            is_test = part.startswith("test")
            return RecallSplit(settings, size, Draws(seed, "recall", part), device, whole_keys=is_test)

        self.generate(settings, split)

    @classmethod
    def baselines(cls, settings: RecallSettings) -> dict[str, float]:
        """The scores of guessing one of the tokens of values, without the one that is the input.

        The tokens of a value differ, so the i-th follows one of the other Q' - 1 tokens, and only the first one can be
        any. Values have (Q + 1) / 2 tokens on average.
        """
        first, tokens = 2 / (settings.value_length + 1), settings.values
        accuracy, nats = first / tokens, first * math.log(tokens)
        if first < 1:
            accuracy += (1 - first) / (tokens - 1)
            nats += (1 - first) * math.log(tokens - 1)
        names = ["accuracy", *(f"accuracy_{multiple}t" for multiple in settings.longer())]
        return dict.fromkeys(names, accuracy) | {"cross_entropy": nats}


class RecallSplit(Split):
    """`size` sequences, generated from their numbers.

    Args:
        whole_keys: whether all keys have K tokens, as in tests.
    """

    def __init__(
        self, settings: RecallSettings, size: int, draws: Draws, device: torch.device, *, whole_keys: bool
    ) -> None:
        self.settings, self.size, self.draws, self.device = settings, size, draws, device
        self.whole_keys = whole_keys

    def __len__(self) -> int:
        return self.size

    def batch(self, examples: Tensor) -> Batch:
        """Return the sequences, padded to T - 1 steps; a pair without a question repeats the last position."""
        settings, examples = self.settings, examples.to(self.device)
        pairs, key_length, value_length = settings.pairs, settings.key_length, settings.value_length
        keys, key_lengths, first, is_noise = self._keys(examples)
        values = settings.keys + self.draws.orders(examples, pairs, settings.values, VALUES)[..., :value_length]
        value_lengths = 1 + self.draws.rows(value_length, examples, pairs, VALUE_SIZES)
        value_lengths = value_lengths.gather(1, first)
        values = values.gather(1, first.unsqueeze(-1).expand_as(values))

        starts = (key_lengths + value_lengths).cumsum(1) - key_lengths - value_lengths
        place = torch.arange(settings.pair_length, device=self.device)
        offset = (place - key_lengths.unsqueeze(-1)).clamp(min=0, max=value_length - 1)
        tokens = torch.where(
            place < key_lengths.unsqueeze(-1), keys[..., place.clamp(max=key_length - 1)], values.gather(-1, offset)
        )
        if settings.noise:
            noise = self.draws.rows(settings.noise_tokens, examples, tokens[0].numel(), NOISE).view_as(tokens)
            tokens = torch.where(is_noise.unsqueeze(-1), settings.keys + settings.values + noise, tokens)
        # Tokens beyond a pair's size go to a column that is cut off.
        is_used = place < (key_lengths + value_lengths).unsqueeze(-1)
        columns = torch.where(is_used, starts.unsqueeze(-1) + place, settings.sequence_length)
        inputs = torch.zeros(len(examples), settings.sequence_length + 1, dtype=torch.long, device=self.device)
        inputs.scatter_(1, columns.flatten(1), tokens.flatten(1))

        lengths = (key_lengths + value_lengths).sum(1) - 1
        answer = torch.arange(value_length, device=self.device)
        asked = (first < torch.arange(pairs, device=self.device)) & ~is_noise
        is_asked = asked.unsqueeze(-1) & (answer < value_lengths.unsqueeze(-1))
        before = (starts + key_lengths).unsqueeze(-1) + answer - 1
        positions = torch.where(is_asked, before, lengths.view(-1, 1, 1) - 1).flatten(1)
        targets = torch.where(is_asked, values, IGNORED).flatten(1)
        inputs.scatter_(1, lengths.unsqueeze(1), 0)  # the last token is only a target
        steps = inputs[:, : settings.sequence_length - 1]
        return Batch(steps.T.contiguous(), targets.T.contiguous(), lengths, positions.T.contiguous())

    def _keys(self, examples: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the keys `[B, P, K]`, their sizes, the first pair with the same key, and what is noise, `[B, P]`."""
        settings, pairs = self.settings, self.settings.pairs
        keys = self.draws.orders(examples, pairs, settings.keys, KEYS)[..., : settings.key_length]
        sizes = torch.full_like(keys[..., 0], settings.key_length)
        if not self.whole_keys:
            sizes = 1 + self.draws.rows(settings.key_length, examples, pairs, KEY_SIZES)
        # One pair before the last is never noise, so that the last can repeat it.
        kept = self.draws.column(pairs - 1, examples, channel=QUERY).unsqueeze(1)
        number = torch.arange(pairs, device=self.device)
        share = round(settings.noise * 2**32)
        is_noise = self.draws.bits(examples.unsqueeze(1), number, IS_NOISE) < share
        is_noise &= (number != kept) & (number < pairs - 1)

        # Two keys are the same if their sizes and tokens are: a token beyond the size counts as -1.
        used = torch.where(torch.arange(settings.key_length, device=self.device) < sizes.unsqueeze(-1), keys, -1)
        same = torch.ones(len(examples), pairs, pairs, dtype=torch.bool, device=self.device)
        for token in used.unbind(-1):
            same &= token.unsqueeze(2) == token.unsqueeze(1)
        same &= ~is_noise.unsqueeze(1)
        first = torch.where(is_noise, number, same.long().argmax(2))

        # The query repeats the earlier key whose first pair has the largest random number.
        order = 1 + self.draws.bits(examples.unsqueeze(1), 1 + number, QUERY)
        is_new = (first == number) & ~is_noise & (number < pairs - 1)
        query = (order * is_new).argmax(1, keepdim=True)
        first = torch.cat((first[:, :-1], query), 1)
        keys = torch.cat((keys[:, :-1], keys.gather(1, query.unsqueeze(-1).expand(-1, -1, settings.key_length))), 1)
        sizes = torch.cat((sizes[:, :-1], sizes.gather(1, query)), 1)
        return keys, sizes, first, is_noise
