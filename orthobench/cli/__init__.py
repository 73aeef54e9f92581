"""The command line. Each command is one thin module; what is heavy is imported when a command runs."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer

from orthobench.cli import bench, check, compare, data, db, ls, plugins, report, reproduce, run, show, study, sweep
from orthobench.errors import OrthobenchError

app = typer.Typer(
    name="orthobench",
    help="Recurrent networks of the literature on the literature's tasks: one command, one database, one page.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (run, sweep, study, report, reproduce, compare, check, ls, show, plugins, bench):
    app.command(module.__name__.rpartition(".")[2])(module.command)
app.add_typer(data.app, name="data")
app.add_typer(db.app, name="db")


def _version(wanted: bool) -> None:
    if wanted:
        from orthobench import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line: bad input gets one line and exit code 2, an interrupted run 130."""
    # Idle threads that spin hold the cores that others could use: OpenMP's after each of torch's operations, and those
    # of NumPy's and SciPy's own OpenBLAS, whose small products (eigenvalues) they make a hundred times slower.
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
        _fail(error.format_message().replace("Value error, ", ""), verbose)
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


def _fail(message: str, verbose: bool) -> None:
    if verbose:
        import traceback

        traceback.print_exc()
    typer.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(2)
