"""Runs with classes of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orthobench.spec.resolve import RunConfig


def with_classes(config: RunConfig, **classes: Any) -> RunConfig:
    """Return the run with other classes, such as `model_class=...`, under the same spec."""
    changed = replace(config)
    vars(changed).update(classes)
    return changed
