"""Keys of runs that name files. A database comes from anywhere, and its texts are no paths until they are checked."""

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
        ValueError: it is another text or no text.
    """
    if not is_key(key):
        raise ValueError(f"its key {str(key)[:40]!r} is not 16 hexadecimal digits")


def as_name(key: str) -> str:
    """Return a key as the name of a file or folder, which never leads out of the folder that it is in.

    Raises:
        DamagedError: the key has other characters than ASCII letters, digits, _ and -.
    """
    if not _PLAIN.fullmatch(key):
        raise DamagedError(
            f"the database is damaged: a run's key {key[:40]!r} is not 16 hexadecimal digits and names no file; "
            "restore a backup"
        )
    return key
