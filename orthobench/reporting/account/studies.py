"""Load the results of the papers' studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orthobench.analysis.conditions import Condition, collect
from orthobench.papers import Study, studies
from orthobench.reporting.account.names import NO_LABELS, named
from orthobench.store import Benchmark, Run, Status, Store

EARLIER = "These runs are of an earlier edition, whose protocol differs."


@dataclass(frozen=True)
class StoredStudy:
    """A study's newest record, and the conditions of its runs with the figure of the paper to which each belongs."""

    study: Study
    record: Benchmark
    conditions: list[tuple[str, Condition]]

    @property
    def is_small(self) -> bool:
        """Whether the record is of the small version."""
        return _is_small(self.record)

    @property
    def runs(self) -> list[Run]:
        """The runs that have started, without duplicates, because figures may share runs."""
        variants = (variant for _, condition in self.conditions for variant in condition.variants)
        by_key = {run.key: run for variant in variants for run in variant.runs}
        return list(by_key.values())

    @property
    def ended(self) -> list[Run]:
        """The runs that have finished or diverged."""
        return [run for run in self.runs if Status(run.status).is_final]

    @property
    def progress(self) -> tuple[int, int]:
        """The number of finished or diverged runs, and the number of all runs."""
        keys = {key for keys in self.record.results.get("figures", {}).values() for key in keys}
        return len(self.ended), len(keys)

    @property
    def progress_words(self) -> str:
        """The numbers of runs that have finished and diverged, of all."""
        ended, total = self.progress
        diverged = sum(run.status == Status.DIVERGED for run in self.runs)
        return f"runs finished: {ended - diverged} of {total}" + (f", diverged: {diverged}" if diverged else "")

    @property
    def is_whole(self) -> bool:
        """Whether all runs at the paper's size have finished or diverged."""
        finished, total = self.progress
        return not self.is_small and finished == total

    @property
    def has_panels(self) -> bool:
        """Whether the study is a computation, whose figures are small parts of one figure."""
        return self.study.drawing == "trajectories"

    @property
    def remarks(self) -> list[str]:
        """The limitations of the figures; none for a computation, of which no run can be missing."""
        results, parts = self.record.results, []
        if self.has_panels:
            return []
        if results.get("quick"):
            parts.append("Toy sizes: the times are not meaningful.")
        elif self.is_small:
            parts.append("Here in the small version (preset quick).")
        if set(results.get("figures", {})) - {group.figure for group in self.study.run}:
            parts.append(EARLIER)
        ended, total = self.progress
        if ended < total or any(run.status == Status.DIVERGED for run in self.runs):
            parts.append(self.progress_words)
        return parts


def find_result(
    store: Store,
    study: Study,
    stored: Mapping[str, Run] | None = None,
    labels: Mapping[str, str] = NO_LABELS,
    known: Sequence[Condition] = (),
) -> StoredStudy | None:
    """Return the newest result of a study, preferably at the paper's size; None without a record.

    Args:
        stored: all runs by key, if they have been read.
        labels: the user's names of models, by their stored names; the others have those of the paper.
        known: conditions that were read before, whose measurements are not read again.
    """
    records = store.benchmarks(study.record)
    if not records:
        return None
    record = next((entry for entry in reversed(records) if not _is_small(entry)), records[-1])
    by_figure = record.results.get("figures", {})
    if stored is None:
        keys = {key for keys in by_figure.values() for key in keys}
        stored = {run.key: run for run in store.runs(keys=sorted(keys))}
    names = {**study.names, **labels}
    conditions = []
    for figure, keys in by_figure.items():
        runs = dict.fromkeys(run for key in keys if (run := stored.get(key)))
        chosen = sorted(runs, key=lambda run: run.id)  # each once, in the order of their start
        conditions += [(figure, named(condition, names)) for condition in collect(store, chosen, known)]
    return StoredStudy(study, record, conditions)


def study_results(
    store: Store, runs: Sequence[Run], labels: Mapping[str, str] = NO_LABELS, known: Sequence[Condition] = ()
) -> list[StoredStudy]:
    """Return the results of all studies with a record; `runs` are all runs, the rest is as for `find_result`."""
    stored = {run.key: run for run in runs}
    found = (find_result(store, study, stored, labels, known) for study in studies())
    return [result for result in found if result]


def _is_small(record: Benchmark) -> bool:
    return record.results.get("preset") == "quick" or record.results.get("quick") is True
