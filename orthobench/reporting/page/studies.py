"""Load the results of the papers' studies and draw their sections of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orthobench.analysis.conditions import Condition, collect
from orthobench.papers import Artifact, Study, studies
from orthobench.reporting.figures import study_figures
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.figures.tracking_figures import tracking_figures
from orthobench.reporting.page.kept import Kept
from orthobench.reporting.page.names import NO_LABELS, distinguishing_settings, name_of, named
from orthobench.reporting.tables.longer_tests import longer_table
from orthobench.reporting.tables.study_lengths import length_tables
from orthobench.reporting.tables.study_table import StudyTable
from orthobench.store import Benchmark, Run, Status, Store


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
    def progress(self) -> tuple[int, int]:
        """The number of finished or diverged runs, and the number of all runs."""
        keys = {key for keys in self.record.results.get("figures", {}).values() for key in keys}
        return sum(Status(run.status).is_final for run in self.runs), len(keys)

    @property
    def progress_words(self) -> str:
        """How many runs are finished, and how many diverged."""
        ended, total = self.progress
        diverged = sum(run.status == Status.DIVERGED for run in self.runs)
        return f"{ended - diverged} of {total} runs are finished" + (f", and {diverged} diverged" if diverged else "")

    @property
    def is_whole(self) -> bool:
        """Whether all runs at the paper's size have finished or diverged."""
        finished, total = self.progress
        return not self.is_small and finished == total


@dataclass(frozen=True)
class Section:
    """A study as the page shows it: captions and figures by name; with `panels` these are small parts of one figure."""

    study: Study
    remark: str
    figures: dict[str, tuple[str, Figure]]
    tables: list[StudyTable]
    panels: bool = False


def find_result(
    store: Store,
    study: Study,
    stored: Mapping[str, Run] | None = None,
    kept: Kept | None = None,
    labels: Mapping[str, str] = NO_LABELS,
    known: Sequence[Condition] = (),
) -> StoredStudy | None:
    """Return the newest result of a study, preferably at the paper's size; None without a record.

    Args:
        stored: all runs by key, if they have been read.
        kept: what an earlier call has read, with the same labels.
        labels: the user's names of models, by their stored names; the others have those of the paper.
        known: conditions that were read before, whose measurements are not read again.
    """
    kept = kept or Kept()
    records = store.benchmarks(study.record)
    if not records:
        return None
    record = next((entry for entry in reversed(records) if not _is_small(entry)), records[-1])
    by_figure = record.results.get("figures", {})
    if stored is None:
        keys = {key for keys in by_figure.values() for key in keys}
        stored = {run.key: run for run in store.runs(keys=sorted(keys))}
    members = {figure: [run for key in keys if (run := stored.get(key))] for figure, keys in by_figure.items()}
    names = {**study.names, **labels}

    def read() -> StoredStudy:
        conditions = []
        for figure, runs in members.items():
            chosen = sorted(dict.fromkeys(runs), key=lambda run: run.id)  # each once, in the order of their start
            conditions += [(figure, named(condition, names)) for condition in collect(store, chosen, known)]
        return StoredStudy(study, record, conditions)

    return kept(f"study {study.name}", [run for runs in members.values() for run in runs], record.id, read)


def study_results(
    store: Store, kept: Kept, labels: Mapping[str, str] = NO_LABELS, known: Sequence[Condition] = ()
) -> list[StoredStudy]:
    """Return the results of all studies with a record; `kept` has read all runs, the rest is as for `find_result`."""
    stored = kept.by_key()
    found = (find_result(store, study, stored, kept, labels, known) for study in studies())
    return [result for result in found if result]


def draw(result: StoredStudy, styles: Styles) -> Section:
    """Draw the figures and tables of a study that have data."""
    drawings: dict[str, tuple[str, Figure]] = {}
    tables = []
    if result.study.drawing == "trajectories":
        return Section(result.study, "", study_figures.trajectories(result.record.results["panels"]), [], panels=True)
    if result.study.drawing == "times":
        names = result.study.names
        drawings["table 3"] = study_figures.minutes(result.record.results, styles, names)
        tables = [_table_3(result.record, names), _lstms(result), _equal_size(result.record, names)]
    else:
        if result.study.drawing == "state_tracking":
            drawings |= tracking_figures(result.conditions)
        for number, (figure, condition) in enumerate(result.conditions):
            others = [other for name, other in result.conditions if name == figure]
            data = distinguishing_settings(condition, others)
            title, apart = (f" ({data})", f" In a figure of its own because of its data: {data}.") if data else ("", "")
            for name, (words, drawn) in study_figures.DRAWINGS[result.study.drawing](figure, condition, styles).items():
                drawings[f"{number} {name}{title}"] = (words + apart, drawn)
        if result.study.drawing == "state_tracking":
            tables = length_tables(result.conditions)
        if result.study.drawing == "longer_tests":
            tables = longer_table(result.conditions)
    return Section(result.study, _remark(result), drawings, tables)


def figures_of(artifact: Artifact, section: Section) -> dict[str, tuple[str, Figure]]:
    """Return the drawings of a study that belong to a paper's figure."""
    word = f" {artifact.panel} " if artifact.panel else ""
    return {name: drawn for name, drawn in section.figures.items() if word in f" {name} "}


def _is_small(record: Benchmark) -> bool:
    return record.results.get("preset") == "quick" or record.results.get("quick") is True


def _remark(result: StoredStudy) -> str:
    """Return the limitations of the figures, in words."""
    results, parts = result.record.results, []
    if results.get("quick"):
        parts.append("Toy sizes: the times are not meaningful.")
    elif result.is_small:
        parts.append("Here in the small version (preset quick).")
    if set(results.get("figures", {})) - {group.figure for group in result.study.run}:
        parts.append("These runs are of an earlier edition, whose protocol differs.")
    ended, total = result.progress
    if ended < total or any(run.status == Status.DIVERGED for run in result.runs):
        parts.append(f"{result.progress_words}.")
    return " ".join(parts)


def _table_3(record: Benchmark, names: Mapping[str, str]) -> StudyTable:
    rows = [row for row in _rows(record, "table 3") if row["printed"] is not None]
    base = next(row for row in rows if row["model"] == "rnn")
    return StudyTable(
        f"Minutes per epoch of 55 000 images in batches of 50, measured on {_machine(record)} and published for a Core "
        f"i5-7400 with a GTX 1080, with the ratio to the plain RNN of n = {base['hidden_size']}.",
        ("model", "n", "measured", "published", "x RNN, measured", "x RNN, published"),
        [
            (
                name_of(row["model"], names),
                str(row["hidden_size"]),
                f"{row['minutes']:.3g}",
                f"{row['printed']:.3g}",
                f"{row['minutes'] / base['minutes']:.2f}",
                f"{row['printed'] / base['printed']:.2f}",
            )
            for row in rows
        ],
    )


def _lstms(result: StoredStudy) -> StudyTable:
    rows = [row for row in _rows(result.record, "table 3") if row["model"] == "lstm"]
    measured = [(f"here, n = {row['hidden_size']}", f"{60 * row['minutes']:.3g}") for row in rows]
    printed = [(f"published, {name}", f"{seconds:.4g}") for name, seconds in result.study.other_seconds.items()]
    return StudyTable(
        "The LSTM's seconds per epoch, next to the numbers on slides about AntisymmetricRNN (sizes not stated).",
        ("LSTM", "seconds"),
        [*measured, *printed],
    )


def _equal_size(record: Benchmark, names: Mapping[str, str]) -> StudyTable:
    rows = _rows(record, "equal size")
    base = next(row for row in rows if row["model"] == "rnn")
    return StudyTable(
        f"The same for every model at one size, n = {base['hidden_size']}.",
        ("model", "minutes", "x RNN"),
        [
            (name_of(row["model"], names), f"{row['minutes']:.3g}", f"{row['minutes'] / base['minutes']:.2f}")
            for row in rows
        ],
    )


def _rows(record: Benchmark, shape: str) -> list[dict[str, Any]]:
    shapes = record.results["shapes"]
    rows: list[dict[str, Any]] = next(entry["rows"] for entry in shapes if entry["shape"]["name"] == shape)
    return rows


def _machine(record: Benchmark) -> str:
    threads = "" if record.environment.facts["accelerator"] else f", {record.results['threads']} threads"
    return record.environment.machine + threads
