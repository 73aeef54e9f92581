"""Papers as data: each experiment's settings and printed results, one TOML file a paper.

The settings are the defaults of a run, and the printed results stand beside the measured ones in the report.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Printed(_Record):
    """One printed result: a value in the metric's unit (accuracies as fractions), or for a figure what it shows."""

    metric: str
    split: Literal["train", "valid", "test"] = "test"
    value: float | None = None
    outcome: str | None = None


class Protocol(_Record):
    """What all of a paper's experiments on one task share."""

    task_settings: dict[str, Any] = {}
    training: dict[str, Any] = {}


class Experiment(_Record):
    """One model on one task as a paper ran it; its settings include the paper's protocol for the task."""

    artifact: str = Field(description="where it is printed, such as 'figure 2'")
    task: str
    model: str
    task_settings: dict[str, Any] = {}
    model_settings: dict[str, Any] = {}
    training: dict[str, Any] = {}
    parameters: str = Field("", description="the printed parameter count, as printed")
    selection: Literal["curve", "last", "best_test", "best_valid"] = "curve"
    printed: list[Printed] = []
    notes: list[str] = []
    paper: str = ""

    def differences(self, settings: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Where a run's settings are not this experiment's: by name, the run's value and the paper's."""
        return {
            name: (settings.get(name), value) for name, value in self.settings.items() if settings.get(name) != value
        }

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of all three kinds together; their names do not overlap."""
        return {**self.task_settings, **self.model_settings, **self.training}


class Paper(_Record):
    key: str
    title: str
    authors: str
    venue: str
    year: int
    priority: int = Field(description="papers with smaller numbers come first where defaults are looked up")
    protocol: dict[str, Protocol] = {}
    experiment: list[Experiment]

    def experiments(self) -> list[Experiment]:
        """The experiments, each with its task's protocol filled in."""
        return [self._complete(experiment) for experiment in self.experiment]

    def _complete(self, experiment: Experiment) -> Experiment:
        shared = self.protocol.get(experiment.task, Protocol())
        return experiment.model_copy(
            update={
                "paper": self.key,
                "task_settings": shared.task_settings | experiment.task_settings,
                "training": shared.training | experiment.training,
            }
        )

    @property
    def citation(self) -> str:
        return f"{self.authors}. {self.title}. {self.venue} {self.year}"


@cache
def papers() -> tuple[Paper, ...]:
    """All papers, the one whose settings are the first choice as defaults first."""
    texts = [entry.read_text("utf-8") for entry in files(__name__).iterdir() if entry.name.endswith(".toml")]
    loaded = [Paper.model_validate(tomllib.loads(text)) for text in texts]
    return tuple(sorted(loaded, key=lambda paper: paper.priority))


def experiments(task: str, model: str) -> list[Experiment]:
    """Every paper's experiments with this model on this task, first choice first."""
    return [
        experiment
        for paper in papers()
        for experiment in paper.experiments()
        if (experiment.task, experiment.model) == (task, model)
    ]
