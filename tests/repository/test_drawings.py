"""The drawings of ARCHITECTURE.md are those of its table, and name files that exist."""

from __future__ import annotations

import re

from workshop.drawings import FILE, drawn
from workshop.rooms import PACKAGE


def test_rooms_are_drawn_as_the_table_has_them():
    assert FILE.read_text("utf-8") == drawn(), "run make drawings"


def test_files_of_the_drawn_run_exist():
    (course,) = re.findall(r"```mermaid\nflowchart LR\n([^`]*)```", FILE.read_text("utf-8"))
    files = re.findall(r"\w+/[\w/]+\.py", course)
    assert len(files) == 18
    assert [file for file in files if not (PACKAGE / file).is_file()] == []
