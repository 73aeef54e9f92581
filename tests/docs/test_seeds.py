"""The documents name the number of seeds that decides, and it is the one that the code computes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from orthobench.analysis.inference import deciding_seeds, seeds_of_ranking

ROOT = Path(__file__).parents[2]
WORDS = {3: "three", 4: "four", 5: "five", 6: "six", 7: "seven"}


def test_table_of_seeds_is_computed():
    text = (ROOT / "docs" / "comparison.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+)(?: to (\d+))? \| (\d+) \|$", text.partition("## Rankings")[2], re.M)
    assert len(rows) == 5
    for first, last, seeds in rows:
        assert seeds_of_ranking(int(first)) == seeds_of_ranking(int(last or first)) == int(seeds)
        assert seeds_of_ranking(int(last or first) + 1) == int(seeds) + 1
    words = " ".join(text.split())
    sentence = re.search(r"needs (\d) seeds for one other model, ((?:\d for up to \d+(?:, | and )?)+)", words)
    assert deciding_seeds(1) == int(sentence[1])
    for seeds, others in re.findall(r"(\d) for up to (\d+)", sentence[2]):
        assert (deciding_seeds(int(others)), deciding_seeds(int(others) + 1)) == (int(seeds), int(seeds) + 1)


def test_chance_of_clearly_worse_is_as_documented():
    """Own draws of equal models: the share of the others that are worse than the best in every seed."""
    text = (ROOT / "docs" / "comparison.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) % \| (\d+) % \| (\d+) % \|$", text, re.M)
    assert [row[0] for row in rows] == ["2", "7", "41"]
    random = np.random.default_rng(0)
    for models, *shares in rows:
        for seeds, share in zip((3, 4, 5), shares, strict=True):
            values = random.normal(size=(20_000, int(models), seeds))
            first = np.median(values, axis=2).argmin(axis=1)
            worst = values[np.arange(len(values)), first].max(axis=1)
            worse = (values.min(axis=2) > worst[:, None]).sum(axis=1) / (int(models) - 1)
            assert 100 * worse.mean() == pytest.approx(int(share), abs=1)


def test_seeds_of_two_models_are_the_same_everywhere():
    few = WORDS[deciding_seeds(1)]
    assert f"One seed each is not enough to rank the two models; with {few}, a" in (ROOT / "README.md").read_text()
    start, comparison = (
        " ".join((ROOT / "docs" / f"{name}.md").read_text("utf-8").split()) for name in ("start", "comparison")
    )
    assert f"needs {few} seeds of each model (`--seeds {deciding_seeds(1)}`)" in start
    pairs = WORDS[deciding_seeds(1, paired=True)]
    assert f"which takes {pairs} pairs" in comparison
