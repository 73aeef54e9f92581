"""The filters of commands on runs: `--task`, `--model`, `--seed`, `--preset`, `--tag`, `--status`, `--where`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from orthobench.cli import completion
from orthobench.cli.options import with_parameters
from orthobench.errors import UsageError

SHORT_FORMS = {
    "task": ("NAME", "Restrict to this task"),
    "model": ("NAME", "Restrict to this model"),
    "seed": ("NUMBER", "Restrict to this seed"),
    "preset": ("NAME", "Restrict to runs with this preset: paper or quick"),
    "tag": ("NAME", "Restrict to runs with this tag"),
    "status": ("STATUS", "Restrict to this status: running, finished, diverged, failed or interrupted"),
}
"""The placeholder and the help text of each option, by column."""

LETTERS = {"task": ("-t",), "model": ("-m",)}
"""The short names of the options."""


def filtered(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces the parameter `where` of a command by the options for the filters.

    The command gets conditions such as "task=adding".

    Args:
        names: the columns that get their own option; if empty, all columns in `SHORT_FORMS`.
    """
    selected = names or tuple(SHORT_FORMS)

    def read(values: dict[str, Any]) -> list[str]:
        given = {name: ",".join(values[f"filter_{name}"] or ()) for name in selected if values[f"filter_{name}"]}
        seeds = given.get("seed", "0").split(",")
        if not all(seed.strip().isdecimal() for seed in seeds):  # a wrong one among several would go unnoticed
            raise UsageError(f"--seed {given['seed']}: give a number, or several as 0,2")
        return [*map("=".join, given.items()), *(values["filter_where"] or ())]

    return with_parameters("where", _options(selected), read)


def _options(names: Sequence[str]) -> list[inspect.Parameter]:
    """Return the parameters for these filters and for `--where`, in the form that typer reads."""
    kinds: dict[str, Any] = {}
    for name in names:
        metavar, text = SHORT_FORMS[name]
        option = typer.Option(
            *LETTERS.get(name, ()),
            f"--{name}",
            metavar=metavar,
            help=f"{text}; short for --where {name}={metavar}.",
            autocompletion=completion.column(name),
        )
        kinds[name] = Annotated[list[str] | None, option]
    kinds["where"] = Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="KEY=VALUE",
            help="Restrict to runs with this column or setting, such as n=170; may be repeated.",
        ),
    ]
    return [
        inspect.Parameter(f"filter_{name}", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in kinds.items()
    ]
