"""Errors whose message is one line for the user: the problem, then the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OrthobenchError(Exception):
    """Base of the errors that the command line prints as one line, with exit code 2."""


class UsageError(OrthobenchError):
    """Bad input: a wrong setting, name, file or combination of options."""


class RunLockedError(OrthobenchError):
    """Another process is training this run."""


class StorageError(OrthobenchError):
    """A file or database cannot be written: the run stops, and the same command resumes it from its checkpoint."""


def unknown(kind: str, word: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown name, with the nearest known names, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}"
    return UsageError(f"unknown {kind} '{word}': {hint}")
