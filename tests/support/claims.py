"""Whether a claim held, for tests of single checks."""

from __future__ import annotations

from orthobench.analysis.claims import ClaimResult


def has_held(result: ClaimResult) -> bool | None:
    """Return whether a claim held, whatever the number of seeds; None if it is not decided."""
    return None if result.share is None else result.share.holds
