"""Read the TOML files of users."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from orthobench.errors import UsageError


def read_toml(file: Path, named: str = "") -> dict[str, Any]:
    """Return the content of a user's TOML file, even if it begins with the byte order mark of Windows editors.

    Args:
        named: the file as errors name it, if not by its path.

    Raises:
        UsageError: the file cannot be read, or is not TOML.
    """
    name = named or str(file)
    try:
        # -sig, because editors of Windows begin a file with a byte order mark, which tomllib refuses.
        return tomllib.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also raised by numbers of thousands of digits, and by deep nesting
        raise UsageError(f"{name} is not TOML: {error}") from error
