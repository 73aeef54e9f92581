"""Download files: resume after an interruption, try several mirrors and compare the MD5.

We do not use the library pooch because it neither resumes a download, nor tries a second mirror, nor stops a server
that sends too much.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orthobench.errors import UsageError
from orthobench.system.files import make_folder

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
    import requests

    whole, part = folder / download.name, folder / f"{download.name}.part"
    reasons = []
    try:
        make_folder(folder)
        if whole.exists() and md5(whole) == download.md5:
            return whole
        for url in download.urls:
            try:
                _continue(url, part, download, report)
            except requests.RequestException as error:
                status = error.response is not None and error.response.status_code
                reasons.append(f"{url}: {f'HTTP {status}' if status else type(error).__name__}")
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
    """Append the remaining bytes to a partial file, or start over if the server ignores ranges."""
    import requests

    have = part.stat().st_size if part.exists() else 0
    if have >= download.size:
        return
    # Not compressed, because a range of a compressed answer is none of the file.
    headers = {"Range": f"bytes={have}-", "Accept-Encoding": "identity"}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as answer:
        answer.raise_for_status()
        have = have if answer.status_code == requests.codes.partial_content else 0
        with part.open("ab" if have else "wb") as stream:
            for chunk in answer.iter_content(CHUNK):
                stream.write(chunk)
                have += len(chunk)
                report(download.name, have, download.size)
                if have > download.size:  # not our file and perhaps endless; the checksum will differ
                    return


def md5(path: Path) -> str:
    """Return the MD5 of a file in hexadecimal; the authors of the data sets publish MD5 checksums."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
