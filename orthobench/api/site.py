"""The page on the web: a static site with a page per database, and a server on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orthobench.errors import UsageError
from orthobench.options.arguments import PORT, Database, Databases, FileName, Port, Texts
from orthobench.options.checked import checked
from orthobench.reporting.account.names import NO_LABELS
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import build_page, empty_page
from orthobench.reporting.web.publish import SitePage, check_folder, page_names, write_site
from orthobench.reporting.web.serve import Page, PageServer
from orthobench.settings.filters import read_conditions
from orthobench.spec.index import built_in
from orthobench.store import Status
from orthobench.store.merge import opened_unchanged
from orthobench.store.open import DatabaseNotFoundError, open_read_only
from orthobench.store.sqlite import named_or_default
from orthobench.system.location import Location
from orthobench.system.signals import handled
from orthobench.training.announcements import running_sweeps
from orthobench.training.checkpoint import checkpoint_root
from orthobench.training.settled import status_in

if TYPE_CHECKING:
    from orthobench.store import Store


@checked
def publish(folder: FileName, databases: Databases, *, where: Texts = (), **conditions: Any) -> list[Path]:
    """Write or renew a static site with a page for each database, and return its files, the index first.

    Args:
        databases: files or SQLAlchemy URLs; a page is named after its database file, without the suffix.
        where: restrict to runs that meet these conditions, such as ["n=170"].
        conditions: further conditions by name, such as `task="adding"`.

    Raises:
        UsageError: a database cannot be read or contains no selected run, a database is named twice, or the folder
            contains files that no earlier call wrote.
        StorageError: a file cannot be written.
    """
    if not databases:
        raise UsageError("name a database, such as orthobench publish site results.db")
    locations = list(map(Location.of, databases))
    for number, location in enumerate(locations):
        if any(location.is_same(earlier) for earlier in locations[:number]):
            raise UsageError(f"{location} is named twice: name each database once")
    check_folder(Path(folder))
    keys = built_in()["variants"]
    pages = []
    for name, location in zip(page_names(locations), locations, strict=True):
        with opened_unchanged(location) as store:
            status_of = status_in(store, location)
            scope = Scope(read_conditions(where, **conditions), for_others=True, status_of=status_of)
            pages.append(SitePage(name, *build_page(store, scope, keys)))
    return write_site(Path(folder), pages)


@checked
@contextmanager
def serve(
    db: Database | None = None,
    *,
    port: Port = PORT,
    labels: Mapping[str, str] = NO_LABELS,
    all_versions: bool = False,
    where: Texts = (),
    **conditions: Any,
) -> Iterator[PageServer]:
    """Open a server for the page of a database on 127.0.0.1; call its `serve_forever()`. The database is only read.

    If there is no database yet, the page says so until a run creates it. While a sweep trains, the page shows its
    progress and the runs to come. Until the server is closed, SIGTERM ends the main thread's block as Ctrl-C does.

    Args:
        db: a file or an SQLAlchemy URL. The default is results.db, or runs.db if results.db is protected.
        port: 0 for any free port; `PageServer.address` is the address of the page.
        labels: names of models in place of their titles, as for `report`.
        all_versions: whether to show the runs of earlier versions of your own code, too.
        where: restrict to runs that meet these conditions, such as ["n=170"].
        conditions: further conditions by name, such as `task="adding"`.

    Raises:
        UsageError: the database cannot be read, a condition is malformed, or the port is in use.
    """
    db = named_or_default(db, writes=False)
    chosen, keys = read_conditions(where, **conditions), built_in()["variants"]
    scope = Scope(chosen, labels=dict(labels), awaits_runs=True, all_versions=all_versions)
    root = checkpoint_root(db)
    opened: list[Store] = []
    sweeps: list[dict[str, Any]] = []
    with handled(), ExitStack() as stack:

        def newest() -> Any:
            if not opened:
                with suppress(DatabaseNotFoundError):
                    opened.append(stack.enter_context(open_read_only(db)))
            sweeps[:] = running_sweeps(root)
            if not opened:
                return None, list(sweeps)
            status_of = status_in(opened[0], db)  # a killed run changes nothing in the database
            running = [status_of(run) for run in opened[0].runs(status=Status.RUNNING, brief=True)]
            return opened[0].newest(), running, list(sweeps)

        def page() -> str:
            if not opened:
                return empty_page(sweeps)
            current = replace(scope, status_of=status_in(opened[0], db))
            return build_page(opened[0], current, keys, sweeps=sweeps)[0]

        with PageServer(Page(page, newest), port) as server:
            server.page.current()
            yield server
