"""Compile the C back end on first use, into the user's cache folder."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import filelock

_SOURCE = Path(__file__).with_name("cpu.c")
_HEADER = Path(__file__).with_name("vectors.h")
_FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_NATIVE = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler accepts is used

_logger = logging.getLogger("orthobench.recurrence")


class BuildError(Exception):
    """There is no compiler, or it failed."""


def cache_folder() -> Path:
    """Return $ORTHOBENCH_CACHE, or the user's cache folder."""
    if folder := os.environ.get("ORTHOBENCH_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orthobench"


@functools.cache
def library(*extra_flags: str) -> ctypes.CDLL:
    """Load the compiled back end, and build it if the cache lacks it; `extra_flags` end the command line.

    Raises:
        BuildError: it cannot be built or loaded.
    """
    try:
        return ctypes.CDLL(str(compiled(*extra_flags)))
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        raise BuildError(str(error)) from error


def compiled(*extra_flags: str) -> Path:
    """Return the path of the shared object for this source, compiler and processor; build it if it is missing."""
    compiler = _compiler()
    target = cache_folder() / "recurrence" / f"{_key(compiler, extra_flags)}.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(target.with_suffix(".lock")):
        if not target.exists():
            _logger.info("compiling the CPU kernels with %s, once for this machine (about two seconds)", compiler[0])
            _build(compiler, extra_flags, target)
    return target


def _compiler() -> list[str]:
    if configured := os.environ.get("CC"):
        command = shlex.split(configured)
        if command and shutil.which(command[0]):
            return command
        raise BuildError(f"$CC is {configured!r}, which does not exist")
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise BuildError("no C compiler (cc, gcc or clang) found")


def _key(compiler: list[str], extra_flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for text in (
        _SOURCE.read_text(),
        _HEADER.read_text(),
        *compiler,
        _compiler_version(*compiler),
        *_FLAGS,
        *extra_flags,
        _processor(),
    ):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:32]


@functools.cache
def _compiler_version(*compiler: str) -> str:
    return subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout


@functools.cache
def _processor() -> str:
    """Describe what -march=native depends on: objects must not travel to a machine that lacks an instruction."""
    description = [platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    prefixes = ("model name", "flags", "Features", "CPU part")
    description += sorted({line for line in lines if line.startswith(prefixes)})
    return "\n".join(description)


def _build(compiler: list[str], extra_flags: tuple[str, ...], target: Path) -> None:
    descriptor, partial = tempfile.mkstemp(dir=target.parent, suffix=".partial")
    os.close(descriptor)
    try:
        for native in _NATIVE:
            command = [*compiler, *_FLAGS, *native, *extra_flags, str(_SOURCE), "-o", partial, "-lm"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode == 0:
                Path(partial).replace(target)
                return
        raise BuildError(f"{compiler[0]} failed: {run.stderr.strip()[-500:]}")
    finally:
        Path(partial).unlink(missing_ok=True)
