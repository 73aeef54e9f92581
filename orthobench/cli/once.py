"""Commands that refuse to take an option twice, unless it collects values, so that no value is silently dropped."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperGroup

from orthobench.errors import UsageError


class Command(TyperCommand):
    """A command that refuses to take an option with a single value twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        refuse_twice(self, ctx, args)
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group of commands that refuses to take one of its own options twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        refuse_twice(self, ctx, args)
        return super().parse_args(ctx, args)


def refuse_twice(command: Any, ctx: Any, args: list[str]) -> None:
    """Check that each option that takes at most one value is given at most once.

    Raises:
        UsageError: an option is given twice; the message names it.
    """
    if ctx.resilient_parsing:  # shell completion
        return
    *_, parameters = command.make_parser(ctx).parse_args(args=list(args))
    for parameter, count in Counter(parameters).items():
        if count > 1 and parameter.param_type_name == "option" and not parameter.multiple:
            name = "/".join(max(names, key=len) for names in (parameter.opts, parameter.secondary_opts) if names)
            raise UsageError(f"{name} is given twice: give it once")
