"""The source code of plugins that are not built in, which is part of the identity of a run and stored with the run.

For a plugin file, it includes the modules next to it that it imports. For an installed plugin, it includes all modules
of its distribution.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from orthobench.errors import UsageError
from orthobench.plugins.loading import installed_elsewhere, location_of
from orthobench.system.visible_files import visible_files

INSTALLED_FOLDERS = ("site-packages", "dist-packages")
"""Names of folders that contain the modules of many distributions."""


@dataclass(frozen=True)
class Sources:
    """The Python files of a plugin that is not built in.

    Attributes:
        contents: the files by path relative to the plugin's folder, the plugin file first.
        path: the plugin file as the user gave it; empty for an installed plugin.
        distribution: the name of the installed distribution; empty for a plugin file.
        version: the version of the distribution.
        layer: the name of the layer that they define (see `plugins/layers.py`); empty for a plugin.
        data: the checksum of the files that the class names as its `data_files`; empty without any.
    """

    contents: Mapping[str, bytes]
    path: str = ""
    distribution: str = ""
    version: str = ""
    layer: str = ""
    data: str = ""

    @property
    def _first(self) -> str:
        return next(iter(self.contents))

    @property
    def origin(self) -> str:
        """The path of the file, or the name and version of the distribution."""
        return self.path or f"{self.distribution} {self.version}".strip()

    @property
    def folder(self) -> Path:
        """The absolute path of the folder to which the paths of the contents are relative."""
        return Path(self.path).absolute().parents[len(PurePosixPath(self._first).parts) - 1]

    @property
    def main(self) -> bytes:
        """The content of the plugin file."""
        return self.contents[self._first]

    @property
    def imported(self) -> dict[str, bytes]:
        """The contents of the modules next to the plugin file that it imports."""
        return {name: content for name, content in self.contents.items() if name != self._first}

    @property
    def imported_names(self) -> list[str]:
        """The names of the modules and packages next to the plugin file that it imports."""
        return sorted({PurePosixPath(name).parts[0].removesuffix(".py") for name in self.imported})

    @property
    def revision(self) -> str:
        """The hash of the sources and of the data, which becomes part of the plugin's version: 8 hexadecimal digits."""
        if self.path and len(self.contents) == 1 and not self.data:
            (content,) = self.contents.values()
            return hash_of(content)[:8]
        identity = [self.distribution, self.version, self._hashes(), *([self.data] if self.data else [])]
        return hash_of(json.dumps(identity, sort_keys=True).encode())[:8]

    def facts(self) -> dict[str, Any]:
        """Return the entry for the environment of a run: origin, revision, the hashes of files and data."""
        installed = {"distribution": self.distribution, "version": self.version}
        place = {"path": self.path} if self.path else installed
        place |= {"layer": self.layer} if self.layer else {}
        place |= {"data": self.data} if self.data else {}
        return {**place, "revision": self.revision, "files": self._hashes()}

    def by_hash(self) -> dict[str, bytes]:
        """Return the contents of the files by their SHA-256."""
        return {hash_of(content): content for content in self.contents.values()}

    def _hashes(self) -> dict[str, str]:
        return {name: hash_of(content) for name, content in self.contents.items()}


def hash_of(content: bytes) -> str:
    """Compute the SHA-256 of a file's content in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def read_plugin_file(file: Path) -> Sources:
    """Read a plugin file, and the modules next to it that it imports.

    Raises:
        UsageError: a file cannot be read, or an installed module has the same name as one of these modules.
    """
    try:
        contents = _with_imports(file.absolute().parent, {file.name: file.read_bytes()})
    except OSError as error:
        raise UsageError(f"plugin file {file} cannot be read: {error.strerror}") from error
    sources = Sources(contents, path=str(file))
    for name in sources.imported_names:
        if other := installed_elsewhere(name, sources.folder):
            raise UsageError(
                f"plugin file {file} imports {name}, which is both next to it and in {other}: rename the one next to it"
            )
    return sources


def named_files(cls: Any, sources: Sources) -> list[Path]:
    """Return the files that a class names as its `data_files`, relative to the folder of its own file.

    A class of a notebook or of an installed package names them relative to the current folder. A name may be a file, a
    folder with all visible files below it, or a pattern such as "data/*.npz", which matches no hidden file.

    Raises:
        UsageError: there is no such file, or a folder has a link to another one.
    """
    file = Path(sources.path).absolute()
    folder = file.parent if sources.path and file.is_file() else Path.cwd()
    named, files = getattr(cls, "data_files", ()), set[Path]()
    for name in (named,) if isinstance(named, (str, os.PathLike)) else named:
        path = folder / name
        found = [path] if path.is_file() else list(visible_files(path)) if path.is_dir() else []
        if not found:
            with suppress(NotImplementedError, ValueError):  # an absolute name, or an empty one
                found = [each for each in folder.glob(str(name)) if each.is_file() and not _is_hidden(each, folder)]
        if not found:
            raise UsageError(f"data_files of {cls.__name__} names '{name}', and there is no such file in {folder}")
        files.update(found)
    return sorted(files)


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


_AT_IMPORT: WeakKeyDictionary[ModuleType, Sources] = WeakKeyDictionary()
"""The files of an imported module's distribution at the import, because later edits do not change code in memory."""


def installed_sources(point: EntryPoint) -> Sources:
    """Return the sources of an entry point whose module has been imported.

    Raises:
        OSError: a file cannot be read.
    """
    module = sys.modules[point.module]
    if module not in _AT_IMPORT:
        assert point.dist is not None
        contents = _recorded(point.dist) or _package_files(point.module)
        _AT_IMPORT[module] = Sources(contents, distribution=point.dist.name, version=point.dist.version)
    return _AT_IMPORT[module]


def _recorded(distribution: Distribution) -> dict[str, bytes]:
    """Return the modules in the file list of a distribution; nothing if it is installed in editable mode."""
    direct_url = json.loads(distribution.read_text("direct_url.json") or "{}")
    if direct_url.get("dir_info", {}).get("editable"):
        return {}
    listed = [file for file in distribution.files or () if file.suffix == ".py" and ".." not in file.parts]
    located = {file.as_posix(): Path(str(file.locate())) for file in listed}
    return {name: path.read_bytes() for name, path in sorted(located.items()) if path.is_file()}


def _package_files(module: str) -> dict[str, bytes]:
    """Return the files of a module's package, and the modules next to it that it imports."""
    name, root = location_of(module) or ("", Path())
    if not root.is_file():
        return {}
    folder = root.parent.parent if root.name == "__init__.py" else root.parent
    contents = dict(_files_of(folder, name))
    return contents if folder.name in INSTALLED_FOLDERS else _with_imports(folder, contents)


def _with_imports(folder: Path, contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files, and the modules of their folder that they import directly or indirectly."""
    reached, waiting = dict(contents), list(contents.values())
    seen = {"orthobench", *sys.stdlib_module_names}
    while waiting:
        for name in sorted({name.partition(".")[0] for name in imports_of(waiting.pop())} - seen):
            seen.add(name)
            for path, content in _files_of(folder, name):
                if path not in reached:
                    reached[path] = content
                    waiting.append(content)
    return {name: reached[name] for name in (*contents, *sorted(reached.keys() - contents.keys()))}


def imports_of(content: bytes, package: str | None = None) -> Iterator[str]:
    """Yield the full names that a file imports, at its top or inside a function; some of them are names in modules.

    Args:
        package: the package of the file; None to leave out relative imports.
    """
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):  # importing the file will report it
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (package is not None or not node.level):
            parts = (package or "").split(".")
            parents = parts[: len(parts) + 1 - node.level] if node.level else []
            base = ".".join(filter(None, [*parents, node.module or ""]))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _files_of(folder: Path, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the relative path and the content of each file of a module or package in a folder."""
    package = folder / name
    files: Iterable[Path] = [folder / f"{name}.py"]
    if (package / "__init__.py").is_file() or (any(package.rglob("*.py")) and not installed_elsewhere(name, folder)):
        files = sorted(package.rglob("*.py"))
    for file in files:
        if file.is_file():
            yield file.relative_to(folder).as_posix(), file.read_bytes()
