"""Read pickles of plain values without running their code.

A pickle is a program that may call any Python function. This reader accepts only text, bytes, numbers, lists, dicts and
NumPy arrays of bytes; it creates the arrays itself and calls nothing else.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

BYTE_TYPES = ("u1", "|u1", "uint8")


class PlainArray:
    """A pickled array of unsigned bytes in row order: its shape and its bytes."""

    def __init__(self, *_: object) -> None:
        self.shape: tuple[int, ...] = (0,)
        self.content = b""

    def __setstate__(self, state: tuple[int, tuple[int, ...], _ByteType, bool, bytes | str]) -> None:
        """Take over NumPy's state of an array: version, shape, type, column order, bytes (text from Python 2)."""
        _, self.shape, kind, in_columns, content = state
        self.content = content.encode("latin1") if isinstance(content, str) else bytes(content)
        rows_of_bytes = isinstance(kind, _ByteType) and not in_columns and all(type(size) is int for size in self.shape)
        if not rows_of_bytes or math.prod(self.shape) != len(self.content):
            raise pickle.UnpicklingError("the array has no rows of bytes")


class _ByteType:
    """NumPy's type of unsigned bytes."""

    def __init__(self, name: str, *_: object) -> None:
        if name not in BYTE_TYPES:
            raise pickle.UnpicklingError(f"the array has numbers of type {name}")

    def __setstate__(self, state: object) -> None:
        """Ignore the byte order."""


def _from_buffer(content: bytes, kind: _ByteType, shape: tuple[int, ...], order: str) -> PlainArray:
    array = PlainArray()
    array.__setstate__((1, shape, kind, order != "C", content))
    return array


def _encode(text: str, encoding: str) -> bytes:
    """Return bytes that a pickle of protocol 2 stores as text."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are encoded as {encoding}")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): PlainArray,
    ("numpy", "dtype"): _ByteType,
    ("_codecs", "encode"): _encode,
}
for _package in ("numpy.core", "numpy._core"):
    _KNOWN[f"{_package}.multiarray", "_reconstruct"] = PlainArray
    _KNOWN[f"{_package}.numeric", "_frombuffer"] = _from_buffer


class _PlainUnpickler(pickle._Unpickler):
    """The unpickler in Python, because the one in C allocates as much memory as the file asks for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")
        return _KNOWN[module, name]


def load_plain(file: Path) -> Any:
    """Return the content of a pickle of plain values.

    Raises:
        UnpicklingError: the pickle has values of other types.
        Exception: the file is cut off or is not a pickle.
    """
    with file.open("rb") as stream:
        return _PlainUnpickler(stream, encoding="latin1").load()
