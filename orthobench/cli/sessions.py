"""Sessions of commands that train: their display, and the exit codes with which they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from orthobench import api, display
from orthobench.errors import counted

LEFT_TO_ANOTHER = 3
"""The exit code of a sweep if another process is still training some of its runs."""


@contextmanager
def displayed(
    quiet: bool,
    *,
    plan: bool = True,
    hint: str = "; the same command resumes",
    best_command: Callable[[api.TuningResult], str] | None = None,
) -> Iterator[api.Display]:
    """Display a session. If the user stops it, end the command with code 130; a closed pipe does not stop it.

    Args:
        quiet: show no progress, only what went wrong.
        plan: print the plan of a sweep on stdout before its runs train.
        hint: what to say to a user who stops the session.
        best_command: the command for the best trial of a search, which the display prints with the trials.

    Raises:
        typer.Exit: the user stopped the session.
    """
    # Here, because it loads torch, for which help and errors in the arguments need not wait.
    from orthobench.cli.session_display import TerminalDisplay

    with display.lasting_output():
        try:
            yield TerminalDisplay(quiet, plan, best_command)
        except KeyboardInterrupt:
            typer.echo(f"stopped{hint}", err=True)
            raise typer.Exit(130) from None


def report_failures(failed: int, total: int, refused: int = 0) -> None:
    """End the command with code 1 if runs failed.

    Args:
        refused: how many of the failed runs could not start, so that the database has no record of them.

    Raises:
        typer.Exit: runs failed.
    """
    if not failed:
        return
    stored = failed - refused
    shown = stored if refused else "them"
    listed = (
        f"; `orthobench ls --status failed` lists {shown}, and -v before the same command shows the calls"
        if stored
        else ""
    )
    unstored = f", of which {refused} could not start" if refused else ""
    typer.echo(f"{failed} of {counted(total, 'run')} failed{unstored}{listed}", err=True)
    raise typer.Exit(1)


def report_sweep(result: api.SweepResult) -> None:
    """End the command with code 1 if runs failed, else with code 3 if another process is still training runs.

    Raises:
        typer.Exit: runs failed, or another process is still training some.
    """
    report_failures(len(result.failed), len(result.plan.runs), result.refused)
    if result.left:
        runs = f"{len(result.left)} of {len(result.plan.runs)} runs"
        typer.echo(f"{runs} are left to another process: the same command later shows their results", err=True)
        raise typer.Exit(LEFT_TO_ANOTHER)
