"""The command line in the process of the tests."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

import pytest
import typer.main

command_line = functools.cache(typer.main.get_command)
"""typer builds the command line anew at each call, which takes 30 ms; it does not change once all is imported."""


def call_here(patch: pytest.MonkeyPatch, arguments: Sequence[str]) -> int:
    """Run the command line in this process and return its exit code."""
    from orthobench.__main__ import main
    from orthobench.plugins import catalog

    patch.setattr(catalog, "_NAMED", {})  # a command is a process of its own, and knows no layers of earlier ones
    patch.setattr(typer.main, "get_command", command_line)
    patch.setattr(sys, "argv", ["orthobench", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)
