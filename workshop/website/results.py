"""The measurements: the runs of `results.db` compared with the papers, and the values in the baseline of the gate.

The views come from the report (`orthobench.reporting`), so the site and the report show the same numbers.
"""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orthobench.analysis.claims import ClaimResult
from orthobench.analysis.conditions import Condition
from orthobench.analysis.paper_tables import TableCell
from orthobench.gate.baseline import read_baseline
from orthobench.reporting.account.commentary import read_commentary
from orthobench.reporting.account.load import load_views
from orthobench.reporting.account.names import full_title
from orthobench.reporting.account.paper_views import ArtifactView, PaperView
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.account.studies import StoredStudy
from orthobench.reporting.page.html import write_html
from orthobench.reporting.tables.condition_tables import seeds_of
from orthobench.reporting.tables.table import shown_median
from orthobench.settings import text
from orthobench.spec.index import built_in
from orthobench.store import Store, open_store
from workshop.website.markdown import escape

ROOT = Path(__file__).resolve().parents[2]
DATABASE = ROOT / "results.db"
PAGE = ROOT / "reports" / "reference.html"
COMMENTARY = ROOT / "reports" / "commentary.toml"
ACCOUNT = ROOT / "reports" / "REPRODUCTION.md"
BASELINE = ROOT / "checks" / "baseline.toml"
SPEED = ROOT / "workshop" / "benchmarks" / "RESULTS.md"


@dataclass(frozen=True)
class Everything:
    """The conditions, papers and studies, with their measurements."""

    conditions: list[Condition]
    papers: list[PaperView]
    studies: list[StoredStudy]


@contextmanager
def reference_results() -> Iterator[Store]:
    """Open a copy of the reference results, because opening upgrades a database with an older schema."""
    with tempfile.TemporaryDirectory() as folder, open_store(shutil.copy(DATABASE, folder)) as store:
        yield store


@cache
def everything() -> Everything:
    """Read the reference results; later calls return the same object."""
    with reference_results() as store:
        return Everything(*load_views(store, Scope(), built_in()["variants"])[:3])


def reference_page() -> Path:
    """Return the file of the report on the reference results, after rewriting it if one of its sources is newer."""
    newest = max(source.stat().st_mtime for source in (DATABASE, COMMENTARY))
    if not PAGE.is_file() or PAGE.stat().st_mtime < newest:
        with reference_results() as store:
            write_html(store, PAGE, Scope(), built_in()["variants"], read_commentary(COMMENTARY))
    return PAGE


@dataclass(frozen=True)
class Decided:
    """A measured number of a table or a decided claim, with its paper."""

    paper: PaperView
    part: ArtifactView
    model: str
    cell: tuple[str, str, TableCell] | None = None
    claim: ClaimResult | None = None


def decided() -> Iterator[Decided]:
    """Yield all measured numbers of tables and all decided claims that count, in the order of the papers."""
    for view in everything().papers:
        for part in view.artifacts:
            for row in part.table.rows if part.table else []:
                for label, cell in row.cells.items():
                    if cell.measured is not None:
                        yield Decided(view, part, row.model, cell=(row.label, label, cell))
            for result in part.claim_results:
                if result.is_decided and not result.uncounted:
                    model: str = result.claim.model  # type: ignore[attr-defined] # of the classes with a verdict
                    yield Decided(view, part, model, claim=result)


NUMBERS = ["end: median [95 %]", "best: median [95 %]"]
LEARNED = ["task", "model", "parameters", "metric", *NUMBERS, "seeds finished", "without memory"]
"""The columns of `learned`."""


def learned(model: str) -> list[list[str]]:
    """Return a row with the columns `LEARNED` for each task and variant of a model's runs."""
    conditions = everything().conditions
    return [
        [
            f"[{condition.task}](../tasks/{condition.task}.md): {escape(full_title(condition, conditions))}",
            escape(variant.label),
            f"{variant.run.parameter_count:,}",
            escape(condition.metric.name),
            shown_median(variant.median),
            shown_median(variant.best),
            seeds_of(variant),
            "" if condition.baseline is None else f"{condition.baseline:.4g}",
        ]
        for condition in conditions
        for variant in condition.variants
        if variant.run.model == model and (variant.finished or variant.diverged)
    ]


GATE = ["task", "settings", "metric", "mean", "standard deviation", "seeds"]
"""The columns of `gate_values`."""


def gate_values(model: str) -> list[list[str]]:
    """Return rows with the columns `GATE` from the gate's baseline for a model; exact runs are left out."""
    rows = []
    for run in read_baseline(BASELINE).run:
        if run.model != model or run.exact:
            continue
        settings = ", ".join(f"`{name}={text(value)}`" for name, value in run.settings.items())
        for name, metric in run.metrics.items():
            values = list((metric.values or {}).values())
            if len(values) > 1:
                mean, deviation = statistics.mean(values), statistics.stdev(values)
                link = f"[{run.task}](../tasks/{run.task}.md)"
                rows.append([link, settings, escape(name), f"{mean:.3g}", f"{deviation:.2g}", str(len(values))])
    return rows


@cache
def time_per_step() -> dict[str, tuple[str, str]]:
    """Return each model's measured time of a training step with its unit, and its ratio to the time of scoRNN."""
    section = SPEED.read_text("utf-8").partition("## Every model\n")[2].partition("\n## ")[0]
    head = re.search(r"\| model \| (m?s) \|", section)
    if head is None:
        return {}
    table = section[head.start() :].partition("\n\n")[0]
    rows = re.findall(r"\| (\w+) \| (\d+\.\d+) \| (\d+\.\d+) (?=\|)", table)
    return {model: (f"{number} {head[1]}", multiple) for model, number, multiple in rows}
