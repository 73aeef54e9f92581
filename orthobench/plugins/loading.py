"""Import modules from source code in memory, so that every machine runs exactly the code that was hashed."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

LOCAL = "orthobench_local"
"""The package to which the modules of plugin files belong."""


PathState = tuple[tuple[str, int], ...]


def path_state() -> PathState:
    """Return the folders of `sys.path` with the time of the last change, which an installation changes."""
    folders = [folder for each in sys.path if (folder := Path(each).absolute()).exists()]
    return tuple((str(folder), folder.stat().st_mtime_ns) for folder in folders)


class MemoryLoader(importlib.abc.SourceLoader):
    """A loader of one module. It ignores compiled files, because their time stamps may be too coarse to detect edits.

    Args:
        path: the file of the module, which need not exist on this machine.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content = path, content

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: str) -> bytes:
        return self.content


class PluginFinder:
    """A finder of the modules next to plugin files, by full name.

    A folder without `__init__.py` is a namespace package, for which the path is None.
    """

    def __init__(self) -> None:
        self.modules: dict[str, tuple[Path, bytes] | None] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module next to a plugin file; None for any other module."""
        if name not in self.modules:
            return None
        module = self.modules[name]
        return ModuleSpec(name, None, is_package=True) if module is None else spec_in_memory(name, *module)


_FINDER = PluginFinder()


def spec_in_memory(name: str, path: Path, content: bytes) -> ModuleSpec:
    """Return the spec of a module whose source code is in memory."""
    spec = importlib.util.spec_from_file_location(name, path, loader=MemoryLoader(path, content))
    assert spec is not None
    return spec


def serve_modules(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Make the modules of a folder, given by relative path, importable; already imported copies are forgotten."""
    if _FINDER not in sys.meta_path:
        # First, because the folder may be on the path as well, and its file may have changed since it was hashed.
        sys.meta_path.insert(0, _FINDER)
    split = [(Path(path).with_suffix("").parts, folder / path, content) for path, content in contents.items()]
    for name in {parts[0] for parts, _, _ in split}:
        for modules in (_FINDER.modules, sys.modules):
            for known in [known for known in modules if known == name or known.startswith(f"{name}.")]:
                del modules[known]
    for parts, path, content in split:
        for length in range(1, len(parts)):
            _FINDER.modules.setdefault(".".join(parts[:length]), None)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        _FINDER.modules[name] = (path, content)


def run_file(path: Path, content: bytes) -> ModuleType:
    """Run a plugin file as a module of the package LOCAL."""
    name = f"{LOCAL}.{path.stem}"
    spec = spec_in_memory(name, path.absolute(), content)
    module = importlib.util.module_from_spec(spec)
    # Before the code runs, because `dataclass` looks up the module of its class there.
    sys.modules[name] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def installed_elsewhere(name: str, folder: Path) -> str:
    """Return the location of an importable module of this name outside the folder; "" if there is none."""
    for finder in sys.meta_path:
        spec = None if finder is _FINDER else _find(finder, name)
        if spec is not None and spec.origin is not None:
            return "" if folder in Path(spec.origin).parents else spec.origin
    return ""


def _find(finder: Any, name: str) -> ModuleSpec | None:
    spec: ModuleSpec | None = finder.find_spec(name, None)
    return spec


def location_of(module: str) -> tuple[str, Path] | None:
    """Return the outermost package that contains a module and has its own file, with this file; None without a file."""
    names: Sequence[str] = module.split(".")
    for length in range(1, len(names) + 1):
        spec = importlib.util.find_spec(".".join(names[:length]))
        if spec is not None and spec.origin is not None:
            return names[length - 1], Path(spec.origin)
    return None
