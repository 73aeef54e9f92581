"""Options of earlier versions, and the options that replaced them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

REPLACEMENTS = {
    ("sweep", "--paper"): "is gone: use `orthobench reproduce {value}`",
    ("sweep", "--table"): "is gone: use `orthobench reproduce PAPER --table {value}`",
    ("sweep", "--figure"): "is gone: use `orthobench reproduce PAPER --figure {value}`",
    ("sweep", "--where"): "is gone: use `orthobench reproduce PAPER --where {value}`",
    ("sweep", "--scale"): "is gone: use `orthobench reproduce PAPER --scale {value}`",
    ("sweep", "--search"): "is gone: use `orthobench tune`",
    ("sweep", "--trials"): "is gone: use `orthobench tune --trials {value}`",
    ("sweep", "--prune"): "is gone: use `orthobench tune`, which prunes by default",
    ("sweep", "--no-prune"): "is gone: use `orthobench tune --no-prune`",
    ("sweep", "--no-probe"): "is gone: use --no-profile",
    ("reproduce", "--paper"): "is gone: use `orthobench reproduce --small {value}`, or without --small for the paper's "
    "own runs",
    **{
        ("report", f"--{form}"): f"is now --format {form}: orthobench report --format {form}"
        for form in ("csv", "json", "markdown", "latex", "svg", "png", "pdf", "reproduction")
    },
}
"""By command and option, the rest of the sentence that names the new spelling."""


def replacement(command: str, option: str, arguments: Sequence[str]) -> str | None:
    """Return the sentence that names the new spelling of an option; None for an option that never existed.

    Args:
        arguments: the command line, which holds the option's value.
    """
    name = option.partition("=")[0]
    rest = REPLACEMENTS.get((command, name))
    return None if rest is None else f"{command} {name} {rest.format(value=_value(name, arguments))}"


def _value(option: str, arguments: Sequence[str]) -> str:
    """Return the value of an option on the command line, quoted for the shell."""
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option:
            return shlex.join([value] if equals else arguments[position + 1 : position + 2])
    return ""
