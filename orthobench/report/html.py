"""The page: one file that holds its data, its figures and the script that draws them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from orthobench import __version__
from orthobench.errors import UsageError
from orthobench.papers import papers
from orthobench.report import figures
from orthobench.report.collect import Condition, collect
from orthobench.report.studies import Found, draw, find
from orthobench.store import Store
from orthobench.studies import STUDIES, Study


def write_html(store: Store, out: Path, task: str | None = None, model: str | None = None) -> Path:
    """Write the page of everything in the database, or of one task's or model's runs alone, without the studies.

    Raises:
        UsageError: the file cannot be written.
    """
    conditions = collect(store, task, model)
    found = [] if task or model else [one for study in STUDIES if (one := find(store, study))]
    return _write(out, _render(conditions, found))


def write_study(store: Store, out: Path, study: Study) -> Path:
    """Write the page of one study.

    Raises:
        UsageError: the file cannot be written.
    """
    found = find(store, study)
    return _write(out, _render([], [found] if found else []))


def _write(out: Path, text: str) -> Path:
    part = out.with_name(out.name + ".part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(out)
    except OSError as error:
        raise UsageError(f"report {out} cannot be written: {error.strerror}; name another file with --out") from error
    return out.resolve()


def _render(conditions: list[Condition], found: list[Found]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("orthobench", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = [condition for one in found for _, condition in one.conditions]
    styles = figures.Styles([*conditions, *shown])
    sections = [draw(one, styles) for one in found]
    drawn = {condition.key: _figures(condition, styles) for condition in conditions}
    everything = drawn | {f"study-{section.study.name}": section.figures for section in sections}
    runs = {run.id for condition in (*conditions, *shown) for variant in condition.variants for run in variant.runs}
    return environment.get_template("page.html.j2").render(
        conditions=conditions,
        figures=drawn,
        studies=sections,
        styles=styles,
        papers={paper.key: paper for paper in papers()},
        plotly=Markup(get_plotlyjs()),  # the one script that is not ours; it is not text to escape
        css=Markup(_resource("page.css")),
        js=Markup(_resource("page.js")),
        data=Markup(
            _script_json({key: {name: _plain(f) for name, (_, f) in fs.items()} for key, fs in everything.items()})
        ),
        made=datetime.now(UTC),
        version=__version__,
        runs=len(runs),
    )


def _figures(condition: Condition, styles: figures.Styles) -> dict[str, tuple[str, go.Figure]]:
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
    }
    return {name: (caption, figure) for name, (caption, figure) in made.items() if figure is not None}


def _plain(figure: go.Figure) -> Any:
    return json.loads(figure.to_json())


def _script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
