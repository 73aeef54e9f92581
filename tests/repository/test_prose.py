"""The check of `make lint` finds long sentences where people write them."""

from __future__ import annotations

import runpy
from pathlib import Path

long_sentences = runpy.run_path(str(Path(__file__).parents[2] / "workshop" / "prose.py"))["long_sentences"]
LONG = " ".join(["Words"] + ["follow"] * 35)


def test_long_sentences_of_documents_and_docstrings_are_listed(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "README.md").write_text(f"# Title\n\nShort.\n\n* An item. {LONG}.\n")
    (tmp_path / "models" / "cell.py").write_text(
        f'"""Short."""\n\n\ndef step():\n    """Compute.\n\n    {LONG}.\n    """\n'
    )
    assert [line.partition(" words")[0] for line in long_sentences(tmp_path)] == [
        "README.md:5: 36",
        "models/cell.py:4: 36",
    ]


def test_long_sentences_of_c_comments_are_listed(tmp_path):
    (tmp_path / "orthobench").mkdir()
    words = LONG.split()
    (tmp_path / "orthobench" / "step.h").write_text(
        f"int n; /* Short. */\n/* One, and\n * {' '.join(words[:20])}\n * {' '.join(words[20:])}. */\nint m;\n"
    )
    assert [line.partition(" words")[0] for line in long_sentences(tmp_path)] == ["orthobench/step.h:2: 38"]


def test_code_tables_and_titles_of_links_are_not_checked(tmp_path):
    (tmp_path / "README.md").write_text(
        f'```\n{LONG}\n```\n\n| {LONG} |\n\n    {LONG}\n\nOf [7](#runs "{LONG}") runs.\n'
    )
    assert list(long_sentences(tmp_path)) == []
