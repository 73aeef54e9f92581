"""Compile the text of a cell, once for each text, compiler's flags and version of the kernels."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from orthobench.recurrence.compiler.expressions import UnfitError
from orthobench.recurrence.cpu import c_sources, call_c, library, signatures
from orthobench.system.cache import cache_folder, is_private, private_folder
from orthobench.system.location import variable

_FIX = "install one, such as apt install gcc, or pip install 'orthobench[cells]'"
_SECONDS = 120  # that a compiler has; it takes half a second, and zig five at its first use


def compiler() -> list[str]:
    """Return the command of the C compiler: $CC, cc, or else that of the package ziglang.

    Raises:
        UnfitError: there is none.
    """
    if command := variable("CC"):
        return shlex.split(command)
    if found := shutil.which("cc"):
        return [found]
    if importlib.util.find_spec("ziglang"):
        # zig allows wide vectors only by the name of an instruction set, not by its parts.
        name = library.variant()
        return [sys.executable, "-m", "ziglang", "cc", *([f"-march={name.replace('-', '_')}"] if "x86" in name else [])]
    raise UnfitError(f"there is no C compiler: {_FIX}")


def load(template: str) -> str:
    """Compile a cell, load it next to the kernels, and return its name.

    Args:
        template: the text of the cell, called CELL.

    Raises:
        UnfitError: it cannot be compiled or loaded on this machine.
    """
    if reason := call_c.missing():
        raise UnfitError(reason)
    flags = [*c_sources.FLAGS, *c_sources.variants()[library.variant()].values(), f"-I{library.FOLDER}"]
    # Processors of different kinds may share a cache, and another $CC is what mends a wrong kernel.
    parts = (template, library.variant(), *flags[:-1], variable("CC") or "", c_sources.digest())
    name = "cell_" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    with _lock:
        if name not in _loaded:
            _load(name, template, flags)
            _loaded.add(name)
    return name


_loaded: set[str] = set()
_lock = threading.Lock()


def _load(name: str, template: str, flags: list[str]) -> None:
    text = template.replace("CELL", name)
    file = _folder() / f"{name}.so"
    is_kept = file.exists()
    if not is_kept:
        _compile(text, file, flags)
    try:
        shared = ctypes.CDLL(str(file))
    except OSError as error:
        if not is_kept:
            raise UnfitError(f"its kernel does not load: {error}") from error
        file.unlink(missing_ok=True)  # a full disk, for example, has damaged it
        _load(name, template, flags)
        return
    shared.take_driver.argtypes = [ctypes.c_int64]
    shared.take_driver(call_c.kernels().driver_address())
    signatures.add(text)
    call_c.kernels().add(shared, (f"{name}_forward", f"{name}_backward"))


def _folder() -> Path:
    """Return the folder of compiled cells in the user's cache.

    Raises:
        UnfitError: there is none, or other users could put programs there.
    """
    try:
        folder = cache_folder() / "cells"
        private_folder(folder)
        is_safe = is_private(folder)
    except (OSError, RuntimeError) as error:
        raise UnfitError(f"there is no cache folder for its kernel: {error}") from error
    if not is_safe:
        raise UnfitError(f"other users can write to {folder}: chmod 700 {folder}, or set $ORTHOBENCH_CACHE")
    return folder


def _compile(text: str, file: Path, flags: list[str]) -> None:
    try:
        # A folder of its own, because other processes, also of other machines, may compile the same text now.
        with tempfile.TemporaryDirectory(dir=file.parent) as work:
            source, partial = Path(work) / "cell.c", Path(work) / file.name
            source.write_text(text, encoding="utf-8")
            command = [*compiler(), *flags, "-shared", str(source), "-o", str(partial), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
            if done.returncode:
                lines = [each for each in done.stderr.splitlines() if "error" in each] or [
                    *done.stderr.splitlines(),
                    "",
                ]
                # Without the folder, because the reason is stored with a run, and runs are published.
                reason = lines[0].replace(f"{work}/", "").strip()
                raise UnfitError(f"{Path(command[0]).name} does not compile its kernel: {reason}")
            partial.replace(file)  # at once, because another process may load it
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnfitError(f"its kernel cannot be compiled: {error}") from error
