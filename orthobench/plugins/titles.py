"""Read the title of a built-in plugin from its file; importing the file would load torch, which takes seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def written_attributes(file: Path) -> dict[str, Any]:
    """Return the constants in the body of the only class with a `title`; nothing if no class or several have one."""
    classes = [node for node in ast.parse(file.read_bytes()).body if isinstance(node, ast.ClassDef)]
    titled = [names for names in ({**dict(_constants(node))} for node in classes) if "title" in names]
    return titled[0] if len(titled) == 1 else {}


def _constants(class_: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    for statement in class_.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement.value.value
