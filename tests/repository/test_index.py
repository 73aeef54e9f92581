"""The committed index is that of the built-in plugins and of the papers' experiments."""

from __future__ import annotations

from orthobench.spec.index import FILE
from workshop.index import text


def test_index_file_is_current():
    assert FILE.read_text("utf-8") == text(), "run make index"
