"""The values that the papers' experiments use for each setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from orthobench.papers import Experiment, papers


@dataclass(frozen=True)
class PaperValue:
    """A value of a setting, and the tables and figures of papers that use it, such as "helfrich2018 table 1"."""

    value: Any
    sources: tuple[str, ...]


SETTINGS: dict[str, Callable[[Experiment], dict[str, Any]]] = {
    "task": lambda experiment: experiment.task_settings,
    "model": lambda experiment: experiment.model_settings,
    "training": lambda experiment: experiment.training,
}


def paper_values(kind: Literal["task", "model", "training"], name: str = "") -> dict[str, list[PaperValue]]:
    """Return, for each setting, the distinct values that papers used, in the order of the papers.

    Args:
        kind: the group of settings.
        name: the task or the model; not used for settings of training, which come from all experiments.
    """
    sources: dict[str, dict[str, tuple[Any, dict[str, list[str]]]]] = {}
    for paper in papers():
        for experiment in paper.experiments():
            if kind != "training" and getattr(experiment, kind) != name:
                continue
            for setting, value in SETTINGS[kind](experiment).items():
                by_value = sources.setdefault(setting, {})
                artifacts = by_value.setdefault(repr(value), (value, {}))[1].setdefault(paper.key, [])
                if experiment.artifact not in artifacts:
                    artifacts.append(experiment.artifact)
    return {
        setting: [
            PaperValue(value, tuple(f"{key} {', '.join(artifacts)}" for key, artifacts in by_paper.items()))
            for value, by_paper in by_value.values()
        ]
        for setting, by_value in sources.items()
    }
