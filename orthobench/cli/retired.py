"""Options that other commands have replaced, with what to write instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

REPLACEMENTS = {
    ("sweep", "--paper"): "use `orthobench reproduce {value}`",
    ("sweep", "--table"): "use `orthobench reproduce PAPER --table {value}`",
    ("sweep", "--figure"): "use `orthobench reproduce PAPER --figure {value}`",
    ("sweep", "--where"): "use `orthobench reproduce PAPER --where {value}`",
    ("sweep", "--scale"): "use `orthobench reproduce PAPER --scale {value}`",
    ("sweep", "--search"): "use `orthobench tune`",
    ("sweep", "--trials"): "use `orthobench tune --trials {value}`",
    ("sweep", "--prune"): "use `orthobench tune`, which prunes by default",
    ("sweep", "--no-prune"): "use `orthobench tune --no-prune`",
    ("sweep", "--no-probe"): "use --no-profile",
    ("reproduce", "--paper"): "use `orthobench reproduce --small {value}`, or without --small for the paper's own runs",
}


def replacement(message: str, arguments: Sequence[str]) -> str | None:
    """Return what replaces the unknown option of an error message; None for an option that never existed."""
    match = re.search(r"No such option:? '?(--[\w-]+)", message)
    if match is None:
        return None
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    option = match[1]
    if (command, option) not in REPLACEMENTS:
        return None
    return f"{command} {option} is gone: {REPLACEMENTS[command, option].format(value=_value(option, arguments))}"


def _value(option: str, arguments: Sequence[str]) -> str:
    """Return the value of an option on the command line."""
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option:
            return value if equals else " ".join(arguments[position + 1 : position + 2])
    return ""
