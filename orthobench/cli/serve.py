"""`orthobench serve`: show the page in a browser on this machine, and renew it while runs train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import Annotated

import typer

from orthobench import api, display
from orthobench.cli.filters import filtered
from orthobench.cli.labels import AllVersions, Labels, read_labels
from orthobench.cli.options import DEFAULT_DATABASE, Database
from orthobench.cli.records import echo_log
from orthobench.errors import UsageError
from orthobench.options.arguments import PORT


@contextmanager
def live_page(db: api.Location, port: int | None = None) -> Iterator[None]:
    """Serve the page of a database until the context ends, and print its address.

    Args:
        port: the port; None for the usual one, or a free one if that is in use.

    Raises:
        UsageError: the port is in use.
    """
    with ExitStack() as stack:
        try:
            server = stack.enter_context(api.serve(db, port=PORT if port is None else port))
        except UsageError:  # the port is in use
            if port is not None:
                raise
            server = stack.enter_context(api.serve(db, port=0))
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
        stack.callback(server.shutdown)
        typer.echo(f"{server.address} shows the runs until they have ended", err=True)
        yield


@filtered()
def command(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0: a free one.")] = PORT,
    label: Labels = None,
    all_versions: AllVersions = False,
    where: Sequence[str] = (),
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Serve the page to a browser on this machine. New points appear while runs train.

    The database is only read. Other machines cannot reach the page. Ctrl-C or SIGTERM ends the server; see
    docs/publish.md.
    `orthobench ls --help` explains the filters.
    """
    opened = api.serve(db, port=port, labels=read_labels(label), all_versions=all_versions, where=where)
    with display.lasting_output(), opened as server:
        try:
            missing = db.file is not None and not db.file.exists()
            typer.echo(f"{server.address} {'waits for' if missing else 'shows'} {db}; Ctrl-C ends it")
            echo_log(db)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("the server has stopped", err=True)
