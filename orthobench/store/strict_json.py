"""Values for strict JSON, which has no number for NaN and infinities."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """Return a value in which null replaces every float that is not finite, also inside dictionaries and lists."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
