"""Read the settings of plugins from their source code; importing the code would load torch, which takes seconds.

Shell completion uses this. If this module does not understand the code of a class, it finds no settings.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from orthobench.plugins.catalog import Catalog, PluginKind

TRAINING = "orthobench.task"
"""The module whose class `TrainingSettings` defines the settings of training."""


@dataclass(frozen=True)
class SettingName:
    """A setting: its name, its description, and its values if they are a few words."""

    name: str
    description: str = ""
    values: tuple[str, ...] = ()


def plugin_settings(catalog: Catalog, kind: PluginKind, name: str) -> dict[str, SettingName]:
    """Return the settings of a built-in plugin by name; nothing for any other plugin."""
    file = catalog.find(kind, name).file
    if file is None:
        return {}
    pairs = [pair for name in _module(file).classes if (pair := _settings_class(file, name)) is not None]
    return _fields(*pairs[-1]) if pairs else {}


def training_settings() -> dict[str, SettingName]:
    """Return the settings of training by name."""
    file = _file_of(TRAINING)
    return {} if file is None else _fields(file, "TrainingSettings")


@dataclass(frozen=True)
class _Module:
    """The classes of a file, and the defining module of each imported name."""

    classes: dict[str, ast.ClassDef]
    imports: dict[str, str]


@cache
def _module(file: Path) -> _Module:
    tree = ast.parse(file.read_text("utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    imports = {
        alias.asname or alias.name: "." * node.level + node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    return _Module(classes, imports)


@cache
def _file_of(module: str, importer: Path | None = None) -> Path | None:
    """Return the file of a module of this package, without importing it or its parent packages.

    Args:
        importer: the file that imports the module, for a relative import.
    """
    if module.startswith(".") and importer is not None:
        file = importer.with_name(f"{module.lstrip('.')}.py")
        return file if file.is_file() else None
    if module.partition(".")[0] != "orthobench":
        return None
    spec = _spec_of(module)
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _spec_of(module: str) -> ModuleSpec | None:
    """Return the spec of a module; plain `find_spec` would import its parent package."""
    package = module.rpartition(".")[0]
    if not package or package in sys.modules:
        return find_spec(module)
    around = _spec_of(package)
    return around and PathFinder.find_spec(module, around.submodule_search_locations)


def _find_class(file: Path, name: str) -> tuple[Path, ast.ClassDef] | None:
    """Find a class by its name in a file, and return it with the file that defines it."""
    module = _module(file)
    if name in module.classes:
        return file, module.classes[name]
    source = _file_of(module.imports[name], file) if name in module.imports else None
    return None if source is None or source == file else _find_class(source, name)


def _bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def _settings_class(file: Path, name: str) -> tuple[Path, str] | None:
    """Return file and name of the class that a plugin's class, or one of its base classes, uses as `Settings`."""
    pair = _find_class(file, name)
    if pair is None:
        return None
    file, node = pair
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
                for left, right in zip(names, values, strict=False):
                    if isinstance(left, ast.Name) and left.id == "Settings" and isinstance(right, ast.Name):
                        return file, right.id
        elif (
            isinstance(statement, ast.AnnAssign)
            and ast.unparse(statement.target) == "Settings"
            and isinstance(statement.value, ast.Name)
        ):
            return file, statement.value.id
    for base in _bases(node):
        if (settings := _settings_class(file, base)) is not None:
            return settings
    return None


def _fields(file: Path, name: str) -> dict[str, SettingName]:
    """Return the annotated fields of a class and of its base classes, starting with the base classes."""
    pair = _find_class(file, name)
    if pair is None:
        return {}
    file, node = pair
    settings: dict[str, SettingName] = {}
    for base in _bases(node):
        settings |= _fields(file, base)
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            field = statement.target.id
            annotation = ast.unparse(statement.annotation)
            if not field.startswith("_") and not annotation.startswith("ClassVar") and field != "model_config":
                settings[field] = SettingName(field, _description(statement.value), _values(statement.annotation))
    return settings


def _description(value: ast.expr | None) -> str:
    for keyword in value.keywords if isinstance(value, ast.Call) else ():
        if keyword.arg == "description" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return ""


def _values(annotation: ast.expr) -> tuple[str, ...]:
    """Return the words of a `Literal` annotation, or the words for a truth value."""
    if isinstance(annotation, ast.Name) and annotation.id == "bool":
        return ("true", "false")
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "Literal":
        return ()
    words = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    return tuple(str(word.value) for word in words if isinstance(word, ast.Constant))
