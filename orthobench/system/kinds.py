"""The kinds of files that the product writes, so that no other file is overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orthobench.errors import UsageError
from orthobench.system.files import is_stream

START = 4096
"""Bytes at the start of a file that show its kind."""


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        name: the kind's name in messages.
        suffix: the usual suffix of the file's name.
        is_own: a function that decides whether a file has this kind, from its path and the start of its content. Text
            without a distinctive start is recognised by its suffix.
    """

    name: str
    suffix: str
    is_own: Callable[[Path, bytes], bool]


def _begins_with(*marks: bytes) -> Callable[[Path, bytes], bool]:
    return lambda file, start: start.lstrip().lower().startswith(marks)


def _is_text_named(*suffixes: str) -> Callable[[Path, bytes], bool]:
    return lambda file, start: file.suffix.lower() in (*suffixes, ".txt", "") and b"\0" not in start


def _is_svg(file: Path, start: bytes) -> bool:
    return _begins_with(b"<svg", b"<?xml")(file, start) and b"<svg" in start


def _is_xml(file: Path, start: bytes) -> bool:
    return _begins_with(b"<?xml", b"<testsuite")(file, start) and not _is_svg(file, start)


def _is_json(file: Path, start: bytes) -> bool:
    try:
        json.loads(file.read_text("utf-8"))
    except ValueError:
        return False
    return True


def _is_safetensors(file: Path, start: bytes) -> bool:
    return start[8:9] == b"{"  # after the length of the header


KINDS = {
    kind.name: kind
    for kind in (
        FileKind("HTML", ".html", _begins_with(b"<!doctype html", b"<html")),
        FileKind("XML", ".xml", _is_xml),
        FileKind("SVG", ".svg", _is_svg),
        FileKind("PNG", ".png", _begins_with(b"\x89png")),
        FileKind("PDF", ".pdf", _begins_with(b"%pdf")),
        FileKind("Parquet", ".parquet", _begins_with(b"par1")),
        FileKind("SQLite", ".sqlite", _begins_with(b"sqlite format 3")),
        FileKind("JSON", ".json", _is_json),
        FileKind("CSV", ".csv", _is_text_named(".csv")),
        FileKind("Markdown", ".md", _is_text_named(".md", ".markdown")),
        FileKind("safetensors", ".safetensors", _is_safetensors),
        FileKind("ONNX", ".onnx", _begins_with(b"\x08")),
        FileKind("PT2", ".pt2", _begins_with(b"pk\x03\x04")),
        FileKind("LaTeX", ".tex", _is_text_named(".tex")),
    )
}
"""The kinds of files that commands write, by name."""


def refuse_file(folder: Path) -> None:
    """Refuse a file, or a name with the suffix of a file, where a folder is expected. A folder may have any name.

    Raises:
        UsageError: the path is a file, which stays as it is, or a new folder would be named like a file.
    """
    if folder.is_dir():
        return
    if folder.exists():
        raise UsageError(f"{folder} is a file and is left as it is: name a folder")
    if folder.suffix.lower() in {".db", ".py", *(kind.suffix for kind in KINDS.values())}:
        raise UsageError(
            f"{folder} is named as a file, but would be a folder: name a folder, such as {folder.with_suffix('')}"
        )


def refuse_other_kinds(file: Path, kind: str) -> None:
    """Refuse to replace an existing file of another kind. An empty file may be replaced.

    Args:
        kind: a name in `KINDS`.

    Raises:
        UsageError: the path is a folder, or its name or content has another kind; it stays as it is.
    """
    own = KINDS[kind]
    if file.is_dir():
        raise UsageError(f"{file} is a folder: name a file in it, such as {file / f'report{own.suffix}'}")
    if not file.exists():
        others = {each.suffix: each.name for each in KINDS.values()}
        if (named := others.get(file.suffix.lower(), kind)) != kind:
            raise UsageError(f"{file} is named as {named}, but would be {kind}: name it {file.with_suffix(own.suffix)}")
        return
    if is_stream(file):
        return
    try:
        with file.open("rb") as stream:
            start = stream.read(START)
        is_own = not start or own.is_own(file, start)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}: name another file") from error
    if not is_own:
        raise UsageError(
            f"refusing to overwrite {file}: it is not a file of type {own.name}; name another file, such as "
            f"{file.with_suffix('')}-new{own.suffix}"
        )
