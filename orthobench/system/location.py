"""Where a database, weights or checkpoints are: a path, or a URL whose text hides its passwords."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from orthobench.errors import UsageError, without_passwords

if TYPE_CHECKING:
    from sqlalchemy import URL

DATABASE_VARIABLE = "ORTHOBENCH_DB"
"""The variable of the environment that names the default database."""


def from_home(text: str) -> str:
    """Return a path that the user names, with the home folder in place of ~ at its beginning.

    A shell does so only at the beginning of a word, and Docker's and systemd's files of variables never do. A URL of a
    SQLite file, `sqlite:///~/x.db`, counts as its path; any other text is returned as it is.
    """
    scheme = re.match(r"sqlite(?:\+\w+)?:///(?=~)", text)
    start = scheme.end() if scheme else 0
    return text[:start] + os.path.expanduser(text[start:])  # noqa: PTH111 - Path.expanduser raises for an unknown user


def variable(name: str) -> str:
    """Return a variable of the environment, "" if it is not set.

    Blanks and line ends around it are left out, because files of variables (.env) that were written on Windows leave
    them to Docker, systemd and shells.
    """
    return os.environ.get(name, "").strip()


@dataclass(frozen=True, repr=False)
class Location:
    """A path or a URL. Messages, tables and logs may contain it, because its text hides the passwords of a URL.

    As a database, it is the path of a SQLite file or any SQLAlchemy URL.

    Attributes:
        real: the path, or the URL with its passwords, which opens it.
    """

    real: str

    @classmethod
    def of(cls, place: Place) -> Location:
        """Return the location that a user names, also with ~ for the home folder."""
        return place if isinstance(place, Location) else cls(from_home(os.fspath(place)))

    @classmethod
    def of_database(cls, url: URL) -> Location:
        """Return the location of an open database."""
        if url.get_backend_name() != "sqlite":
            return cls(url.set(drivername=url.get_backend_name()).render_as_string(hide_password=False))
        name = url.database or ":memory:"
        uri = name.removeprefix("file:")  # of a file that is opened as immutable
        return cls(name if uri == name else os.fsdecode(unquote_to_bytes(uri)))

    def __str__(self) -> str:
        # SQLAlchemy's `render_as_string` neither hides `?password=` nor keeps the other characters as they are.
        if not self.is_url:
            return self.real
        word = re.sub(r"\s", "_", self.real)
        shown = without_passwords(word)
        return self.real if shown == word else shown

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"

    def __truediv__(self, name: str) -> Location:
        """Return the location of a file in this folder."""
        return Location(f"{self.real}/{name}")

    @property
    def parent(self) -> Location:
        """The folder of a file."""
        return Location(self.real.rpartition("/")[0])

    def absolute(self) -> Location:
        """Return the location with an absolute path; a URL stays as it is."""
        return self if self.is_url else Location(str(Path(self.real).absolute()))

    @property
    def is_url(self) -> bool:
        """Whether it is a URL."""
        return "://" in self.real

    @property
    def url(self) -> URL:
        """The SQLAlchemy URL of a database, with its password.

        Raises:
            UsageError: the location is empty or malformed; the message shows only the scheme of a malformed URL.
        """
        from sqlalchemy.engine import URL, make_url
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError

        self._refuse_empty()
        if not self.is_url:
            return URL.create("sqlite", database=self.real)
        scheme = self.real.partition("://")[0]
        try:
            url = make_url(self.real)
            url.get_dialect()
        except (ArgumentError, NoSuchModuleError):
            raise UsageError(
                f"'{scheme}://...' is not a database: give a file, or a URL such as postgresql://user@host/name"
            ) from None
        except ValueError:  # the port is not a number; the message may contain a part of the password
            raise UsageError(
                f"the port in '{scheme}://...' is not a number: write postgresql://user@host:5432/name, and :, @ and / "
                "in a password as %3A, %40 and %2F"
            ) from None
        if str(self) != self.real and self._is_ambiguous(url):
            raise UsageError(
                f"the password in '{scheme}://...' has a reserved character: write @ as %40, & as %26, / as %2F and a "
                "space as %20"
            )
        # The default driver depends on SQLAlchemy's version; the extra installs psycopg.
        return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url

    def _refuse_empty(self) -> None:
        if not self.real.strip():
            raise UsageError(
                "the database has an empty name: give a file, such as `db='results.db'`, or leave `db` out"
            )

    def _is_ambiguous(self, url: URL) -> bool:
        """Return whether a reserved character splits a password, so that a part of it is another part of the URL."""
        query = self.real.partition("?")[2] if url.query else ""
        return bool(
            re.search(r"\s", self.real)
            or "@" in f"{url.host}{url.database}"
            or any(part and "=" not in part for part in query.split("&"))
        )

    @property
    def file(self) -> Path | None:
        """The SQLite file of a database; None for a server or memory.

        Raises:
            UsageError: as for `url`.
        """
        if self.is_url:
            url = self.url
            name = url.database if url.get_backend_name() == "sqlite" else None
        else:
            self._refuse_empty()
            name = self.real
        return Path(name) if name and name != ":memory:" else None

    @property
    def is_server(self) -> bool:
        """Whether processes of several machines may share this database."""
        return self.is_url and self.url.get_backend_name() == "postgresql"

    def is_same(self, other: Location) -> bool:
        """Return whether two locations are the same database."""
        if self.file is None or other.file is None:
            return self.file == other.file and self.url == other.url
        return self.file.exists() and other.file.exists() and self.file.samefile(other.file)


DEFAULT_DATABASE = Location("results.db")
"""The default database, unless DATABASE_VARIABLE names another one."""
SERVER_FILES = Location("orthobench.checkpoints")
"""The default folder of the checkpoints and weights of a database server's runs."""
Place = str | os.PathLike[str] | Location
"""A path or URL as the user gives it."""
