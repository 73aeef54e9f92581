"""Compile the C back end on first use, into the user's cache folder.

Next to the shared object is a record: a SHA-256 of the object and the verdict, then the verdict of the comparison with
the reference. An object without a valid record is compiled again, so damaged code is never loaded. The record is not a
signature, so a folder to which another user can write is not used.

If a file does not compile, only the operations that need it are missing. The library names the file and the reason.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import json
import logging
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import filelock

from orthobench.files import UntrustedError, cache_folder, open_trusted, private_folder, written_by_others
from orthobench.location import from_home
from orthobench.recurrence.cpu.signatures import HEADERS, SOURCES, signature

_CODE = Path(__file__).parents[1]
_FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
_NATIVE = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler accepts is used
INSTRUCTIONS = "ORTHOBENCH_MARCH"
"""The environment variable that chooses another instruction set than the machine's, by its name for gcc's -march."""
_TRIAL = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).vector_length()"
_PENDING, _COMPARED = "comparing", "compared"  # the words of a verdict
_COMPILERS = 4  # at a time; more do not help, because the longest file alone determines the time
_ATTEMPTS = 2  # comparisons that may kill their process

_FOLDER = "recurrence"  # of the cache folder
_UNCOMPILED = "uncompiled"  # the name of the text in a library that has the files that did not compile
UNTRUSTED_FIX = "remove the folder, or set $ORTHOBENCH_CACHE to one that only you can write to"

_logger = logging.getLogger("orthobench.recurrence")


class BuildError(Exception):
    """There is no compiler, or it failed."""


class AbsentError(BuildError):
    """A function is missing because its file does not compile; the message gives the reason."""


class Library(ctypes.CDLL):
    """A shared object, whose functions have the signatures of the C files.

    A function becomes an attribute only with its signature, because other threads may call it from then on. Functions
    of files that did not compile raise `AbsentError` when they are called.
    """

    @functools.cached_property
    def uncompiled(self) -> dict[str, str]:
        """The reasons why files did not compile, by file name."""
        try:
            start = ctypes.c_char.in_dll(self, _UNCOMPILED)
        except ValueError:
            return {}
        reasons: dict[str, str] = json.loads(ctypes.string_at(ctypes.addressof(start)))
        return reasons

    @functools.cached_property
    def lanes(self) -> int:
        """The number of floats in a vector."""
        lanes: int = self.vector_length()
        return lanes

    def require(self, *names: str) -> None:
        """Check that the library has the functions that all operations need.

        Raises:
            AbsentError: the file of one of them did not compile.
            AttributeError: a function is missing.
        """
        for name in names:
            try:
                self[name]  # not the attribute, which may be a placeholder for an absent function
            except AttributeError:
                if self.uncompiled:
                    raise AbsentError(_reasons(self.uncompiled)) from None
                raise

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function: Any
        try:
            function = self[name]  # ctypes' own method would set the attribute at once
        except AttributeError:
            if not self.uncompiled:
                raise

            def function(*arguments: Any) -> Any:
                raise AbsentError(_reasons(self.uncompiled))
        else:
            declared = signature(name)
            function.restype = declared.result
            function.argtypes = [value.kind for value in declared.parameters.values()]
        setattr(self, name, function)
        return function


def distrust(cache: Path) -> str | None:
    """Return the reason why another user may have written the compiled kernels in a cache folder, or None."""
    folder = cache / _FOLDER
    return written_by_others(folder, (*folder.glob("*.so"), *folder.glob("*.sha256")))


@dataclass(frozen=True)
class CacheEntry:
    """A shared object, its record and their lock."""

    shared_object: Path

    @property
    def record(self) -> Path:
        return self.shared_object.with_suffix(".sha256")

    def lock(self) -> filelock.BaseFileLock:
        """The lock that a process holds while it writes a file of the entry."""
        return filelock.FileLock(self.shared_object.with_suffix(".lock"))

    def verdict(self) -> str | None:
        """Return the recorded verdict, or None if the object or its record is missing or damaged.

        Raises:
            OSError: a file cannot be read.
        """
        try:
            with open_trusted(self.shared_object) as code:
                return self._verdict(code)
        except FileNotFoundError:
            return None

    def _verdict(self, code: BinaryIO) -> str | None:
        """Return the recorded verdict on an opened object, or None if this is not the object of the record."""
        with open_trusted(self.record) as stream:
            digest, _, verdict = stream.read().partition(b"\n")
        return verdict.decode() if digest == _digest(code.read(), verdict) else None

    def load(self) -> Library | None:
        """Load the object that its record confirms; return None if there is none.

        The loader gets the opened file, so it loads the very bytes that were checked.

        Raises:
            OSError: a file cannot be read, or the object cannot be loaded.
            UntrustedError: another user could have written a file.
        """
        try:
            with open_trusted(self.shared_object) as code:
                if self._verdict(code) is None:
                    return None
                opened = Path(f"/proc/self/fd/{code.fileno()}")
                if not opened.exists():  # systems other than Linux
                    return Library(str(self.shared_object))
                kept = os.dup(code.fileno())
                try:  # The loader knows what it has loaded by its name, so this number stays in use.
                    return Library(f"/proc/self/fd/{kept}")
                except OSError:
                    os.close(kept)
                    raise
        except FileNotFoundError:
            return None

    def write(self, verdict: str) -> None:
        """Write the record. The caller holds the lock, and has built or checked the object.

        Raises:
            OSError: the record cannot be written.
        """
        partial = self.record.with_suffix(".sha256.partial")
        content = verdict.encode()
        partial.write_bytes(_digest(self.shared_object.read_bytes(), content) + b"\n" + content)
        _install(partial, self.record)


Comparisons = Callable[[], Mapping[str, Callable[[], bool]]]
"""Returns the comparisons of kernels with the reference, by name."""


@dataclass(frozen=True)
class Build:
    """A loaded shared object and its cache entry; None if the cache folder cannot be used."""

    library: Library
    entry: CacheEntry | None

    def failures(self, comparisons: Comparisons) -> frozenset[str]:
        """Return the names of the failed comparisons, from the record or else by running all of them.

        If they kill the process twice, all count as failed.

        Args:
            comparisons: returns the comparisons. If there is a record it is not called, because it imports every
                operation.
        """
        if self.entry is not None:
            try:
                return self._recorded_failures(self.entry, comparisons)
            except (OSError, UntrustedError) as error:
                _logger.debug("the verdict of the comparison is not recorded: %s", error)
        return _failures(comparisons)

    @staticmethod
    def _recorded_failures(entry: CacheEntry, comparisons: Comparisons) -> frozenset[str]:
        if (words := (entry.verdict() or "").split()) and words[0] == _COMPARED:
            return frozenset(words[1:])
        with entry.lock():
            verdict = entry.verdict()
            if verdict is None:  # the object has changed since it was loaded
                return _failures(comparisons)
            words = verdict.split()
            if words[:1] != [_COMPARED]:
                attempts = len(words)
                if attempts < _ATTEMPTS:
                    entry.write(" ".join([_PENDING] * (attempts + 1)))
                try:
                    names = _failures(comparisons) if attempts < _ATTEMPTS else frozenset(comparisons())
                except BaseException:  # Ctrl-C, for example, says nothing about the kernels
                    entry.write(verdict)
                    raise
                words = [_COMPARED, *sorted(names)]
                entry.write(" ".join(words))
        return frozenset(words[1:])


def _failures(comparisons: Comparisons) -> frozenset[str]:
    return frozenset(name for name, agrees in comparisons().items() if not agrees())


@functools.cache
def build(*extra_flags: str) -> Build:
    """Load the compiled back end, and build it if the cache lacks it; `extra_flags` are added to the command line.

    If the cache folder cannot be used or trusted, the library is built for this process only, with a warning.

    Raises:
        BuildError: it cannot be built or loaded.
    """
    compiler = find_compiler()
    name = f"{_key(compiler, extra_flags)}.so"
    try:
        entry = CacheEntry(cache_folder() / _FOLDER / name)
        return Build(_cached_library(compiler, extra_flags, entry), entry)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        _warn_of_no_cache(str(error), "set $ORTHOBENCH_CACHE to a folder that can be written")
    except UntrustedError as error:
        _warn_of_no_cache(f"{error}, and what they write there would run as you", UNTRUSTED_FIX)
    try:
        with tempfile.TemporaryDirectory(prefix="orthobench-", ignore_cleanup_errors=True) as folder:
            shared_object = Path(folder, name)
            _compile(compiler, extra_flags, shared_object)
            return Build(Library(str(shared_object)), None)
    except OSError as error:
        raise BuildError(str(error)) from error


def _warn_of_no_cache(reason: str, fix: str) -> None:
    _logger.warning(
        "the compiled CPU kernels cannot be cached (%s): each process compiles them again; %s; "
        "orthobench doctor shows the folder",
        *(reason, fix),
    )


def _cached_library(compiler: list[str], extra_flags: tuple[str, ...], entry: CacheEntry) -> Library:
    """Load the object of an entry; build it if it is missing, damaged or does not load.

    Raises:
        BuildError: it cannot be built or loaded.
        OSError: the folder cannot be read or written.
        UntrustedError: another user may have written the files.
    """
    is_loadable, folder = True, entry.shared_object.parent
    if reason := distrust(folder.parent):
        raise UntrustedError(reason)
    try:
        if (library := entry.load()) is not None:
            return library
    except OSError:
        is_loadable = False
    private_folder(folder)
    if reason := distrust(folder.parent):  # in a shared folder such as /tmp, somebody may have been faster
        raise UntrustedError(reason)
    with entry.lock():
        if not is_loadable or entry.verdict() is None:
            partial = entry.shared_object.with_suffix(".partial")
            try:
                _compile(compiler, extra_flags, partial)
                _install(partial, entry.shared_object)
            finally:
                partial.unlink(missing_ok=True)
            entry.write("")
        try:
            library = entry.load()
        except OSError as error:
            raise BuildError(str(error)) from error
        if library is None:
            raise BuildError(f"{entry.shared_object} has changed since it was compiled")
        return library


def _digest(content: bytes, verdict: bytes) -> bytes:
    return hashlib.sha256(content + b"\0" + verdict).hexdigest().encode()


def _install(partial: Path, target: Path) -> None:
    """Rename a file durably: content and new name survive a loss of power. Only its owner may write to it."""
    partial.chmod(partial.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))
    with partial.open("rb+") as stream:
        os.fsync(stream.fileno())
    partial.replace(target)
    if os.name == "posix":  # elsewhere folders cannot be opened
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def find_compiler() -> list[str]:
    """Return the command of the C compiler: $CC, cc, gcc or clang.

    Raises:
        BuildError: there is no compiler.
    """
    if configured := os.environ.get("CC"):
        try:
            command = [from_home(word) for word in shlex.split(configured)]
        except ValueError as error:
            raise BuildError(f"$CC is {configured!r}: {error}") from error
        if command and shutil.which(command[0]):
            return command
        raise BuildError(f"$CC is {configured!r}, which does not exist")
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise BuildError("no C compiler (cc, gcc or clang) found")


@functools.cache
def source_hash() -> str:
    """Return the hash of the recurrences' code, for CPU and CUDA, as 12 hexadecimal digits.

    It includes the Python code, which chooses a kernel and its variant.
    """
    digest = hashlib.sha256()
    for file in sorted(_CODE.rglob("*")):
        if file.suffix in (".c", ".cuh", ".h", ".py"):
            digest.update(f"{file.relative_to(_CODE).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _key(compiler: list[str], extra_flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for text in (
        *(path.read_text("utf-8") for path in (*SOURCES, *HEADERS)),
        *compiler,
        _compiler_version(*compiler),
        *_FLAGS,
        *itertools.chain(*_instruction_sets()),
        *extra_flags,
        _processor(),
    ):
        digest.update(text.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()[:32]


def _instruction_sets() -> tuple[tuple[str, ...], ...]:
    """Return the flags that choose the instruction set; the first that the compiler accepts are used."""
    name = os.environ.get(INSTRUCTIONS)
    return ((f"-march={name}",),) if name else _NATIVE


@functools.cache
def _compiler_version(*compiler: str) -> str:
    return _run(*compiler, "--version").stdout


@functools.cache
def _processor() -> str:
    """Describe what -march=native depends on, so that no machine loads objects with instructions that it lacks."""
    description = [platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    prefixes = ("model name", "flags", "Features", "CPU part")
    description += sorted({line for line in lines if line.startswith(prefixes)})
    return "\n".join(description)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command; bytes in its output that are not UTF-8 become U+FFFD."""
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run: {error.strerror or error}") from error


def _compile(compiler: list[str], extra_flags: tuple[str, ...], target: Path) -> None:
    """Compile the shared object, and load it once in another process, because a damaged object may kill its process.

    Raises:
        BuildError: the compiler fails, or its output does not load.
    """
    _logger.info("compiling the CPU kernels with %s (about ten seconds)", compiler[0])
    with tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as folder:
        builds: list[_Objects] = []
        for chosen in _instruction_sets():
            builds.append(_compile_all([*compiler, *_FLAGS, *chosen, *extra_flags], Path(folder, str(len(builds)))))
            if not builds[-1].failed:
                break
        failed = _link(min(builds, key=lambda each: len(each.failed)), target)
    if not target.is_file():
        raise BuildError(f"{compiler[0]} reported success but wrote no file")
    trial = _run(sys.executable, "-I", "-c", _TRIAL, str(target))
    if trial.returncode:
        lines = trial.stderr.strip().splitlines() or [f"the loading process ended with {trial.returncode}"]
        if failed:
            raise BuildError(_reasons(failed))
        raise BuildError(f"{compiler[0]} reported success but wrote no library that loads: {lines[-1][-500:]}")


@dataclass(frozen=True)
class _Objects:
    """The files that one command compiled.

    Attributes:
        command: the compiler with its flags.
        folder: the folder of the objects.
        compiled: the names of the files that compiled.
        failed: the compiler's messages about the other files.
    """

    command: list[str]
    folder: Path
    compiled: list[str]
    failed: dict[str, str]


def _compile_all(command: list[str], folder: Path) -> _Objects:
    """Compile each source in its own process."""
    folder.mkdir()

    def compile_one(source: Path) -> subprocess.CompletedProcess[str]:
        return _run(*command, f"-I{Path(__file__).parent}", "-c", str(source), "-o", str(folder / f"{source.stem}.o"))

    with ThreadPoolExecutor(min(_COMPILERS, os.cpu_count() or 1)) as pool:
        runs = dict(zip((source.name for source in SOURCES), pool.map(compile_one, SOURCES), strict=True))
    compiled = [name for name, run in runs.items() if not run.returncode]
    return _Objects(command, folder, compiled, {name: run.stderr for name, run in runs.items() if run.returncode})


def _link(objects: _Objects, target: Path) -> dict[str, str]:
    """Link the objects that do not depend on a file that failed to compile; return the reasons for all other files.

    Raises:
        BuildError: the linker fails, or no file compiled.
    """
    command, linked = objects.command, list(objects.compiled)
    if not linked:
        raise BuildError(f"{command[0]} failed: {_first_error(next(iter(objects.failed.values())))}")
    failed = {name: f"{_first_error(text)} ({command[0]})" for name, text in objects.failed.items()}
    while linked:
        files = [str(objects.folder / f"{Path(name).stem}.o") for name in linked]
        if failed:
            files += [
                _compiled_text(objects, json.dumps(failed)),
                *(["-Wl,-z,defs"] if sys.platform == "linux" else []),
            ]
        run = _run(*command, "-shared", *files, "-o", str(target), "-lm")
        if not run.returncode:
            return failed
        # The linker names the objects that need a missing function.
        needing = [name for name in linked if re.search(rf"(?<!\w){Path(name).stem}\.o\b", run.stderr)]
        if not failed or not needing:
            raise BuildError(f"{command[0]} failed: {run.stderr.strip()[-500:]}")
        failed |= dict.fromkeys(needing, "it needs a file that does not compile")
        linked = [name for name in linked if name not in needing]
    raise BuildError(_reasons(failed))


def _compiled_text(objects: _Objects, text: str) -> str:
    """Compile a file that contains only the text `uncompiled`; return the object."""
    source = objects.folder / "absent.c"
    source.write_text(f"const char {_UNCOMPILED}[] = {{{', '.join(map(str, (*text.encode(), 0)))}}};\n")
    output = source.with_suffix(".o")
    run = _run(*objects.command, "-c", str(source), "-o", str(output))
    if run.returncode:
        raise BuildError(f"{objects.command[0]} failed: {run.stderr.strip()[-500:]}")
    return str(output)


def _first_error(text: str) -> str:
    """Return the first line of the compiler's output that reports an error, without the folder."""
    lines = text.strip().splitlines() or ["the compiler says nothing"]
    line = next((line for line in lines if "error" in line), lines[-1])
    return re.sub(r"\S*[/\\](?=\w+\.[ch]:)", "", line)[:300]


def _reasons(failed: Mapping[str, str]) -> str:
    return "; ".join(f"{name} does not compile: {reason}" for name, reason in failed.items())
