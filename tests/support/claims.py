"""Claims as a paper's file states them, and whether they held, for tests of single checks."""

from __future__ import annotations

from typing import Any

from orthobench.analysis.claims import ClaimResult, read_claims
from orthobench.analysis.claims.reading import ClaimKind
from orthobench.papers import Artifact


def stated(check: str, model: str = "rnn", text: str = "", **fields: Any) -> dict[str, Any]:
    """Return a claim about a model as a file states it."""
    return {"text": text, "check": check, "model": model, **fields}


def read(table: dict[str, Any]) -> ClaimKind:
    """Return the claim that a table of a file states."""
    (claim,) = read_claims(Artifact(name="figure 1", claims=[table]))
    return claim


def has_held(result: ClaimResult) -> bool | None:
    """Return whether a claim held, whatever the number of seeds; None if it is not decided."""
    return None if result.share is None else result.share.holds
