"""Values for strict JSON, which has no number for NaN and infinities."""

from __future__ import annotations

import json
import math
from typing import Any


def dumps(value: Any, **options: Any) -> str:
    """Return a value as JSON, with null for floats that are not finite; `options` are those of `json.dumps`."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # not all floats are finite
        return json.dumps(finite(value), allow_nan=False, **options)


def finite(value: Any) -> Any:
    """Return a value in which null replaces every float that is not finite, also inside dictionaries and lists."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
