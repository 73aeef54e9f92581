"""Group runs that differ only by seed: their label and their results over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from orthobench.analysis.statistics import Summary, summarize
from orthobench.settings import merged_settings, text
from orthobench.store import Status

if TYPE_CHECKING:
    from orthobench.store import Run


Member = TypeVar("Member")


@dataclass(frozen=True)
class Variant:
    """A model with one set of settings, over its seeds."""

    label: str
    runs: list[Run]

    @property
    def run(self) -> Run:
        """One of the runs, for the values that all runs share."""
        return self.runs[0]

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if run.status == Status.FINISHED]

    @property
    def diverged(self) -> int:
        return sum(run.status == Status.DIVERGED for run in self.runs)

    @property
    def backends(self) -> list[str]:
        """The distinct back ends of the finished runs (`backends`)."""
        return backends(self.runs)

    @cached_property
    def tags(self) -> list[str]:
        """The tags of all runs, sorted."""
        return sorted({tag for run in self.runs for tag in run.tags})

    @property
    def final(self) -> Summary | None:
        """The final test metric over the finished runs."""
        return self._summary([run.final_value for run in self.finished if run.final_value is not None])

    @property
    def best(self) -> Summary | None:
        """The best test metric over the finished runs."""
        return self._summary([run.best_value for run in self.finished if run.best_value is not None])

    def _summary(self, values: list[float]) -> Summary | None:
        return summarize(values, bounds=self.run.main_metric.bounds(values))

    @property
    def timed_on(self) -> str:
        """The machine on which the runs of `seconds_per_epoch` were trained; "" without any."""
        return next((run.environment.machine for run in of_one_machine(self.runs)), "")

    @property
    def seconds_per_epoch(self) -> Summary | None:
        """Seconds of an epoch over the runs of the machine that trained most of them."""
        seconds = [seconds for run in of_one_machine(self.runs) if (seconds := run.seconds_per_epoch) is not None]
        return summarize(seconds, bounds=(0.0, math.inf))

    def brief(self) -> dict[str, Any]:
        """Return the variant as a row of a list of results."""
        return {
            "model": self.label,
            "seeds": f"{len(self.finished)} of {len(self.runs)}",
            "metric": self.run.metric,
            "final [95 %]": self.final and str(self.final),
            "best [95 %]": self.best and str(self.best),
            "diverged": self.diverged,
            "parameters": self.run.parameter_count,
            "s/epoch": self.seconds_per_epoch and self.seconds_per_epoch.mean,
        }


def group(members: Sequence[Member], by: Callable[[Member], str]) -> list[list[Member]]:
    """Group runs or variants by a value, in the order of each group's first member."""
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(by(member), []).append(member)
    return list(groups.values())


def of_one_machine(runs: Sequence[Run]) -> list[Run]:
    """Return the timed runs of the machine that trained most of them: a mean over machines is the time of none."""
    timed = [run for run in runs if run.seconds_per_epoch is not None]
    return max(group(timed, lambda run: run.environment.machine), key=len, default=[])


def variants(runs: Sequence[Run]) -> list[Variant]:
    """Return the variants of these runs, labelled by the model and the settings that distinguish its variants.

    The trials of a search distinguish no other variants, because a model that a search tuned is one row of a ranking.
    """
    groups = group(runs, lambda run: run.variant)
    firsts = [members[0] for members in groups]
    differing = differing_settings(firsts, lambda run: run.model)
    differing |= differing_settings([run for run in firsts if not run.is_trial], lambda run: run.model)
    return [Variant(_label(members[0].model, differing[members[0].key]), members) for members in groups]


def differing_settings(runs: Sequence[Run], by: Callable[[Run], str]) -> dict[str, dict[str, Any]]:
    """Return the settings and versions in which the runs of a group differ, for each run by key.

    Args:
        by: the value that the runs of a group share.
    """
    differing: dict[str, dict[str, Any]] = {}
    for members in group(runs, by):
        described = {run.variant: settings_of(run) for run in members}
        first = described[members[0].variant]
        names = {
            name
            for name in set().union(*described.values())
            if any(name not in own or own[name] != first.get(name) for own in described.values())
        }
        chosen = {
            variant: {name: value for name, value in own.items() if name in names} for variant, own in described.items()
        }
        differing |= {run.key: dict(chosen[run.variant]) for run in members}
    return differing


def _label(model: str, differing: Mapping[str, Any]) -> str:
    return " ".join([model, *(f"{name}={text(value)}" for name, value in differing.items())])


def backends(runs: Sequence[Run]) -> list[str]:
    """Return the distinct back ends of the finished runs, each with its device, such as "cpu on cpu", sorted."""
    return sorted({f"{run.backend} on {run.device}" for run in runs if run.status == Status.FINISHED and run.backend})


def settings_of(run: Run) -> dict[str, Any]:
    """Return all settings and versions of a run, without the seed."""
    spec = run.spec
    versions = {"task_version": spec["task_version"], "model_version": spec["model_version"]}
    return merged_settings(spec) | versions
