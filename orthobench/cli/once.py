"""Commands whose options are given once, unless they collect values: no value of the user's is dropped unseen."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperGroup

from orthobench.errors import UsageError


class Command(TyperCommand):
    """A command that refuses an option with one value that is given twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        refuse_twice(self, ctx, args)
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group of commands that refuses one of its own options that is given twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        refuse_twice(self, ctx, args)
        return super().parse_args(ctx, args)


def refuse_twice(command: Any, ctx: Any, args: list[str]) -> None:
    """Refuse an option that takes one value, or none, and is given twice.

    Raises:
        UsageError: there is such an option; the line names it.
    """
    if ctx.resilient_parsing:  # the shell's completion
        return
    *_, parameters = command.make_parser(ctx).parse_args(args=list(args))
    for parameter, count in Counter(parameters).items():
        if count > 1 and parameter.param_type_name == "option" and not parameter.multiple:
            name = "/".join(max(names, key=len) for names in (parameter.opts, parameter.secondary_opts) if names)
            raise UsageError(f"{name} is given twice: give it once")
