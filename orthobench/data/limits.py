"""Limit the bytes that an import reads, because a small archive can unpack to more than disk or memory can hold."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from orthobench.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import SupportsRead


class LimitedReader:
    """A stream of bytes that raises an error after `limit` bytes.

    Args:
        name: the name of the stream in the error message.
    """

    def __init__(self, stream: SupportsRead[bytes], limit: int, name: object) -> None:
        self.stream, self.limit, self.name = stream, limit, name
        self.bytes_read = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or all; fewer at the end.

        Raises:
            UsageError: the stream has more than `limit` bytes.
        """
        left = self.limit + 1 - self.bytes_read
        content = self.stream.read(left if size < 0 else min(size, left))
        self.bytes_read += len(content)
        if self.bytes_read > self.limit:
            raise UsageError(f"{self.name} has more than {self.limit} bytes, unlike the real data: get another copy")
        return content


def copy_limited(stream: SupportsRead[bytes], target: Path, limit: int, name: object) -> int:
    """Copy a stream of at most `limit` bytes to a file, and return the number of bytes.

    Raises:
        UsageError: the stream has more bytes.
    """
    limited = LimitedReader(stream, limit, name)
    with target.open("wb") as copy:
        shutil.copyfileobj(limited, copy)
    return limited.bytes_read
