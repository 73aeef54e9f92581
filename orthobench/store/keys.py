"""Keys of runs as file names. A database may come from anywhere, so its texts are checked before they become paths."""

from __future__ import annotations

import re

from orthobench.errors import DamagedError

_KEY = re.compile(r"[0-9a-f]{16}")
_PLAIN = re.compile(r"[0-9A-Za-z_-]{1,64}")


def is_key(text: object) -> bool:
    """Return whether a value is the key of a run: a text of 16 hexadecimal digits."""
    return isinstance(text, str) and _KEY.fullmatch(text) is not None


def check_key(key: object) -> None:
    """Refuse a value that is not the key of a run.

    Raises:
        ValueError: the value is not a text, or another text.
    """
    if not is_key(key):
        raise ValueError(f"its key {str(key)[:40]!r} is not 16 hexadecimal digits")


def as_name(key: str) -> str:
    """Return a key as the name of a file or folder, after checking that it cannot lead out of its folder.

    Raises:
        DamagedError: the key has other characters than ASCII letters, digits, _ and -.
    """
    if not _PLAIN.fullmatch(key):
        raise DamagedError(
            f"the database is damaged: a run's key {key[:40]!r} is not 16 hexadecimal digits and names no file; "
            "restore a backup"
        )
    return key
