"""Write the page: one HTML file with its data, its figures and the script that draws them."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from orthobench.analysis.claims import count_claims
from orthobench.analysis.conditions import SOLVED, Condition, collect
from orthobench.analysis.paper_tables import TOLERANCE
from orthobench.errors import UsageError
from orthobench.papers import Study, find_paper, papers
from orthobench.reporting.decimate import slim
from orthobench.reporting.figures import condition_figures
from orthobench.reporting.pages import (
    GROUPS,
    PaperView,
    distinguishing_settings,
    full_title,
    headline,
    leaderboard,
    mark_repeated_claims,
    tasks,
    view_paper,
)
from orthobench.reporting.paper_figures import panel_figures, printed_panels
from orthobench.reporting.runs import run_records
from orthobench.reporting.scope import Scope
from orthobench.reporting.studies import StudyResult, draw, figures_of, find_result, study_results
from orthobench.reporting.styles import PALETTE, Styles
from orthobench.store import Status, Store, atomic
from orthobench.store.overwrite import refuse_other_kinds
from orthobench.store.strict_json import finite
from orthobench.version import __version__


def write_html(store: Store, out: Path, scope: Scope, variant_keys: Mapping[str, str]) -> Path:
    """Write the page and return its path. A scope with conditions shows no studies.

    Args:
        variant_keys: by the identity of every paper's experiment, the variant of its runs; only those runs are shown
            as the paper's.

    Raises:
        UsageError: no run is in scope, the file cannot be written, or the paper is unknown.
    """
    conditions, views, _ = load_views(store, scope, variant_keys)
    results = {part.artifact.study: part.study_result for view in views for part in view.artifacts if part.study_result}
    write_whole(out, _render(conditions, views, list(results.values())).encode(), "HTML")
    return out.resolve()


def write_study(store: Store, out: Path, study: Study) -> Path:
    """Write the page of one study, and return its path.

    Raises:
        UsageError: the file cannot be written.
    """
    result = find_result(store, study)
    write_whole(out, _render([], [], [result] if result else []).encode(), "HTML")
    return out.resolve()


def load_views(
    store: Store, scope: Scope, variant_keys: Mapping[str, str]
) -> tuple[list[Condition], list[PaperView], list[StudyResult]]:
    """Return the measured conditions, the papers and the studies in scope.

    Raises:
        UsageError: no run is in scope, or the paper, table or figure is unknown.
    """
    selected = [find_paper(scope.paper)] if scope.paper else papers()
    conditions = collect(store, scope.select(store))
    results = [] if scope.conditions else study_results(store)
    by_name = {result.study.name: result for result in results}
    views = mark_repeated_claims([view_paper(paper, conditions, variant_keys, by_name) for paper in papers()])
    return conditions, scope.restrict([view for view in views if view.paper in selected]), results


def write_whole(out: Path, content: bytes, kind: str) -> None:
    """Write or replace a file of a report, with its folder.

    Args:
        kind: the kind of file, as in `orthobench.store.overwrite.KINDS`.

    Raises:
        UsageError: the file cannot be written, or an existing file is of another kind.
    """
    refuse_other_kinds(out, kind)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(out, content)
    except OSError as error:
        raise UsageError(f"report {out} cannot be written: {error.strerror}; name another file with --out") from error


def _render(conditions: list[Condition], views: list[PaperView], results: list[StudyResult]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("orthobench", "reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = shown_number
    environment.filters["citations"] = citations
    studied = [condition for result in results for _, condition in result.conditions]
    styles = Styles([*conditions, *studied])
    sections = [draw(result, styles) for result in results]
    counted = {run.id for c in (*conditions, *studied) for variant in c.variants for run in variant.runs}
    drawn = {condition.key: condition_figures(condition, styles) for condition in conditions}
    drawn |= {
        panel.key: panel_figures(part, panel, styles)
        for view in views
        for part in view.artifacts
        for panel in part.panels
    }
    everything = drawn | {f"study-{section.study.name}": section.figures for section in sections}
    plots = {key: {name: _plain(f) for name, (_, f) in drawings.items()} for key, drawings in everything.items()}
    return environment.get_template("page.html.j2").render(
        conditions=conditions,
        tasks=tasks(conditions),
        leaderboard=leaderboard,
        headline=headline,
        groups=GROUPS,
        infinity=math.inf,
        tolerance=TOLERANCE,
        solved_part=SOLVED,
        distinguishing_settings=distinguishing_settings,
        full_title=full_title,
        views=views,
        figures=drawn,
        studies=sections,
        sections={section.study.name: section for section in sections},
        figures_of=figures_of,
        printed_panels=printed_panels,
        styles=styles,
        papers={paper.key: paper for paper in papers()},
        plotly=Markup(get_plotlyjs()),  # a script, not text to escape
        css=Markup(_resource("page.css")),
        js=Markup(_resource("page.js")),
        data=Markup(_script_json({"figures": plots, "palette": PALETTE, **run_records(conditions, styles)})),
        created_at=datetime.now(UTC),
        version=__version__,
        runs=len(counted),
        counts=_counts(conditions, views),
        unfinished=_unfinished(conditions),
        seeds=sorted({run.seed for c in conditions for variant in c.variants for run in variant.runs}),
        models=sorted({variant.run.model for c in conditions for variant in c.variants}),
        tag_names=sorted({tag for c in conditions for variant in c.variants for tag in variant.tags}),
    )


def _counts(conditions: list[Condition], views: list[PaperView]) -> dict[str, Any]:
    """Return the counts at the top of the overview."""
    statuses = [run.status for c in conditions for variant in c.variants for run in variant.runs]
    measured, results = (sum(view.coverage[part] for view in views) for part in (0, 1))
    verdicts = sum((view.verdicts for view in views), Counter[str]())
    return {
        "runs": len(statuses),
        "finished": statuses.count(Status.FINISHED),
        "measured": measured,
        "results": results,
        "verdicts": {group: verdicts[group] for group in GROUPS},
        "compared": sum(view.compared for view in views),
        "claims": count_claims([result for view in views for result in view.claim_results]),
    }


def _unfinished(conditions: list[Condition]) -> str:
    """Return the number of runs by status, in words; empty if all runs are finished."""
    counts = Counter(run.status for c in conditions for variant in c.variants for run in variant.runs)
    finished = counts.pop(Status.FINISHED, 0)
    if not counts:
        return ""
    others = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    rest = f"{finished} finished" if finished else "none finished: there are no results to compare yet"
    return f"Of {finished + sum(counts.values())} runs: {others}; {rest}."


def shown_number(value: float | None, digits: int = 4) -> str:
    """Write a number as the report does."""
    return "–" if value is None else f"{value:.{digits}g}"


def citations(text: str) -> list[tuple[str, str]]:
    """Split a text after each cited discrepancy (D-NN): the text before it, and the number or nothing."""
    parts = re.split(r"\b(D-\d+)\b", text)
    return list(zip_longest(parts[::2], parts[1::2], fillvalue=""))


def _plain(figure: go.Figure) -> Any:
    return json.loads(slim(figure).to_json())


def _script_json(value: Any) -> str:
    """Return JSON that cannot end its script element, with null for numbers that are not finite."""
    return json.dumps(finite(value), separators=(",", ":"), allow_nan=False, default=str).replace("<", "\\u003c")


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
