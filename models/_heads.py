"""The settings of models whose features are divided among heads."""

from __future__ import annotations

import math
from typing import Any, Self

from pydantic import Field, model_validator

from orthobench.model import Count, ModelSettings, OptimizerName

_HEADS = 4


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
