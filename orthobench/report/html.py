"""The page: one file that holds its data, its figures and the script that draws them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from orthobench import __version__
from orthobench.analysis.conditions import Condition, collect
from orthobench.errors import UsageError
from orthobench.papers import Study, find_paper, papers
from orthobench.report import figures
from orthobench.report.pages import ArtifactView, PaperView, distinguishing_settings, leaderboard, tasks, view_paper
from orthobench.report.runs import run_records
from orthobench.report.scope import Scope
from orthobench.report.studies import StudyResult, draw, figures_of, find, study_results
from orthobench.report.styles import PALETTE, Styles
from orthobench.store import Status, Store, atomic

PAPER_FIGURES: dict[str, Callable[[Condition, Styles], go.Figure | None]] = {
    "learning_curves": figures.learning_curves,
    "orthogonality": figures.orthogonality,
    "gradient_norms": figures.gradient_norms,
}


def write_html(store: Store, out: Path, scope: Scope, variant_keys: Mapping[str, str]) -> Path:
    """Write the page and return its path. A scope with conditions shows no studies.

    Args:
        variant_keys: by the identity of every paper's experiment, the variant of its runs; only those runs are shown
            as the paper's.

    Raises:
        UsageError: no run is in scope, the file cannot be written, or the paper is unknown.
    """
    conditions, views, _ = load_views(store, scope, variant_keys)
    found = {part.artifact.study: part.found for view in views for part in view.artifacts if part.found}
    write_whole(out, _render(conditions, views, list(found.values())).encode())
    return out.resolve()


def write_study(store: Store, out: Path, study: Study) -> Path:
    """Write the page of one study.

    Raises:
        UsageError: the file cannot be written.
    """
    found = find(store, study)
    write_whole(out, _render([], [], [found] if found else []).encode())
    return out.resolve()


def load_views(
    store: Store, scope: Scope, variant_keys: Mapping[str, str]
) -> tuple[list[Condition], list[PaperView], list[StudyResult]]:
    """Return the measured conditions, the papers and the studies in scope.

    Raises:
        UsageError: no run is in scope, or the paper, table or figure is unknown.
    """
    shown = [find_paper(scope.paper)] if scope.paper else papers()
    conditions = collect(store, scope.select(store))
    studies = [] if scope.conditions else study_results(store)
    by_name = {each.study.name: each for each in studies}
    views = [view_paper(paper, conditions, variant_keys, by_name) for paper in shown]
    return conditions, scope.restrict(views), studies


def write_whole(out: Path, content: bytes) -> None:
    """Write or replace a file of a report; its folder is made.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(out, content)
    except OSError as error:
        raise UsageError(f"report {out} cannot be written: {error.strerror}; name another file with --out") from error


def _render(conditions: list[Condition], views: list[PaperView], found: list[StudyResult]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("orthobench", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = shown_number
    shown = [condition for one in found for _, condition in one.conditions]
    styles = Styles([*conditions, *shown])
    sections = [draw(one, styles) for one in found]
    counted = {run.id for c in (*conditions, *shown) for variant in c.variants for run in variant.runs}
    drawn = {condition.key: _figures(condition, styles) for condition in conditions}
    drawn |= {
        panel.key: {"paper": (f"{part.artifact.name}: {panel.title}", figure)} if figure else {}
        for view in views
        for part in view.artifacts
        for panel in part.panels
        for figure in [draw_panel(part, panel, styles)]
    }
    everything = drawn | {f"study-{section.study.name}": section.figures for section in sections}
    plots = {key: {name: _plain(f) for name, (_, f) in made.items()} for key, made in everything.items()}
    return environment.get_template("page.html.j2").render(
        conditions=conditions,
        tasks=tasks(conditions),
        leaderboard=leaderboard,
        distinguishing_settings=distinguishing_settings,
        views=views,
        figures=drawn,
        studies=sections,
        sections={section.study.name: section for section in sections},
        figures_of=figures_of,
        styles=styles,
        papers={paper.key: paper for paper in papers()},
        plotly=Markup(get_plotlyjs()),  # the one script that is not ours; it is not text to escape
        css=Markup(_resource("page.css")),
        js=Markup(_resource("page.js")),
        data=Markup(_script_json({"figures": plots, "palette": PALETTE, **run_records(conditions, styles)})),
        made=datetime.now(UTC),
        version=__version__,
        runs=len(counted),
        counts=_counts(conditions, views),
        unfinished=_unfinished(conditions),
        seeds=sorted({run.seed for c in conditions for variant in c.variants for run in variant.runs}),
        models=sorted({variant.run.model for c in conditions for variant in c.variants}),
        tag_names=sorted({tag for c in conditions for variant in c.variants for tag in variant.tags}),
    )


def draw_panel(part: ArtifactView, panel: Condition, styles: Styles) -> go.Figure | None:
    """A panel of a paper's figure; None without data."""
    return PAPER_FIGURES[part.artifact.shows](panel, styles)


def _counts(conditions: list[Condition], views: list[PaperView]) -> dict[str, Any]:
    """What the overview begins with."""
    statuses = [run.status for c in conditions for variant in c.variants for run in variant.runs]
    measured, results = (sum(view.coverage[part] for view in views) for part in (0, 1))
    verdicts = sum((view.verdicts for view in views), Counter[str]())
    held = [finding.held for view in views for finding in view.claim_results]
    return {
        "runs": len(statuses),
        "finished": statuses.count(Status.FINISHED),
        "measured": measured,
        "results": results,
        "verdicts": {group: verdicts[group] for group in ("agree", "better", "worse", "other")},
        "compared": verdicts["agree"] + verdicts["better"] + verdicts["worse"],
        "claims": len(held),
        "decided": len(held) - held.count(None),
        "held": held.count(True),
    }


def _unfinished(conditions: list[Condition]) -> str:
    """What there is of runs that have no final result, in words; nothing if all have one."""
    counts = Counter(run.status for c in conditions for variant in c.variants for run in variant.runs)
    finished = counts.pop(Status.FINISHED, 0)
    if not counts:
        return ""
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    rest = f"{finished} finished" if finished else "none finished: there are no results to compare yet"
    return f"Of {finished + sum(counts.values())} runs: {told}; {rest}."


def _figures(condition: Condition, styles: Styles) -> dict[str, tuple[str, go.Figure]]:
    """By name, the caption and the figure; those without data are left out."""
    made = {
        "curves": (
            "Learning curves: mean over seeds, band from the lowest to the highest seed; dashed: the baseline.",
            figures.learning_curves(condition, styles),
        ),
        "orthogonality": (
            "Distance of the recurrent matrices from orthogonal, over training.",
            figures.orthogonality(condition, styles),
        ),
        "gradients": (
            "Gradient of the loss by the state at every step, on the same batch before training (dotted) and after.",
            figures.gradient_norms(condition, styles),
        ),
        "parameters": (
            "Parameters against the best test value: mean and 95 % interval over seeds.",
            figures.pareto(condition, styles, "parameters"),
        ),
        "seconds": (
            "Training seconds per epoch, where the runs were made, against the best test value.",
            figures.pareto(condition, styles, "seconds per epoch"),
        ),
    }
    return {name: (caption, figure) for name, (caption, figure) in made.items() if figure is not None}


def shown_number(value: float | None, digits: int = 4) -> str:
    """A number as the report writes it."""
    return "–" if value is None else f"{value:.{digits}g}"


def _plain(figure: go.Figure) -> Any:
    return json.loads(figure.to_json())


def _script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in; what is not finite is null."""
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, default=str).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
