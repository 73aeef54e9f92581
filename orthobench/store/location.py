"""Locations of databases: the path of a SQLite file, or any SQLAlchemy URL."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from orthobench.errors import UsageError, without_passwords


def parse(location: str) -> URL:
    """Return the SQLAlchemy URL of a location.

    Raises:
        UsageError: the location is empty or malformed; the message shows only the scheme of a malformed URL.
    """
    if not location.strip():
        raise UsageError("the database has an empty name: give a file, such as `db='results.db'`, or leave `db` out")
    if "://" not in location:
        return URL.create("sqlite", database=location)
    scheme = location.partition("://")[0]
    try:
        url = make_url(location)
        url.get_dialect()
    except (ArgumentError, NoSuchModuleError):
        raise UsageError(
            f"'{scheme}://...' is not a database: give a file, or a URL such as postgresql://user@host/name"
        ) from None
    except ValueError:  # the port is not a number; the message may contain a part of the password
        raise UsageError(
            f"the port in '{scheme}://...' is not a number: write postgresql://user@host:5432/name, and :, @ and / in "
            "a password as %3A, %40 and %2F"
        ) from None
    if _has_ambiguous_password(location, url):
        raise UsageError(
            f"the password in '{scheme}://...' has a reserved character: write @ as %40, & as %26, / as %2F and a "
            "space as %20"
        )
    # The default driver depends on SQLAlchemy's version; the extra installs psycopg.
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def sqlite_file(location: str) -> Path | None:
    """Return the SQLite file of a location; None for a server or memory."""
    return file_of(parse(location))


def file_of(url: URL) -> Path | None:
    """Return the SQLite file of a URL; None for a server or memory."""
    name = url.database if url.get_backend_name() == "sqlite" else None
    return Path(name) if name and name != ":memory:" else None


def location_of(url: URL) -> str:
    """Return the location of a URL: the path of its file, or the URL itself with its password."""
    file = file_of(url)
    return url.render_as_string(hide_password=False) if file is None else str(file)


def is_server(location: str) -> bool:
    """Return whether processes of several machines may share this database."""
    return parse(location).get_backend_name() == "postgresql"


def is_same(location: str, other: str) -> bool:
    """Return whether two locations are the same database."""
    file, other_file = sqlite_file(location), sqlite_file(other)
    if file is None or other_file is None:
        return file == other_file and parse(location) == parse(other)
    return file.exists() and other_file.exists() and file.samefile(other_file)


def _has_ambiguous_password(location: str, url: URL) -> bool:
    """Return whether a password has a reserved character, so that a part of it is parsed as another part of the URL."""
    one_word = re.sub(r"\s", "_", location)
    if without_passwords(one_word) == one_word:
        return False
    query = location.partition("?")[2] if url.query else ""
    return bool(
        re.search(r"\s", location)
        or "@" in f"{url.host}{url.database}"
        or any(part and "=" not in part for part in query.split("&"))
    )
