"""The common settings of sLSTM and mLSTM: heads and the forget gate."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, model_validator

from orthobench.model import Count, ModelSettings, OptimizerName

_HEADS = 4


class XLSTMSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    heads: Count = Field(
        _HEADS,
        description="number of heads of hidden_size / heads units each. Default: the greatest common divisor of 4 and "
        "hidden_size",
        json_schema_extra={"tied_to": "hidden_size"},
    )
    forget_gate: Literal["sigmoid", "exponential"] = Field(
        "sigmoid", description="the function of the forget gate's pre-activation"
    )

    @model_validator(mode="before")
    @classmethod
    def _resolve_heads(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"heads": math.gcd(_HEADS, cls.whole(values, "hidden_size")) or 1, **values}

    @model_validator(mode="after")
    def _heads_divide(self) -> XLSTMSettings:
        if self.hidden_size % self.heads:
            raise ValueError(
                f"heads={self.heads} should divide hidden_size ({self.hidden_size}): each head has hidden_size / heads "
                "units"
            )
        return self

    @property
    def head_size(self) -> int:
        """Return d, the units of a head."""
        return self.hidden_size // self.heads


def input_scale(features: int) -> float:
    """Return the standard deviation of the weights of an input map, sqrt(2 / (5 m))."""
    return math.sqrt(2 / (5 * features))
