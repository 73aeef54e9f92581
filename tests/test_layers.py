"""Imports run one way, as ARCHITECTURE.md draws them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "errors": set(),
    "statistics": set(),
    "matrices": set(),
    "recurrence": set(),
    "seeds": set(),
    "optimizers": set(),
    "environment": set(),
    "audio": {"errors"},
    "data": {"audio", "errors"},
    "settings": {"errors"},
    "model": {"matrices", "optimizers", "recurrence", "settings"},
    "plain_rnn": {"model", "optimizers", "recurrence"},
    "complex_rnn": {"matrices", "model", "plain_rnn", "recurrence"},
    "task": {"model", "settings"},
    "probe": {"model", "task"},
    "jacobians": {"model"},
    "plugins": {"errors", "model", "probe", "task"},
    "papers": {"errors"},
    "spec": {"errors", "papers", "plugins", "settings", "task"},
    "probes": {"jacobians", "probe", "recurrence"},
    "disk": {"errors"},
    "checkpoint": {"disk", "errors"},
    "store": {"disk", "errors"},
    "locks": {"checkpoint", "store"},
    "variants": {"settings", "statistics", "store"},
    "batches": {"errors", "seeds", "task"},
    "observer": {"store"},
    "trainer": {
        "batches",
        "checkpoint",
        "environment",
        "errors",
        "model",
        "observer",
        "optimizers",
        "probe",
        "recurrence",
        "seeds",
        "spec",
        "store",
        "task",
    },
    "memory": {"batches", "probe", "task", "trainer"},
    "train": {"checkpoint", "errors", "locks", "memory", "observer", "recurrence", "spec", "store", "trainer"},
    "pace": {
        "batches",
        "checkpoint",
        "environment",
        "observer",
        "recurrence",
        "spec",
        "store",
        "task",
        "train",
        "trainer",
    },
    "sweep": {
        "checkpoint",
        "data",
        "environment",
        "errors",
        "locks",
        "observer",
        "pace",
        "papers",
        "plugins",
        "seeds",
        "settings",
        "spec",
        "store",
        "studies",
        "task",
        "train",
        "trainer",
    },
    "check": {"bench", "disk", "environment", "errors", "spec", "store"},
    "compare": {"errors", "statistics", "store", "variants"},
    "report": {"disk", "errors", "papers", "statistics", "store", "studies", "variants", ""},
    "studies": {"errors"},
    "bench": {"batches", "errors", "matrices", "model", "optimizers", "plugins", "recurrence", "seeds", "spec"},
    "testing": {"model", "optimizers", "plugins", "probe", "probes", "recurrence", "task"},
    "models": {"complex_rnn", "matrices", "model", "optimizers", "plain_rnn", "recurrence"},
    "image_task": {"data", "settings", "task"},
    "tasks": {"audio", "data", "errors", "image_task", "model", "seeds", "settings", "task"},
    "__main__": {"cli"},
    "": set(),
}


def rooms() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in (ROOT / "orthobench").rglob("*.py"):
        parts = path.relative_to(ROOT / "orthobench").with_suffix("").parts
        found.setdefault("" if parts == ("__init__",) else parts[0], []).append(path)
    for name in ("models", "tasks"):
        found[name] = list((ROOT / name).glob("*.py"))
    return found


def imported(path: Path) -> set[str]:
    """The rooms a file imports from, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "orthobench":
            names |= {
                alias.name
                if (ROOT / "orthobench" / alias.name).exists() or (ROOT / "orthobench" / f"{alias.name}.py").exists()
                else ""
                for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("orthobench."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("orthobench.")}
    return names


@pytest.mark.parametrize("room", sorted(rooms().keys() - {"cli"}))  # which may import everything
def test_a_room_imports_only_what_it_may(room):
    for path in rooms()[room]:
        assert imported(path) - {room} <= ALLOWED[room], path


def test_the_check_sees_imports():
    assert {"errors", "store", "spec"} <= imported(ROOT / "orthobench" / "train.py")
