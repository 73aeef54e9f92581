"""The hash of the recurrences' code."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

_CODE = Path(__file__).parent


@functools.cache
def source_hash() -> str:
    """Return the hash of the recurrences' code, for CPU and CUDA, as 12 hexadecimal digits.

    It includes the Python code, which chooses a kernel and its variant.
    """
    digest = hashlib.sha256()
    for file in sorted(_CODE.rglob("*")):
        if file.suffix in (".c", ".cuh", ".h", ".py"):
            digest.update(f"{file.relative_to(_CODE).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
