"""The common settings of sLSTM and mLSTM, and the scale of their input maps."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from ._heads import HeadsSettings


class XLSTMSettings(HeadsSettings):
    forget_gate: Literal["sigmoid", "exponential"] = Field(
        "sigmoid", description="the function of the forget gate's pre-activation"
    )


def input_scale(features: int) -> float:
    """Return the standard deviation of the weights of an input map, sqrt(2 / (5 m))."""
    return math.sqrt(2 / (5 * features))
