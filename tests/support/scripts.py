"""Programs that stand in for others."""

from __future__ import annotations

from pathlib import Path


def script(path: Path, text: str) -> str:
    """Write a shell script and return its path."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="latin-1")
    path.chmod(0o755)
    return str(path)
