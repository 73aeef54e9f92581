"""Output besides tables and progress: JSON, and what becomes of output that nobody reads any more."""

from __future__ import annotations

from typing import Any

from orthobench.system.output import lasting_output as lasting_output
from orthobench.system.strict_json import dump_json


def print_json(value: Any) -> None:
    """Print strict JSON, in which numbers that are not finite become null."""
    print(dump_json(value, indent=2, default=str))
