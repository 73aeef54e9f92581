"""Group runs that differ only by seed: their label and their results over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from orthobench.analysis.statistics import Summary, summarize
from orthobench.settings import merged_settings, text
from orthobench.store import Run, Status


@dataclass(frozen=True)
class Variant:
    """A model with one set of settings, over its seeds."""

    label: str
    runs: list[Run]

    @property
    def run(self) -> Run:
        """Return one of the runs, for the values that all share."""
        return self.runs[0]

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if run.status == Status.FINISHED]

    @property
    def diverged(self) -> int:
        return sum(run.status == Status.DIVERGED for run in self.runs)

    @property
    def tags(self) -> list[str]:
        """Return the tags of all runs, sorted."""
        return sorted({tag for run in self.runs for tag in run.tags})

    @property
    def final(self) -> Summary | None:
        """Return the final test metric over the finished runs."""
        return summarize([run.final_value for run in self.finished if run.final_value is not None])

    @property
    def best(self) -> Summary | None:
        """Return the best test metric over the finished runs."""
        return summarize([run.best_value for run in self.finished if run.best_value is not None])

    @property
    def seconds_per_epoch(self) -> Summary | None:
        return summarize([seconds for run in self.runs if (seconds := run.seconds_per_epoch) is not None])


def group(runs: Sequence[Run], by: Callable[[Run], str]) -> list[list[Run]]:
    """Group runs by a value, in the order of each group's first run."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(by(run), []).append(run)
    return list(groups.values())


def variants(runs: Sequence[Run]) -> list[Variant]:
    """Return the variants of these runs, labelled by the model and the settings that distinguish its variants."""
    groups = group(runs, lambda run: run.variant)
    return [Variant(_label(members[0], [other[0] for other in groups]), members) for members in groups]


def _label(run: Run, all_runs: list[Run]) -> str:
    own = settings_of(run)
    others = [settings_of(other) for other in all_runs if other.model == run.model and other is not run]
    distinguishing = [name for name, value in own.items() if any(other.get(name) != value for other in others)]
    return " ".join([run.model, *(f"{name}={text(own[name])}" for name in distinguishing)])


def settings_of(run: Run) -> dict[str, Any]:
    """Return all settings and versions of a run, without the seed."""
    spec = run.spec
    versions = {"task_version": spec["task_version"], "model_version": spec["model_version"]}
    return merged_settings(spec) | versions
