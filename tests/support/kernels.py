"""Libraries of the C kernels that only tests use: with other flags, or from other compilers."""

from __future__ import annotations

import functools
import hashlib
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
from setuptools.errors import CompileError

import setup
from orthobench.recurrence.cpu import c_sources
from orthobench.recurrence.cpu.library import Library, usable_variants

FOLDER = Path(setup.__file__).parent / "build" / "tests"
"""Libraries stay here between the sessions, and only what has changed is compiled again."""


def flags(variant: str) -> tuple[str, ...]:
    """Return the compiler's flags for one of this machine's instruction sets."""
    return tuple(c_sources.variants()[variant].values())


@functools.cache
def build(compiler: str, *flags: str) -> Path:
    """Build the library with a compiler and additional flags, or find that of an earlier test; return its file."""
    folder = FOLDER / hashlib.sha256(shlex.join([compiler, *flags]).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "kernels.so"
    with filelock.FileLock(folder / "lock"), ThreadPoolExecutor(2) as pool:
        # Not by loading it, because a library that a sanitizer watches would end this process.
        if not file.exists() or c_sources.digest().encode() not in file.read_bytes():
            setup.build(file, folder, pool, shlex.split(compiler), flags)
    return file


def library(*extra: str, variant: str | None = None) -> Library:
    """Load a library that is built like that of an instruction set, the widest by default, with additional flags."""
    return Library(str(build(shlex.join(setup.compiler()), *flags(variant or usable_variants()[0]), *extra)))


def compile_all(folder: Path, compiler: Sequence[str]) -> list[Path]:
    """Compile each C file with a compiler and its flags; return the objects.

    Raises:
        AssertionError: a file does not compile.
    """
    try:
        with ThreadPoolExecutor(2) as pool:
            return setup.compile_all(folder, pool, compiler, [])
    except CompileError as error:
        raise AssertionError(str(error)) from error
