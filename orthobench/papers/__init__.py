"""Papers as data: the settings and published results of each experiment, one TOML file per paper.

The settings are defaults of runs. The report shows the published results next to the measured ones.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Self

from orthobench.errors import unknown
from orthobench.papers.records import Aggregation as Aggregation
from orthobench.papers.records import Artifact as Artifact
from orthobench.papers.records import Column as Column
from orthobench.papers.records import Elsewhere as Elsewhere
from orthobench.papers.records import Experiment as Experiment
from orthobench.papers.records import Paper as Paper
from orthobench.papers.records import Printed as Printed
from orthobench.papers.records import Protocol as Protocol
from orthobench.papers.records import Selection as Selection
from orthobench.papers.records import Small as Small
from orthobench.papers.study import Study as Study


@cache
def papers() -> tuple[Paper, ...]:
    """Return all papers, by priority."""
    texts = [entry.read_text("utf-8") for entry in files("orthobench.papers").iterdir() if entry.name.endswith(".toml")]
    loaded = [Paper.model_validate(_with_digits(tomllib.loads(text, parse_float=_Decimal))) for text in texts]
    return tuple(sorted(loaded, key=lambda paper: paper.priority))


class _Decimal(float):
    """A number that remembers its digits in the file, for example 0.920 and not 0.92."""

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


def _with_digits(node: Any) -> Any:
    """Return the tables of a file with plain numbers; a table with a `value` also gets its `digits` in the file."""
    if isinstance(node, dict):
        digits = {"digits": node["value"].text} if isinstance(node.get("value"), _Decimal) else {}
        return {name: _with_digits(value) for name, value in node.items()} | digits
    if isinstance(node, list):
        return [_with_digits(value) for value in node]
    return float(node) if isinstance(node, _Decimal) else node


def find_paper(key: str) -> Paper:
    """Return the paper with this key.

    Raises:
        UsageError: the key is unknown; the message gives the nearest one.
    """
    known = {paper.key: paper for paper in papers()}
    if key not in known:
        raise unknown("paper", key, known)
    return known[key]


@cache
def studies() -> tuple[Study, ...]:
    """Return the studies of all papers, each with the citation of the paper and its names for models."""
    return tuple(
        study.model_copy(update={"source": paper.citation, "names": paper.names})
        for paper in papers()
        for study in paper.study
    )


def find_study(name: str) -> Study:
    """Return the study with this name.

    Raises:
        UsageError: no paper has such a study; the message gives the nearest name.
    """
    by_name = {study.name: study for study in studies()}
    if name not in by_name:
        raise unknown("study", name, by_name)
    return by_name[name]


def experiments(task: str, model: str) -> list[Experiment]:
    """Return the experiments of all papers with this model on this task, by the priority of the papers."""
    return [experiment for paper in papers() for experiment in paper.experiments(task, model)]
