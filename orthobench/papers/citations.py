"""The papers behind models, tasks and data sets, as BibTeX."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

ENTRY = re.compile(r"^@\w+\{(?P<key>[\w-]+),$.*?^\}$", re.M | re.S)


@cache
def references() -> dict[str, str]:
    """Return the BibTeX entries by key."""
    text = files(__package__).joinpath("references.bib").read_text("utf-8")
    return {match["key"]: match[0] for match in ENTRY.finditer(text)}


def keys_of(cites: str) -> list[str]:
    """Return the keys that the attribute `cites` of a model, a task or a data set lists."""
    return [key.strip() for key in cites.split(",") if key.strip()]
