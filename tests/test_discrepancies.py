"""Every cited discrepancy is in the register `docs/discrepancies.md`, and every entry is cited."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from orthobench.papers.discrepancies import discrepancies

ROOT = Path(__file__).parent.parent
REGISTER = ROOT / "docs" / "discrepancies.md"
PACKAGED = ROOT / "orthobench" / "papers" / "discrepancies.md"
NUMBER = re.compile(r"\bD-\d+\b")
WRITTEN_BY_PROGRAMS = {".html", ".db", ".gz", ".pt", ".png", ".ipynb"}


def rows() -> list[list[str]]:
    """The cells of each row of the register, by the rules of Markdown alone."""
    lines = REGISTER.read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| D-")]


def entries() -> dict[str, list[str]]:
    """The cells of each entry, by number."""
    return {number: cells for number, *cells in rows()}


def citations() -> dict[str, set[str]]:
    """The files of the repository that cite each number."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    cited: dict[str, set[str]] = {}
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path in (REGISTER, PACKAGED, Path(__file__)) or path.suffix in WRITTEN_BY_PROGRAMS or not path.is_file():
            continue
        for number in NUMBER.findall(path.read_text("utf-8", errors="replace")):
            cited.setdefault(number, set()).add(name)
    return cited


def test_register_has_exactly_the_cited_numbers():
    cited = citations()
    assert set(cited) == set(entries()), {
        number: sorted(cited.get(number, ())) for number in set(cited) ^ set(entries())
    }
    assert len(cited) > 30


def test_page_has_every_entry_of_the_register():
    register = {entry.number: [entry.first, entry.second, entry.decision] for entry in discrepancies()}
    assert register == entries()


def test_number_has_one_entry():
    counts = Counter(number for number, *_ in rows())
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("number", sorted(entries()))
def test_entry_names_both_sources_and_the_decision(number):
    texts = entries()[number]
    assert len(texts) == 3
    assert all(texts)
