"""Errors that are told in one line: what is wrong, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """Bad input; the command line prints its message as one line and exits with code 2."""


class RunLockedError(UsageError):
    """Another process is at this run."""


class StorageError(UsageError):
    """What a run has to keep cannot be written: it stops, and goes on from its checkpoint when that is mended."""


def unknown(kind: str, word: str, known: Iterable[str]) -> UsageError:
    """The error for a name that does not exist: with the nearest ones, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}"
    return UsageError(f"unknown {kind} '{word}': {hint}")
