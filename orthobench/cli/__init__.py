"""The command line: a module per command, which parses, calls `orthobench.api`, and prints what comes back.

A command imports nothing but `api`, `display`, `errors` and `options`, at its top. `api` and `display` load their own
modules on first use, so help, completion and error messages do not wait for SQLAlchemy, numpy or torch.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from orthobench import api
from orthobench.cli import completion
from orthobench.cli.options import spelled
from orthobench.errors import OrthobenchError, traceback_text, without_passwords
from orthobench.options.run_options import CLUSTERS, HOW, WHAT, WHERE

GROUPS = {
    "Train": ("run", "sweep", "tune", "compare-tuned", "place", "reproduce", "study"),
    "Results": (
        "ls",
        "show",
        "compare",
        "compare-databases",
        "report",
        "publish",
        "serve",
        "merge",
        "verify",
        "cite",
        "check",
        "delete",
    ),
    "Trained models": ("evaluate", "export"),
    "Plugins, data and machine": ("plugins", "data", "db", "bench", "doctor"),
}
"""The commands in the order of the help."""
FIRST_STEPS = """First steps:

  orthobench run adding scornn --preset quick                  # train one model: a minute or two
  orthobench sweep adding --models scornn,lstm --preset quick  # train two models, each run once
  orthobench report --html                                     # write the page reports/report.html
"""


class Command(TyperCommand):
    """A command that knows ~ in paths, and groups the options of training in its help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of commands that train under headings, because they have thirty."""
        if self.name not in GROUPS["Train"]:
            super().format_options(ctx, formatter)
            return
        headings: dict[str, list[Any]] = {name: [] for name in ("Arguments", WHAT, HOW, WHERE, CLUSTERS, "Help")}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                heading = getattr(parameter, "rich_help_panel", None) or WHAT
                if parameter.param_type_name == "argument" or parameter.name == "help":
                    heading = "Help" if parameter.name == "help" else "Arguments"
                headings[heading].append(record)
        for heading, records in headings.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        ctx.params = {name: _from_home(value) for name, value in ctx.params.items()}
        return rest


def _from_home(value: Any) -> Any:
    """Return the value of a parameter, with the home folder in place of ~ at the beginning of a path."""
    if isinstance(value, list):
        return list(map(_from_home, value))
    # Not `expanduser` of Path, because that raises an error for an unknown user.
    return Path(os.path.expanduser(value)) if isinstance(value, Path) else value  # noqa: PTH111


@cache
def load(name: str) -> Any:
    """Import the module of a command, and return the command."""
    module = import_module(f"orthobench.cli.{name.replace('-', '_')}")
    if (group := getattr(module, "app", None)) is None:
        group = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        group.command(name, cls=Command)(module.command)
    command = typer.main.get_command(group)
    command.name = name
    return command


class Modules(Mapping[str, Any]):
    """The commands by name. A command is imported when it is looked up, so `run` does not import other commands."""

    def __iter__(self) -> Iterator[str]:
        return (name for names in GROUPS.values() for name in names)

    def __len__(self) -> int:
        return sum(map(len, GROUPS.values()))

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return load(name)


class Commands(TyperGroup):
    """The list of commands in groups, in the order of their use."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Modules()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in GROUPS.items():
            width = formatter.width - 6 - max(map(len, names))
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would print a traceback at interpreter exit
            typer.echo("stopped", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="orthobench",
    cls=Commands,
    help="Train recurrent networks of the literature on its tasks, and compare the results with the papers'.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(api.__version__)
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the calls of an error or failed run.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(FIRST_STEPS)
        typer.echo(context.get_help())


class Warnings(logging.Handler):
    """Prints warnings with the flags of the command line, above a live display, which replaces stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(spelled(self.format(record)), file=sys.stderr)
        except OSError:  # a warning does not end a run
            self.handleError(record)


def main() -> int:
    """Run the command of this process, and return its exit code: bad input gets one line and 2, an interrupted run 130.

    Any other error is passed on.
    """
    logging.basicConfig(format="%(message)s", handlers=[Warnings()])
    verbose = sys.argv[1:2] in (["-v"], ["--verbose"])
    logging.getLogger("orthobench").setLevel(logging.DEBUG if verbose else logging.INFO)
    if "_ORTHOBENCH_COMPLETE" in os.environ:
        completion.join_colons()
    try:
        return int(app(prog_name="orthobench", standalone_mode=False) or 0)
    except typer.Abort:
        return 130
    except (OrthobenchError, typer.TyperException) as error:
        if verbose:
            typer.echo(traceback_text(), err=True)
        message = _message(error) if isinstance(error, typer.TyperException) else str(error)
        typer.echo("error: " + without_passwords(spelled(" ".join(message.split()))), err=True)
        return 2


def _message(error: typer.TyperException) -> str:
    """Return the message for an error in the arguments, with the command whose help explains them."""
    message = error.format_message().replace("Value error, ", "")
    message = re.sub(r"Input should be a valid integer, .* as an integer", "should be a whole number", message)
    message = message.replace("Input should", "should")
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    options = {option for parameter in context.command.params for option in parameter.opts}
    if context.command.name == "run" and re.search(r"extra argument|such option: --(models|seeds|grid)\b", message):
        message = f"{message.rstrip('.')}: `orthobench sweep TASK --models A,B --seeds N` trains several runs"
    elif "extra argument" in message and "--models" in options:
        message = f"{message.rstrip('.')}: models are written --models A,B"
    elif message.startswith("No such option") and "--set" in options:
        message = f"{message.rstrip('.')}; a setting is written -s NAME=VALUE"
    return f"{message} (help: {context.command_path} --help)"
