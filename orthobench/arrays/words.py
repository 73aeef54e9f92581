"""The words by which users name their own data, such as `array:data.npz`.

| word | task |
| --- | --- |
| `array:FILE` | of the kind that the file's content allows |
| `classification:FILE`, `regression:FILE`, `forecast:FILE` | of this kind; runs are stored under this name |

This module loads nothing, because lists of runs need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Kind = Literal["classification", "regression", "forecast"]
KINDS: tuple[Kind, ...] = ("classification", "regression", "forecast")
ANY = "array"
"""The word for data whose kind follows from its content."""


def is_own_data(word: str) -> bool:
    """Return whether a word names own data."""
    return word.partition(":")[0] in (ANY, *KINDS) and ":" in word


def task_words(name: str) -> list[str]:
    """Return the words that select the runs of a task: its name, and for own data also the word without the kind."""
    return [name, f"{ANY}:{name.partition(':')[2]}"] if is_own_data(name) else [name]


def word_of(task: str, settings: Mapping[str, Any]) -> str:
    """Return the word for the task of a stored run in a command: own data by its path."""
    return f"{task.partition(':')[0]}:{settings['data']}" if is_own_data(task) and settings.get("data") else task
