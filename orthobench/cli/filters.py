"""The filters of commands on runs: `--task`, `--model`, `--seed`, `--preset`, `--tag`, `--status`, `--where`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Filters:
    """The filters that the user gave to a command: values by column, and the texts of `--where`.

    Raises:
        UsageError: a seed is not a number.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    where: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check the seeds, because a wrong one among several would go unnoticed."""
        seeds = self.columns.get("seed")
        if seeds is not None and not all(seed.strip().isdecimal() for seed in seeds.split(",")):
            raise UsageError(f"--seed {seeds}: give a number, or several as 0,2")

    def texts(self) -> list[str]:
        """Return the filters as strings such as "task=adding"."""
        return [*(f"{name}={value}" for name, value in self.columns.items() if value is not None), *self.where]


NO_FILTERS = Filters()


def filtered(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces the parameter `filters` of a command by the options for the filters.

    Args:
        names: the columns that get their own option; if empty, all columns in `SHORT_FORMS`.
    """
    selected = names or tuple(SHORT_FORMS)

    def read(values: dict[str, Any]) -> Filters:
        texts = {name: values[f"filter_{name}"] for name in selected}
        columns = {name: ",".join(alternatives) if alternatives else None for name, alternatives in texts.items()}
        return Filters(columns, values["filter_where"] or ())

    return with_parameters("filters", _options(selected), read)


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
