"""The documents name the number of seeds that decides, and it is the one that the code computes."""

from __future__ import annotations

import re
from pathlib import Path

from orthobench.analysis.inference import deciding_seeds

ROOT = Path(__file__).parents[2]
WORDS = {3: "three", 4: "four", 5: "five", 6: "six", 7: "seven"}


def test_table_of_seeds_is_computed():
    text = (ROOT / "docs" / "comparison.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+)(?: to (\d+))? \| (\d+) \|$", text.partition("## Rankings")[2], re.M)
    assert len(rows) == 4
    for first, last, seeds in rows:
        assert deciding_seeds(int(first)) == deciding_seeds(int(last or first)) == int(seeds)
        assert deciding_seeds(int(last or first) + 1) == int(seeds) + 1


def test_seeds_of_two_models_are_the_same_everywhere():
    few = WORDS[deciding_seeds(1)]
    assert f"One seed each is too little to rank the two models; with {few}, a" in (ROOT / "README.md").read_text()
    start = (ROOT / "docs" / "start.md").read_text("utf-8")
    assert f"needs {few} seeds of each model for\nthat (`--seeds {deciding_seeds(1)}`)" in start
    pairs = WORDS[deciding_seeds(1, paired=True)]
    assert f"which takes {pairs} pairs" in (ROOT / "docs" / "comparison.md").read_text("utf-8")
