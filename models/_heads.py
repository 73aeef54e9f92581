"""Models whose features are divided among heads, and those whose heads have a memory each."""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from orthobench.matrices.initial import as_parameter, inverse_softplus
from orthobench.model import Count, Model, ModelSettings, OptimizerName

_HEADS = 4
_SHORTEST_STEP, _LONGEST_STEP = 1e-3, 1e-1
_HIGHEST_RATE = 16


class HeadsSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    heads: Count = Field(
        _HEADS,
        description="number of heads, with hidden_size / heads features each. Default: the greatest common divisor of "
        "4 and hidden_size",
        json_schema_extra={"tied_to": "hidden_size"},
    )

    @model_validator(mode="before")
    @classmethod
    def _resolve_heads(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"heads": math.gcd(_HEADS, cls.whole(values, "hidden_size")) or 1, **values}

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % self.heads:
            raise ValueError(
                f"heads={self.heads} should divide hidden_size ({self.hidden_size}): each head has hidden_size / heads "
                "features"
            )
        return self

    @property
    def head_size(self) -> int:
        """The number of features of a head."""
        return self.hidden_size // self.heads


class MemorySettings(HeadsSettings):
    key_size: Count | None = Field(
        None, description="features of a key and of a query in each head; none: as many as a value, hidden_size / heads"
    )
    convolution: int | None = Field(
        4, ge=2, le=8, description="inputs that the short convolution through time reads; none: no convolution"
    )

    @property
    def keys(self) -> int:
        """The number of features of a key in each head."""
        return self.key_size or self.head_size

    @property
    def channels(self) -> int:
        """The number of features of queries, keys and values together, which pass through the convolution."""
        raise NotImplementedError

    @property
    def memory(self) -> int:
        """The number of entries of all memories."""
        return self.hidden_size * self.keys


class MemoryModel(Model):
    """A model whose state holds a memory for each head, followed by the convolution's inputs of the last steps."""

    settings: MemorySettings

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, MemorySettings)
        return settings.memory + ((settings.convolution or 1) - 1) * settings.channels

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return settings.hidden_size

    def state_parts(self) -> dict[str, slice]:
        memory = self.settings.memory
        parts = {"h": slice(0, memory), "convolution": slice(memory, self.features)}
        return {name: part for name, part in parts.items() if part.start < part.stop}


def drawn_decays(heads: int, generator: torch.Generator) -> tuple[nn.Parameter, nn.Parameter]:
    """Draw a and b `[heads]` of decays exp(-exp(a) softplus(. + b)).

    exp(a) is U(0, 16), and softplus(b) log-uniform between 0.001 and 0.1, as in flash-linear-attention (`fla/layers`).
    """
    rate, step = torch.rand(2, heads, generator=generator, dtype=torch.float64)
    step = (math.log(_SHORTEST_STEP) + step * math.log(_LONGEST_STEP / _SHORTEST_STEP)).exp()
    # Bounded, because a draw of 0 has no logarithm.
    logarithm = (_HIGHEST_RATE * rate).clamp(min=1e-6).log()
    return as_parameter(logarithm), as_parameter(inverse_softplus(step))
