"""The command line: one thin module a command, which imports what it needs only when it runs."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Any

import typer

from orthobench.cli import (
    bench,
    check,
    compare,
    data,
    db,
    ls,
    plugins,
    report,
    reproduce,
    run,
    show,
    study,
    sweep,
    tune,
)
from orthobench.cli.replaced import replacement
from orthobench.errors import OrthobenchError

GROUPS = {
    "Train": ("run", "sweep", "tune", "reproduce", "study"),
    "Results": ("ls", "show", "compare", "report", "check"),
    "Plugins, data and machine": ("plugins", "data", "db", "bench"),
}
"""The commands as the help lists them."""
FIRST_STEPS = """First steps:

  orthobench run adding scornn --preset quick                  # train one model: a minute or two
  orthobench sweep adding --models scornn,lstm --preset quick  # train two models, each run once
  orthobench report --html                                     # write the page reports/report.html
"""


class Commands(typer.core.TyperGroup):
    """The list of commands in groups, in the order of their use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in GROUPS.values() for name in names if name in self.commands]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = formatter.width - 6 - max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                rows = [(name, self.commands[name]) for name in names if name in self.commands]
                formatter.write_dl([(name, command.get_short_help_str(width)) for name, command in rows])


app = typer.Typer(
    name="orthobench",
    cls=Commands,
    help="Train recurrent networks of the literature on its tasks, and compare the results with the papers'.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (run, sweep, tune, reproduce, study, ls, show, compare, report, check, plugins, bench):
    app.command(module.__name__.rpartition(".")[2])(module.command)
app.add_typer(data.app, name="data")
app.add_typer(db.app, name="db")


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from orthobench.version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(FIRST_STEPS)
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line: bad input gets one line and exit code 2, an interrupted run exit code 130."""
    # Threads that spin while idle hold cores: those of OpenMP after each operation of torch, and those of OpenBLAS in
    # NumPy and SciPy, which slow down small products such as eigenvalues a hundred times.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("orthobench").setLevel(logging.INFO)
    verbose = any(argument in ("-v", "--verbose") for argument in sys.argv[1:2])
    try:
        code = app(prog_name="orthobench", standalone_mode=False)
    except OrthobenchError as error:
        _fail(str(error), verbose)
    except typer.TyperException as error:
        _fail(_message(error), verbose)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if verbose:
            raise
        first = (str(error).splitlines() or [""])[0]
        typer.echo(f"error: {type(error).__name__}: {first} (orthobench -v shows where)", err=True)
        sys.exit(1)
    sys.exit(code or 0)


def _message(error: typer.TyperException) -> str:
    """Return the message of an error in the arguments; for an option of earlier versions, the new spelling."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option and context is not None and (sentence := replacement(context.info_name or "", option, sys.argv[1:])):
        return sentence
    message = error.format_message().replace("Value error, ", "")
    return f"{message} (help: {context.command_path} --help)" if context is not None else message


def _fail(message: str, verbose: bool) -> None:
    if verbose:
        import traceback

        traceback.print_exc()
    typer.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(2)
