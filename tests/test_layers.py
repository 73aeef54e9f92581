"""Imports run one way. The table of rooms in ARCHITECTURE.md is the specification."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from workshop.rooms import PACKAGE, rooms, subrooms, table


def imported(path: Path, within: str | None = None) -> set[str]:
    """The rooms, or the sub-rooms of a room, that a file imports, at its top or inside a function."""
    package, known = (f"orthobench.{within}", subrooms(within)) if within else ("orthobench", ROOMS)
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            names |= {alias.name if alias.name in known else package for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{package}."):
            names.add(node.module.removeprefix(f"{package}.").partition(".")[0])
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names if alias.name.startswith(f"{package}.")]
            names |= {name.removeprefix(f"{package}.").partition(".")[0] for name in modules}
    return names


ROOMS = rooms()
DIVIDED = [room for room in ROOMS if table(room)]
"""The rooms whose sub-rooms are in the table, too."""


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_package_imports_exactly_what_the_table_lists(room):
    imports = {name: path for path in ROOMS[room] for name in imported(path) - {room}}
    assert set(imports) == table()[room], imports


@pytest.mark.parametrize(("room", "subroom"), [(room, each) for room in DIVIDED for each in sorted(subrooms(room))])
def test_subroom_imports_exactly_what_the_table_lists(room, subroom):
    imports = {name: path for path in subrooms(room)[subroom] for name in imported(path, room) - {subroom}}
    assert set(imports) == table(room)[subroom], imports


@pytest.mark.parametrize("within", [None, *DIVIDED])
def test_table_lists_every_package_above_its_imports(within):
    order = list(table(within))
    assert set(order) == set(subrooms(within) if within else ROOMS)
    for room, imports in table(within).items():
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


def test_command_line_is_a_client_of_the_api():
    """Whatever a command knows of runs, it knows from the API, so it imports the rooms for its own business alone."""
    assert table()["cli"] == {"api", "display", "errors", "options"}
    hidden = set()
    for path in ROOMS["cli"]:
        tree = ast.parse(path.read_text("utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        own = [node for node in imports if "orthobench" in ast.unparse(node)]
        hidden |= {(path.stem, ast.unparse(node)) for node in own if node not in tree.body}
    # The only import in a function is that of the display of sessions, a subclass of a class that loads torch.
    assert hidden == {("sessions", "from orthobench.cli.session_display import TerminalDisplay")}


@pytest.mark.parametrize("back_end", ["cpu", "cuda"])
def test_code_of_a_back_end_imports_no_operation(back_end):
    """Operations and passes call the code that their kernels share, and not the other way round."""
    known = modules()
    inner = [f"orthobench.recurrence.{name}" for name in ("ops", "passes")]
    above = {name for name in known if any(f"{name}.".startswith(f"{each}.") for each in inner)}
    files = {name: path for name, path in known.items() if name.startswith(f"orthobench.recurrence.{back_end}.")}
    assert len(files) > 5
    assert {name: found for name, path in files.items() if (found := imported_modules(path, known) & above)} == {}
