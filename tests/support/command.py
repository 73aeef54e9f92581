"""The command line in the process of the tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest


def call_here(patch: pytest.MonkeyPatch, arguments: Sequence[str]) -> int:
    """Run the command line in this process and return its exit code."""
    from orthobench.cli import main

    patch.setattr(sys, "argv", ["orthobench", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code or 0
