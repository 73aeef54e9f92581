"""From the database to the sections of the papers' studies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from orthobench.analysis.conditions import Condition, collect
from orthobench.papers import Artifact, Study, studies
from orthobench.report import study_figures
from orthobench.report.styles import Styles
from orthobench.store import Benchmark, Run, Status, Store


@dataclass(frozen=True)
class StudyResult:
    """What the database holds of a study: its record, and by the paper's figure the conditions its runs make."""

    study: Study
    record: Benchmark
    conditions: list[tuple[str, Condition]]

    @property
    def is_small(self) -> bool:
        """Whether it was asked for in the small version."""
        return _is_small(self.record)

    @property
    def runs(self) -> list[Run]:
        """Its runs as far as they are begun, each once: figures may share them."""
        by_key = {run.key: run for _, one in self.conditions for variant in one.variants for run in variant.runs}
        return list(by_key.values())

    @property
    def progress(self) -> tuple[int, int]:
        """How many of its runs have come to an end, which may be that they diverged, and how many there are to be."""
        keys = {key for keys in self.record.results.get("figures", {}).values() for key in keys}
        return sum(Status(run.status).is_final for run in self.runs), len(keys)

    @property
    def is_whole(self) -> bool:
        """Whether everything is there, at the paper's size."""
        finished, wanted = self.progress
        return not self.is_small and finished == wanted


@dataclass(frozen=True)
class StudyTable:
    caption: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True)
class Section:
    """A study as the page shows it: figures by name, with their captions; `panels`: they are small, parts of one."""

    study: Study
    remark: str
    figures: dict[str, tuple[str, go.Figure]]
    tables: list[StudyTable]
    panels: bool = False


def find(store: Store, study: Study) -> StudyResult | None:
    """The newest record of a study, one at the paper's sizes before a small one; None if it was never asked for."""
    records = store.benchmarks(study.record)
    if not records:
        return None
    record = next((one for one in reversed(records) if not _is_small(one)), records[-1])
    named = record.results.get("figures", {})
    conditions = [
        (figure, condition) for figure, keys in named.items() for condition in collect(store, store.runs(keys=keys))
    ]
    return StudyResult(study, record, conditions)


def study_results(store: Store) -> list[StudyResult]:
    """The studies that were asked for."""
    return [found for study in studies() if (found := find(store, study))]


def draw(found: StudyResult, styles: Styles) -> Section:
    """Its figures and tables, as far as there is data for them."""
    made: dict[str, tuple[str, go.Figure]] = {}
    tables = []
    if found.study.drawing == "trajectories":
        return Section(found.study, "", study_figures.trajectories(found.record.results["panels"]), [], panels=True)
    if found.study.drawing == "times":
        made["table 3"] = study_figures.minutes(found.record.results, styles)
        tables = [_table_3(found.record), _lstms(found), _equal_size(found.record)]
    else:
        for number, (figure, condition) in enumerate(found.conditions):
            for name, drawn in study_figures.DRAWINGS[found.study.drawing](figure, condition, styles).items():
                made[f"{number} {name}"] = drawn
    return Section(found.study, _remark(found), made, tables)


def figures_of(artifact: Artifact, section: Section) -> dict[str, tuple[str, go.Figure]]:
    """Those of a study's figures that a paper's figure consists of."""
    wanted = f" {artifact.panel} " if artifact.panel else ""
    return {name: drawn for name, drawn in section.figures.items() if wanted in f" {name} "}


def _is_small(record: Benchmark) -> bool:
    return record.results.get("preset") == "quick" or record.results.get("quick") is True


def _remark(found: StudyResult) -> str:
    """What the figures are not."""
    results, parts = found.record.results, []
    if results.get("quick"):
        parts.append("Toy sizes: the times mean nothing.")
    elif found.is_small:
        parts.append("Here in the small version (--preset quick).")
    finished, wanted = found.progress
    if finished < wanted:
        parts.append(f"{finished} of {wanted} runs are finished.")
    return " ".join(parts)


def _table_3(record: Benchmark) -> StudyTable:
    rows = [row for row in _rows(record, "table 3") if row["printed"] is not None]
    base = next(row for row in rows if row["model"] == "rnn")
    return StudyTable(
        f"Minutes per epoch of 55 000 images in batches of 50, measured on {_machine(record)} and printed of a Core "
        f"i5-7400 with a GTX 1080; and how many times those of the plain RNN with n = {base['hidden_size']}.",
        ("model", "n", "measured", "printed", "x RNN, measured", "x RNN, printed"),
        [
            (
                row["model"],
                str(row["hidden_size"]),
                f"{row['minutes']:.3g}",
                f"{row['printed']:.3g}",
                f"{row['minutes'] / base['minutes']:.2f}",
                f"{row['printed'] / base['printed']:.2f}",
            )
            for row in rows
        ],
    )


def _lstms(found: StudyResult) -> StudyTable:
    rows = [row for row in _rows(found.record, "table 3") if row["model"] == "lstm"]
    measured = [(f"here, n = {row['hidden_size']}", f"{60 * row['minutes']:.3g}") for row in rows]
    printed = [(f"printed, {name}", f"{seconds:.4g}") for name, seconds in found.study.other_seconds.items()]
    return StudyTable(
        "The LSTM's seconds per epoch, beside those on slides about AntisymmetricRNN (sizes not stated).",
        ("LSTM", "seconds"),
        [*measured, *printed],
    )


def _equal_size(record: Benchmark) -> StudyTable:
    rows = _rows(record, "equal size")
    base = next(row for row in rows if row["model"] == "rnn")
    return StudyTable(
        f"The same for every model at one size, n = {base['hidden_size']}.",
        ("model", "minutes", "x RNN"),
        [(row["model"], f"{row['minutes']:.3g}", f"{row['minutes'] / base['minutes']:.2f}") for row in rows],
    )


def _rows(record: Benchmark, shape: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(one["rows"] for one in record.results["shapes"] if one["shape"]["name"] == shape)
    return found


def _machine(record: Benchmark) -> str:
    facts = record.environment.facts
    return str(facts["accelerator"] or f"{facts['cpu']}, {record.results['threads']} threads")
