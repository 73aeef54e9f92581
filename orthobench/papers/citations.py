"""The papers behind each model and task, as BibTeX.

`references.bib` contains the entries. `citations.csv` lists the keys for each model, task and data set, starting with
the paper that defines it.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files

ENTRY = re.compile(r"^@\w+\{(?P<key>[\w-]+),$.*?^\}$", re.M | re.S)


@cache
def references() -> dict[str, str]:
    """Return the BibTeX entries by key."""
    text = files(__package__).joinpath("references.bib").read_text("utf-8")
    return {match["key"]: match[0] for match in ENTRY.finditer(text)}


@cache
def citations() -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the keys of the papers by kind ("model", "task" or "dataset") and name."""
    keys: dict[tuple[str, str], tuple[str, ...]] = {}
    lines = files(__package__).joinpath("citations.csv").read_text("utf-8").splitlines()
    for row in csv.DictReader(lines):
        pair = row["kind"], row["name"]
        keys[pair] = (*keys.get(pair, ()), row["key"])
    return keys


def cited(kind: str, name: str) -> tuple[str, ...]:
    """Return the keys of the papers behind a "model", "task" or "dataset"; nothing for an external plugin."""
    return citations().get((kind, name), ())
