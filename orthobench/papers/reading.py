"""Read the TOML files of papers, and find a paper, a study or experiments."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Self

from pydantic import ValidationError

from orthobench.errors import UsageError, unknown
from orthobench.papers.paper import Experiment, Paper
from orthobench.papers.paper_study import Study


@cache
def papers() -> tuple[Paper, ...]:
    """Return all papers by priority, and those of equal priority by key.

    Raises:
        UsageError: a paper's file is invalid, as for `read_paper`.
    """
    loaded = [read_paper(entry) for entry in files("orthobench.papers").iterdir() if entry.name.endswith(".toml")]
    return tuple(sorted(loaded, key=lambda paper: (paper.priority, paper.key)))


def read_paper(file: Traversable) -> Paper:
    """Return the paper of a TOML file.

    Raises:
        UsageError: the file is not TOML, or a field is missing, unknown or wrong; the message names file and field.
    """
    try:
        return Paper.model_validate(_with_digits(tomllib.loads(file.read_text("utf-8"), parse_float=_Decimal)))
    except ValidationError as error:
        problems = "; ".join(_problem(detail["loc"], detail["msg"]) for detail in error.errors())
        raise UsageError(f"{file.name}: {problems}") from error
    except ValueError as error:
        raise UsageError(f"{file.name} is not TOML: {error}") from error


def _problem(location: tuple[int | str, ...], message: str) -> str:
    """Describe one of the errors that pydantic finds in a paper, such as "experiment 2, task: Field required"."""
    # Entries of a list are counted from 1, as a reader of the file counts them.
    words = [f" {part + 1}" if isinstance(part, int) else f", {part}" for part in location]
    where = "".join(words).removeprefix(", ")
    return ": ".join(filter(None, (where, message.removeprefix("Value error, "))))


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
    """Return the studies of all papers, each with the key and the citation of the paper and its names for models."""
    return tuple(
        study.model_copy(update={"paper": paper.key, "source": paper.citation, "names": paper.names})
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
