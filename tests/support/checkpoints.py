"""Checkpoints as a run that resumes reads them."""

from __future__ import annotations

from typing import Any

from orthobench.training.checkpoint import Checkpoints


def newest(checkpoints: Checkpoints, logged: int) -> dict[str, Any] | None:
    """The newest usable checkpoint of a run whose newest row is of iteration `logged`."""
    return next(checkpoints.candidates(logged), None)
