"""Download files: resume after an interruption, try several mirrors and compare the MD5.

We do not use the library pooch because it neither resumes a download, nor tries a second mirror, nor stops a server
that sends too much.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from ssl import SSLError
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from orthobench.errors import UsageError
from orthobench.system.files import make_folder
from orthobench.version import __version__

CHUNK = 1 << 16
TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Download:
    """A file with its mirrors, its MD5 and its size in bytes."""

    name: str
    urls: tuple[str, ...]
    md5: str
    size: int


def fetch(download: Download, folder: Path, report: Callable[[str, int, int], None]) -> Path:
    """Download a file into a folder unless it exists; an interrupted download resumes.

    Raises:
        UsageError: no mirror has the file (the message lists the reasons), or the folder cannot be written.
    """
    whole, part = folder / download.name, folder / f"{download.name}.part"
    reasons = []
    try:
        make_folder(folder)
        if whole.exists() and md5(whole) == download.md5:
            return whole
        for url in download.urls:
            try:
                _continue(url, part, download, report)
            except HTTPError as error:
                error.close()
                reasons.append(f"{url}: HTTP {error.code}")
                continue
            except (URLError, HTTPException, ConnectionError, TimeoutError, SSLError) as error:
                cause = error.reason if isinstance(error, URLError) else error
                reasons.append(f"{url}: {type(cause).__name__}")
                continue
            if md5(part) == download.md5:
                part.replace(whole)
                return whole
            part.unlink()
            reasons.append(f"{url}: the checksum of the received file differs")
    except OSError as error:
        raise UsageError(f"{error.filename or folder} cannot be written: {error.strerror or error}") from error
    raise UsageError(f"{download.name} cannot be downloaded; {'; '.join(reasons)}")


def _continue(url: str, part: Path, download: Download, report: Callable[[str, int, int], None]) -> None:
    """Append the remaining bytes to a partial file, or start over if the server ignores ranges.

    Raises:
        URLError, HTTPException, ConnectionError, TimeoutError, SSLError: the server has no answer or breaks off.
    """
    have = part.stat().st_size if part.exists() else 0
    if have >= download.size:
        return
    # Not compressed, because a range of a compressed answer is none of the file.
    headers = {"Range": f"bytes={have}-", "Accept-Encoding": "identity", "User-Agent": f"orthobench/{__version__}"}
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as answer:
        have = have if answer.status == HTTPStatus.PARTIAL_CONTENT else 0
        with part.open("ab" if have else "wb") as stream:
            while chunk := answer.read(CHUNK):
                stream.write(chunk)
                have += len(chunk)
                report(download.name, have, download.size)
                if have > download.size:  # not our file and perhaps endless; the checksum will differ
                    return
        if answer.length:  # `read` ends without an error if the connection does
            raise IncompleteRead(b"", answer.length)


def md5(path: Path) -> str:
    """Return the MD5 of a file in hexadecimal; the authors of the data sets publish MD5 checksums."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
