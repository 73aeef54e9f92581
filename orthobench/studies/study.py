"""What a study is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StudyRun:
    """A run that a figure is made of; `settings` are laid over the task's, the paper's and the preset's."""

    figure: str
    task: str
    model: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """A paper's study: `shows` is what its figure does, `ours` what it leaves open and what was taken for it.

    It rests on runs (by preset), on a computation (`compute`, whose result JSON holds) or on a benchmark of this name.
    """

    name: str
    title: str
    paper: str
    figure: str
    shows: str
    ours: str
    runs: Mapping[str, tuple[StudyRun, ...]] = field(default_factory=dict)
    compute: Callable[[], dict[str, Any]] | None = None
    benchmark: str | None = None

    @property
    def record(self) -> str:
        """The name under which the database keeps which runs were asked for, or what was computed."""
        return self.benchmark or f"study {self.name}"
