"""The drawings of ARCHITECTURE.md are those of its table and of the files that a run calls."""

from __future__ import annotations

import pytest

from checks.drawings import COURSE, drawings, reduced
from checks.rooms import PACKAGE, ROOT, table

CALLED = set((ROOT / "tests" / "session" / "files_of_a_run.txt").read_text("utf-8").split())


@pytest.mark.parametrize("path", drawings(), ids=lambda path: path.name)
def test_committed_drawing_is_the_generated_one(path):
    assert path.read_text("utf-8") == drawings()[path], "run make drawings"


def test_run_calls_the_files_that_the_drawing_shows_before_the_page():
    *before, page = COURSE.values()
    assert {file for part in before for file, _ in part} - CALLED == set()
    assert [file for file, _ in page if not (PACKAGE / file).is_file()] == []


def test_drawn_arrows_reach_exactly_the_rooms_of_all_imports():
    def reached(graph, room):
        return set(graph[room]).union(*(reached(graph, name) for name in graph[room]))

    imports = table()
    drawn = reduced(imports)
    assert all(reached(drawn, room) == reached(imports, room) for room in imports)
    for room, names in drawn.items():
        for name in names:
            fewer = drawn | {room: [other for other in names if other != name]}
            assert name not in reached(fewer, room), f"{room} -> {name} follows from the others"
