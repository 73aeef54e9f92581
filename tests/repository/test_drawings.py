"""The drawings of ARCHITECTURE.md are those of its table and of the files that a run calls."""

from __future__ import annotations

import re

from workshop.drawings import FILE, drawn, reduced
from workshop.rooms import PACKAGE, ROOT, table

CALLED = set((ROOT / "tests" / "session" / "files_of_a_run.txt").read_text("utf-8").split())


def test_rooms_are_drawn_as_the_table_has_them():
    assert FILE.read_text("utf-8") == drawn(), "run make drawings"


def test_run_calls_the_files_that_the_drawing_shows_before_the_page():
    (course,) = re.findall(r"```mermaid\nflowchart LR\n([^`]*)```", FILE.read_text("utf-8"))
    *before, page = course.split("end\n")[:3]
    files = [re.findall(r"\w+/[\w/]+\.py", part) for part in (*before, page)]
    assert list(map(len, files)) == [6, 6, 6]
    assert {file for part in files[:-1] for file in part} - CALLED == set()
    assert [file for file in files[-1] if not (PACKAGE / file).is_file()] == []


def test_drawn_arrows_reach_exactly_the_rooms_of_all_imports():
    def reached(graph, room):
        return set(graph[room]).union(*(reached(graph, name) for name in graph[room]))

    imports = table()
    arrows = reduced(imports)
    assert all(reached(arrows, room) == reached(imports, room) for room in imports)
    for room, names in arrows.items():
        for name in names:
            fewer = arrows | {room: [other for other in names if other != name]}
            assert name not in reached(fewer, room), f"{room} -> {name} follows from the others"
