"""Imports run one way. The table of rooms in ARCHITECTURE.md is the specification."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from checks.rooms import PACKAGE, rooms, table


def imported(path: Path) -> set[str]:
    """The rooms that a file imports, at its top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "orthobench":
            names |= {alias.name if alias.name in ROOMS else "orthobench" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("orthobench."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("orthobench.")}
    return names


ROOMS = rooms()


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_package_imports_exactly_what_the_table_lists(room):
    imports = {name: path for path in ROOMS[room] for name in imported(path) - {room}}
    assert set(imports) == table()[room], imports


def test_table_lists_every_package_above_its_imports():
    order = list(table())
    assert set(order) == set(ROOMS)
    for room, imports in table().items():
        for name in imports:
            assert order.index(name) > order.index(room), f"{room} imports {name}, which stands above it"


def modules() -> dict[str, Path]:
    """The package's modules by their dotted names."""
    names = {
        ".".join(("orthobench", *path.relative_to(PACKAGE).with_suffix("").parts)): path
        for path in PACKAGE.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


def imported_modules(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules that a file names: imports at its top, in a function or for types alone, and `import_module`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module)):
                within = {f"{module}.{alias.name}" for alias in node.names}
                names |= (within & known.keys()) or {module}
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(value=str(name)), *_]
            ):
                names |= {name} if called in ("import_module", "__import__") else set()
    return names & known.keys()


def test_no_module_imports_itself_through_others():
    known = modules()
    graph = {name: imported_modules(path, known) - {name} for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


@pytest.mark.parametrize(
    "text",
    [
        "import orthobench.errors",
        "def later():\n    from orthobench.errors import UsageError",
        "if TYPE_CHECKING:\n    from orthobench import errors",
        "importlib.import_module('orthobench.errors').UsageError",
        "from importlib import import_module\nimport_module('orthobench.errors')",
    ],
)
def test_every_form_of_import_counts(text, tmp_path):
    (tmp_path / "module.py").write_text(text)
    assert imported_modules(tmp_path / "module.py", modules()) == {"orthobench.errors"}


def test_import_check_finds_imports():
    assert {"errors", "store", "spec"} <= imported(PACKAGE / "training" / "lifecycle.py")
