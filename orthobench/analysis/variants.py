"""Group runs that differ only by seed: their label and their results over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from orthobench.analysis.statistics import Median, Summary, median, summarize
from orthobench.settings import merged_settings, text
from orthobench.spec.index import built_in
from orthobench.store import Status

if TYPE_CHECKING:
    from orthobench.store import Run


Member = TypeVar("Member")
CHOSEN_TESTS = {"best": "best: median [95 %]", "at_best_validation": "at best validation: median [95 %]"}
"""The tests chosen by the test data and by the validation data, of which a variant has one, with their headings."""


@dataclass(frozen=True)
class Variant:
    """A model with one set of settings, over its seeds."""

    label: str
    runs: list[Run]
    differing: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """The settings and versions that tell the variant from others of its model, which `label` names."""

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

    @property
    def backend_note(self) -> str:
        """Several back ends of the finished runs, in words; empty if one has trained all of them."""
        names = self.backends
        if len(names) > 1:
            return f"pooled over back ends: {'; '.join(names)}"
        return "".join(f"trained on {name}" for name in names if ", then " in name)

    @cached_property
    def tags(self) -> list[str]:
        """The tags of all runs, sorted."""
        return sorted({tag for run in self.runs for tag in run.tags})

    @property
    def final(self) -> Median | None:
        """The median of the last test over the finished and the diverged runs."""
        return self._median(run.final_value for run in self.finished)

    @property
    def best(self) -> Median | None:
        """The median of the best test over the finished and the diverged runs; None if validation data judge them."""
        return None if self.run.is_judged_by_validation else self._median(run.best_test for run in self.finished)

    @property
    def at_best_validation(self) -> Median | None:
        """The median of the test at the best validation; None if the tests judge the runs."""
        validated = self.run.is_judged_by_validation
        return self._median(run.at_best_validation for run in self.finished) if validated else None

    def _median(self, values: Iterable[float | None]) -> Median | None:
        """Return the median of the finished runs' values; a run that diverged, or has no finite value, is the worst."""
        worst = self.run.main_metric.worst
        own = [worst if value is None or math.isnan(value) else value for value in values]
        return None if self.run.is_trial else median(own + [worst] * self.diverged)

    @cached_property
    def timed(self) -> list[Run]:
        """The timed runs of the machine and clock that timed most of them (`of_one_machine`)."""
        return of_one_machine(self.runs)

    @property
    def timed_on(self) -> str:
        """The machine and clock of the runs of `seconds_per_epoch` (`Run.timed_on`); "" without any."""
        return next((run.timed_on for run in self.timed), "")

    @property
    def seconds_per_epoch(self) -> Summary | None:
        """Seconds of an epoch over the runs of the machine and clock that timed most of them."""
        seconds = [seconds for run in self.timed if (seconds := run.seconds_per_epoch) is not None]
        return summarize(seconds, bounds=(0.0, math.inf))


def group(members: Sequence[Member], by: Callable[[Member], str]) -> list[list[Member]]:
    """Group runs or variants by a value, in the order of each group's first member."""
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(by(member), []).append(member)
    return list(groups.values())


def of_one_machine(runs: Sequence[Run]) -> list[Run]:
    """Return the timed runs of the machine and clock that timed most of them, because others do not compare."""
    timed = [run for run in runs if run.seconds_per_epoch is not None]
    return max(group(timed, lambda run: run.timed_on), key=len, default=[])


def are_in_cpu_time(members: Sequence[Variant]) -> bool:
    """Return whether all times of these variants are CPU time, as headings then say; false without any time."""
    timed = [run for variant in members for run in variant.timed]
    return bool(timed) and all(run.has_cpu_time for run in timed)


def untimed(members: Sequence[Variant]) -> list[str]:
    """Return why some runs of these variants have no times of single phases; empty if all have."""
    return list(dict.fromkeys(run.untimed for variant in members for run in variant.runs if run.untimed))


def briefs(members: Sequence[Variant]) -> list[dict[str, Any]]:
    """Return these variants as rows of one list."""
    clock = "CPU s/epoch" if are_in_cpu_time(members) else "s/epoch"
    chosen = chosen_tests(members)
    return [
        {
            "model": variant.label,
            "seeds": f"{len(variant.finished)} of {len(variant.runs)}",
            "metric": variant.run.metric,
            "final: median [95 %]": variant.final and str(variant.final),
            **{heading: (value := getattr(variant, name)) and str(value) for name, heading in chosen.items()},
            "diverged": variant.diverged,
            "parameters": variant.run.parameter_count,
            clock: variant.seconds_per_epoch and variant.seconds_per_epoch.mean,
        }
        for variant in members
    ]


def chosen_tests(members: Sequence[Variant]) -> dict[str, str]:
    """Return those of `CHOSEN_TESTS` that some of these variants have."""
    return {
        name: heading
        for name, heading in CHOSEN_TESTS.items()
        if any(getattr(variant, name) is not None for variant in members)
    }


def variants(runs: Sequence[Run]) -> list[Variant]:
    """Return the variants of these runs, labelled by the model and the settings that distinguish its variants.

    The label of runs of an earlier version of a model has the version too (`newer_version`). The trials of a search
    distinguish no other variants, because a model that a search tuned is one row of a ranking.
    """
    groups = group(runs, lambda run: run.variant)
    firsts = [members[0] for members in groups]
    differing = differing_settings(firsts, lambda run: run.model)
    differing |= differing_settings([run for run in firsts if not run.is_trial], lambda run: run.model)

    def variant(members: list[Run]) -> Variant:
        run = members[0]
        own = differing[run.key] | ({"model_version": run.spec["model_version"]} if newer_version(run) else {})
        return Variant(_label(run.model, own), members, differing=own)

    return list(map(variant, groups))


def newer_version(run: Run) -> str:
    """Return the version that a built-in model has now, if the run is of an earlier one; else, ""."""
    now = str(built_in()["plugins"].get(f"model/{run.model}", {}).get("version", ""))
    return now if now != str(run.spec["model_version"]) else ""


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
    """Return the distinct back ends of the finished runs (`Run.trained_with`), sorted."""
    return sorted({run.trained_with for run in runs if run.status == Status.FINISHED and run.backend})


def settings_of(run: Run) -> dict[str, Any]:
    """Return all settings and versions of a run, without the seed."""
    spec = run.spec
    versions = {"task_version": spec["task_version"], "model_version": spec["model_version"]}
    return merged_settings(spec) | versions
