"""Write the classes of a notebook, or of any main program, as the text of a module that other processes import."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import symtable
import sys
import types
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any

from orthobench.errors import UsageError

_FUTURE_ANNOTATIONS = 0x1000000
"""The flag of code below `from __future__ import annotations`."""


def notebook_module(cls: type) -> str:
    """Return the text of a module with a class of the main program and everything there that it uses.

    Raises:
        UsageError: the class uses a value that is not an import, function, class or constant, or has no source code.
    """
    namespace = vars(sys.modules["__main__"])
    parts: dict[str, str] = {}
    flags = 0

    def is_own(value: Any) -> bool:  # make_dataclass of Python 3.11 gives its classes to the module `types`
        return value.__module__ in ("__main__", "types") and _importable(value) is None

    def add(name: str, value: Any) -> None:
        nonlocal flags
        if name in parts:
            return
        parts[name] = ""  # a function may call itself
        if isinstance(value, ModuleType):
            text = f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")
        elif isinstance(value, (type, types.FunctionType)) and is_own(value):
            own = value.__name__
            if own != name and own in namespace and namespace[own] is value:
                add(own, value)
                text = f"{name} = {own}"
            else:
                text, own_flags = _definition(value, name)
                flags |= own_flags
                for used in sorted(_globals(text)):
                    if used in namespace and used != own:
                        add(used, namespace[used])
                if name not in _defined(_statements(text)[0]):
                    text += f"\n{name} = {own}"
        elif (origin := _importable(value)) is not None:
            text = f"from {origin[0]} import {origin[1]}" + (f" as {name}" if origin[1] != name else "")
        elif (literal := _literal(value)) is not None:
            text = f"{name} = {literal}"
        else:
            raise UsageError(
                f"{cls.__name__} uses `{name}`, which is not an import, function, class or constant: pass it as an "
                "argument"
            )
        del parts[name]  # after what it uses
        parts[name] = text

    add(cls.__name__, cls)
    head = ["from __future__ import annotations"] if flags & _FUTURE_ANNOTATIONS else []
    return "\n\n".join([*head, *parts.values()]) + "\n"


def _definition(value: Any, name: str) -> tuple[str, int]:
    """Return the text that defines a class or function of the main program, and the flags of its code.

    Args:
        name: the variable that has it, which an assignment such as `State = namedtuple("State", "h c")` defines.

    Raises:
        UsageError: the text is not known, as in the plain interactive interpreter.
    """
    if isinstance(value, FunctionType):
        codes = [inspect.unwrap(value).__code__]
    else:  # without the methods that dataclass, namedtuple and Enum add, whose code is elsewhere
        own = [each for each in vars(value).values() if getattr(each, "__module__", "") == value.__module__]
        codes = [inspect.unwrap(each).__code__ for each in own if isinstance(each, FunctionType)]
        codes = [code for code in codes if code.co_qualname.startswith(f"{value.__qualname__}.")]
    places = [(code.co_filename, code.co_firstlineno) for code in codes] or [(file, 0) for file in _cells()]
    definition = (ast.ClassDef, ast.FunctionDef)
    for kind, wanted in ((definition, value.__name__), (ast.Assign, value.__name__), (ast.Assign, name)):
        for file, line in places:
            # By linecache, because the cells of a notebook are in no file.
            lines = linecache.getlines(file)
            for node in reversed(_statements("".join(lines))):  # a later definition replaces an earlier one
                decorators = node.decorator_list if isinstance(node, definition) else []
                first = min([node.lineno, *(each.lineno for each in decorators)])
                is_there = not line or first <= line <= (node.end_lineno or first)
                if isinstance(node, kind) and wanted in _defined(node) and is_there:
                    text = "".join(lines[first - 1 : node.end_lineno]).rstrip()
                    return text, codes[0].co_flags if codes else 0
    raise UsageError(
        f"the source code of {value.__name__} is not known: define it at the top of a notebook cell or of a file"
    )


@lru_cache(maxsize=1024)  # because each definition of a notebook is looked for in all of its cells
def _statements(text: str) -> list[ast.stmt]:
    """Return the statements of a text; none if it is not Python."""
    try:
        return ast.parse(text).body
    except SyntaxError:
        return []


def _defined(statement: ast.stmt) -> list[str]:
    """Return the names that a definition or an assignment gives to values."""
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [each.id for each in targets if isinstance(each, ast.Name)]


def _cells() -> list[str]:
    """Return the files of the main program, or of a notebook's cells, the newest first."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    return [main] if main else [name for name in reversed(linecache.cache) if "ipykernel" in name or name[0] == "<"]


def _globals(text: str) -> set[str]:
    """Return the global names that a definition reads."""
    names: set[str] = set()

    def walk(table: symtable.SymbolTable, is_top: bool) -> None:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (is_top or symbol.is_global()):
                names.add(symbol.get_name())
        for child in table.get_children():
            walk(child, False)

    walk(symtable.symtable(text, "", "exec"), True)
    return names - vars(builtins).keys()


def _importable(value: Any) -> tuple[str, str] | None:
    """Return the module and the name from which a function or class can be imported; None if there is none."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", ""))
    if not isinstance(module, str) or module == "__main__" or not isinstance(name, str) or not name.isidentifier():
        return None
    return (module, name) if getattr(sys.modules.get(module), name, None) is value else None


def _literal(value: Any) -> str | None:
    """Return a constant as Python writes it; None for a value that is not a constant."""
    try:
        text = repr(value)
        return text if ast.literal_eval(text) == value and type(ast.literal_eval(text)) is type(value) else None
    except Exception:  # any object may fail to be written, read or compared
        return None
