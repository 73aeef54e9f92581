"""The files that code from outside reads, on which its numbers depend as on its text.

The key of a run is known before anything is built, so it covers the text of a plugin, the files that its class names as
`data_files`, and those whose checksum is a setting. `Reads` notices any other file. Python tells its audit hooks of
each file that it opens, also for numpy, pandas and `torch.load`, and of databases of sqlite3 and libraries of ctypes.
Libraries that open files in C escape, for example h5py, pyarrow, safetensors and `torch.jit.load`.
"""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from orthobench.errors import UsageError
from orthobench.options.data_folder import data_folder
from orthobench.plugins.sources import INSTALLED_FOLDERS, Sources

_HERE = str(Path(__file__).parents[1]) + os.sep
"""The folder of orthobench's own code."""
_SYSTEM = (
    "/proc/",
    "/sys/",
    "/etc/",
    "/lib/",
    "/lib64/",
    "/usr/lib/",
    "/usr/lib64/",
    "/usr/local/lib/",
    "/usr/share/",
)
"""What files of the operating system begin with."""


def named_files(cls: Any, sources: Sources) -> list[Path]:
    """Return the files that a class names as its `data_files`, relative to the folder of its own file.

    A name may be a file, a folder with all files below it, or a pattern such as "data/*.npz".

    Raises:
        UsageError: there is no such file.
    """
    named, folder, files = getattr(cls, "data_files", ()), base_folder(sources), set[Path]()
    for name in (named,) if isinstance(named, (str, os.PathLike)) else named:
        path = folder / name
        found = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        if not found:
            with suppress(NotImplementedError, ValueError):  # an absolute name, or an empty one
                found = [each for each in folder.glob(str(name)) if each.is_file()]
        if not found:
            raise UsageError(f"data_files of {cls.__name__} names '{name}', and there is no such file in {folder}")
        files.update(found)
    return sorted(files)


def base_folder(sources: Sources) -> Path:
    """Return the folder of a plugin's own file; the current one for a class of a notebook or an installed package."""
    path = Path(sources.path).absolute()
    return path.parent if sources.path and path.is_file() else Path.cwd()


class Reads:
    """A `with` block in which code from outside runs, and the files that it reads there.

    Attributes:
        files: the files, each with the place in the code that read it first.
    """

    def __init__(self, code: Iterable[Sources], allowed: Iterable[Path] | None = None) -> None:
        """Prepare a block.

        Args:
            code: the code from outside. Python files that are neither installed nor a part of orthobench count too.
            allowed: the files that it may read, and folders of such files; None for any file. Another file cannot be
                opened, and the block ends with a UsageError.
        """
        self.code, self.files = tuple(code), dict[Path, str]()
        self.allowed = None if allowed is None else {Path(path).resolve() for path in allowed}
        texts = [each for each in self.code if each.path]
        self._texts = {(each.folder / name).resolve() for each in texts for name in each.contents}
        packages = {Path(name).parts[0].removesuffix(".py") for each in self.code for name in each.contents}
        self._packages = packages - {"torch", "orthobench"}
        self._written: set[Path] = set()
        self._refusal: UsageError | None = None
        self._entry: FrameType | None = None

    def __enter__(self) -> Self:
        self._entry, self.thread = sys._getframe(1), threading.get_ident()
        # Remembered because only a thread that begins within the block can belong to the code from outside.
        self._other_threads = set(sys._current_frames()) - {self.thread}
        _listen(self)
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _ACTIVE.remove(self)
        self._entry = None  # it refers to this object
        if self._refusal is not None and isinstance(error, (Exception, type(None))):
            raise self._refusal from None  # the code may have caught it

    def hear(self, name: str, flags: int) -> None:
        """Hear that a file is opened.

        Raises:
            UsageError: the code from outside opens it, and may not read it.
        """
        if threading.get_ident() in self._other_threads:
            return
        path = Path(os.path.realpath(name))
        if flags & (os.O_WRONLY | os.O_TRUNC | os.O_EXCL):
            self._written.add(path)
            return
        # A file that the code has written may be read again, because its content follows from the code.
        if path in self._written or path in self._texts or not path.is_file() or _belongs_to_programs(path):
            return
        if (place := self._reader(path)) is None:
            return
        self.files.setdefault(path, place)
        if self.allowed is not None and self.allowed.isdisjoint((path, *path.parents)):
            self._refusal = self._refusal or refusal(path, place, self.code)
            raise self._refusal

    def _reader(self, path: Path) -> str | None:
        """Return the place in the code from outside that opens a file now; None if other code does.

        A module that is imported opens its own files, and an error message shows lines of files.
        """
        frame: FrameType | None = sys._getframe(1)
        is_ours = False
        while frame is not None and frame is not self._entry:
            file = frame.f_code.co_filename
            if file.startswith("<frozen importlib") or frame.f_globals.get("__name__") == "linecache":
                return None
            if self._is_outside(file):
                is_checked = is_ours and data_folder().resolve() in path.parents
                return None if is_checked else f"{Path(file).name}:{frame.f_lineno}"
            is_ours = is_ours or (file.startswith(_HERE) and file != __file__)
            frame = frame.f_back
        return "a thread" if threading.get_ident() != self.thread and not is_ours else None

    def _is_outside(self, file: str) -> bool:
        """Return whether a file of Python code comes from outside."""
        parts = Path(file).parts
        for number, part in enumerate(parts[:-1]):
            if part in INSTALLED_FOLDERS:
                return parts[number + 1].removesuffix(".py") in self._packages
        return not file.startswith(("<", _HERE, *_standard_folders()))


def refusal(path: Path, place: str, code: Iterable[Sources]) -> UsageError:
    """Return the error for a file that a run's key does not cover."""
    sources = sorted(code, key=lambda each: Path(each.path).name != place.partition(":")[0])
    name = os.path.relpath(path, base_folder(sources[0]))
    name = str(path) if name.startswith(f"..{os.sep}..") else Path(name).as_posix()
    return UsageError(
        f"{place} reads {name}, and the key of the run does not depend on its content: write data_files = ('{name}',) "
        "in its class, or give the class a setting with a checksum (docs/plugins.md)"
    )


_ACTIVE: list[Reads] = []
_AT_IMPORT: dict[tuple[str, str], dict[Path, str]] = {}
"""The files that a plugin has read when its module was run, by the plugin's place and revision."""


def _identity(sources: Sources) -> tuple[str, str]:
    return str(Path(sources.path).absolute()) if sources.path else sources.distribution, sources.revision


def note_import(sources: Sources, reads: Reads) -> None:
    """Keep the files that a plugin has read when its module was run."""
    _AT_IMPORT.setdefault(_identity(sources), {}).update(reads.files)


def check_import(sources: Sources, named: Iterable[Path]) -> None:
    """Check that a plugin has read only files that its class names when its module was run.

    Raises:
        UsageError: it has read another file.
    """
    allowed = {path.resolve() for path in named}
    for path, place in _AT_IMPORT.get(_identity(sources), {}).items():
        if path not in allowed:
            raise refusal(path, place, (sources,))


@functools.cache
def _hook() -> None:
    """Have Python report the files that it opens, for the rest of the process, because no hook can be removed."""
    sys.addaudithook(_hear)


def _listen(reads: Reads) -> None:
    _hook()
    _ACTIVE.append(reads)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Tell the open blocks of this thread about a file, or those of all threads if it has none."""
    if not _ACTIVE or event not in ("open", "sqlite3.connect", "ctypes.dlopen"):
        return
    name, flags = arguments[0], arguments[2] if event == "open" else os.O_RDONLY
    if not isinstance(name, (str, bytes, os.PathLike)):  # the number of an open file
        return
    path = os.fsdecode(name)
    if event == "sqlite3.connect":
        path = path.removeprefix("file:").partition("?")[0]
    own = [reads for reads in _ACTIVE if reads.thread == threading.get_ident()]
    for reads in own or list(_ACTIVE):
        reads.hear(path, flags)


@functools.cache
def _standard_folders() -> tuple[str, ...]:
    """Return what the files of Python itself begin with."""
    return tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))


@functools.cache
def _program_folders() -> tuple[str, ...]:
    """Return what the files of programs begin with: of Python and of the system, their caches and their settings."""
    home, variables = Path.home(), ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR")
    folders = [home / name for name in (".cache", ".config", ".triton", "Library/Caches")]
    folders += [Path(os.environ[name]) for name in variables if os.environ.get(name)]
    folders += [Path(site.getusersitepackages())]
    return (
        *(f"{os.path.realpath(folder)}{os.sep}" for folder in folders),
        f"{os.path.realpath(tempfile.gettempdir())}{os.sep}torchinductor_",
        *(f"{os.path.realpath(folder)}{os.sep}" for folder in _standard_folders()),
        os.path.realpath(_HERE) + os.sep,
        *_SYSTEM,
    )


def _belongs_to_programs(path: Path) -> bool:
    """Return whether a file belongs to installed programs instead of the user."""
    parts = set(path.parts)
    return not parts.isdisjoint((*INSTALLED_FOLDERS, "__pycache__")) or str(path).startswith(_program_folders())
