"""Write the page: one HTML file with the data, the figures and the scripts that draw them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension
from markupsafe import Markup, escape

from orthobench.analysis.aggregates import WIDEST
from orthobench.analysis.claims import count_claims
from orthobench.analysis.conditions import SOLVED, Condition
from orthobench.analysis.inference import MEANINGS
from orthobench.analysis.paper_tables import TOLERANCE, fill_command
from orthobench.analysis.searches import SearchData, collect_searches
from orthobench.errors import UsageError
from orthobench.papers import Study, papers
from orthobench.papers.discrepancies import discrepancies
from orthobench.reporting.figures.drawing import flat_words, remarks
from orthobench.reporting.figures.figures import SCORES, Drawn, condition_figures, without_score
from orthobench.reporting.figures.length_figures import over_length
from orthobench.reporting.figures.paper_figures import panel_figures, printed_panels
from orthobench.reporting.figures.styles import PALETTE, Styles
from orthobench.reporting.page import sparks, verdict_sheet
from orthobench.reporting.page.bundle import bundle
from orthobench.reporting.page.captions import capitalized
from orthobench.reporting.page.commentary import Commentary, read_source, render
from orthobench.reporting.page.compressed_blocks import block, json_block, plotly_block, plotly_script, policy
from orthobench.reporting.page.contents import Contents, contents_of
from orthobench.reporting.page.facts import Facts
from orthobench.reporting.page.kept import Kept
from orthobench.reporting.page.matrix import FILL, MatrixColumn, ResultMatrix, compute_matrix
from orthobench.reporting.page.names import NO_LABELS, full_title, in_words, name_of, panel_of, short_labels
from orthobench.reporting.page.own_models import NONE_EARLIER, own_models, words_of_earlier
from orthobench.reporting.page.packed_figures import figure_json, packed_figures
from orthobench.reporting.page.pages import (
    APART,
    GROUPS,
    ArtifactView,
    PaperView,
    compared,
    group_of,
    headline,
    leaderboard,
    more_seeds,
    study_claims,
    tasks,
    total_verdicts,
)
from orthobench.reporting.page.regressions import GatedNumber, draw_gate, gated_numbers, regressions
from orthobench.reporting.page.run_records import points_for, run_details, run_index, sweep_records
from orthobench.reporting.page.scope import Scope
from orthobench.reporting.page.search_data import search_record
from orthobench.reporting.page.studies import Section, StoredStudy, draw, figures_of, find_result
from orthobench.reporting.page.views import load_views
from orthobench.reporting.tables.printed_numbers import explanation, numbers_sheet, open_hours, printed_numbers
from orthobench.reporting.tables.reproduction import where_it_was_run
from orthobench.spec.index import index
from orthobench.store import Status, Store
from orthobench.store.result import UNTIMED
from orthobench.system.cycles import without_cycle_search
from orthobench.system.files import write_bytes
from orthobench.system.kinds import refuse_other_kinds
from orthobench.version import __version__

CHARTS = {
    "Course": ["curves"],
    "Seeds": ["seeds"],
    "Solved": ["solved"],
    "Lengths": ["lengths"],
    "Cost": ["parameters", "state", "seconds"],
    "Gradients": ["gradients"],
    "Orthogonality": [*SCORES],
}
"""The figures of a condition under each tab of its page."""


def write_html(
    store: Store, out: Path, scope: Scope, variant_keys: Mapping[str, str], commentary: Path | None = None
) -> Path:
    """Write the page and return its path; a scope with conditions shows no studies.

    Args:
        variant_keys: the variant of each experiment's runs, by the experiment's identity; only these runs are shown as
            the paper's.
        commentary: a Markdown file in which the author comments on what was reproduced; the page shows it, with its
            placeholders filled in.

    Raises:
        UsageError: no run is in scope, a file cannot be read or written, or the paper is unknown.
    """
    page, _ = build_page(store, scope, variant_keys, commentary)
    write_whole(out, page.encode(), "HTML")
    return out.resolve()


@without_cycle_search()
def build_page(
    store: Store,
    scope: Scope,
    variant_keys: Mapping[str, str],
    commentary: Path | None = None,
    sweeps: Sequence[Mapping[str, Any]] | None = None,
    kept: Kept | None = None,
) -> tuple[str, Contents]:
    """Return the text of the page and its contents.

    Args:
        variant_keys: as for `write_html`.
        sweeps: the sweeps that train now (`running_sweeps`), on a page that a server updates.
        kept: the parts of an earlier page with the same scope, of which those with changed runs are built again.

    Raises:
        UsageError: no run is in scope, the Markdown file cannot be read, or the paper is unknown.
    """
    source = read_source(commentary) if commentary else ""
    kept = kept or Kept()
    conditions, views, _, earlier = load_views(store, scope, variant_keys, kept)
    author_text = render(source, Facts(conditions, views), str(commentary)) if commentary else None
    results = {part.artifact.study: part.study_result for view in views for part in view.artifacts if part.study_result}
    searches = collect_searches(store, conditions)
    gated = [] if scope.conditions or scope.paper else gated_numbers(store)
    found = list(results.values())
    page = _render(conditions, views, found, searches, author_text, sweeps, gated, kept, scope.labels, earlier)
    return page, contents_of(conditions, views)


def empty_page(sweeps: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the page of a database that does not exist yet, which a server renews; `sweeps` as for `build_page`."""
    return _render([], [], [], sweeps=sweeps)


def write_study(store: Store, out: Path, study: Study) -> Path:
    """Write the page of one study, and return its path.

    Raises:
        UsageError: the file cannot be written.
    """
    result = find_result(store, study)
    write_whole(out, _render([], [], [result] if result else []).encode(), "HTML")
    return out.resolve()


def write_whole(out: Path, content: bytes, kind: str) -> None:
    """Write or replace a file of a report, creating its folder if necessary.

    Args:
        kind: the kind of file, as in `orthobench.system.kinds.KINDS`.

    Raises:
        UsageError: the file cannot be written, or an existing file is of another kind.
    """
    refuse_other_kinds(out, kind)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out, content)
    except OSError as error:
        raise UsageError(f"report {out} cannot be written: {error.strerror}; name another file with `out`") from error


def _render(
    conditions: list[Condition],
    views: list[PaperView],
    results: list[StoredStudy],
    searches: Sequence[SearchData] = (),
    commentary: Commentary | None = None,
    sweeps: Sequence[Mapping[str, Any]] | None = None,
    gated: Sequence[GatedNumber] = (),
    kept: Kept | None = None,
    names: Mapping[str, str] = NO_LABELS,
    earlier: Mapping[str, int] = NONE_EARLIER,
) -> str:
    kept = kept or Kept()
    studied = [condition for result in results for _, condition in result.conditions]
    styles = kept.styles = Styles([*conditions, *studied], kept.styles)
    parts = [
        *(_study_part(result, styles, kept) for result in results),
        *(_condition_part(condition, styles, kept) for condition in conditions),
        *(_panel_part(part, panel, styles, kept) for view in views for part in view.artifacts for panel in part.panels),
    ]
    sections = [part.section for part in parts if part.section]
    drawn = {part.key: part.figures for part in parts}
    counted = {run.id: run for c in (*conditions, *studied) for variant in c.variants for run in variant.runs}
    matrix = compute_matrix(conditions, names)
    is_measured = any(view.coverage[0] for view in views)
    printed = printed_numbers(views, conditions, index()["specs"]) if is_measured else []
    labels = _labels(conditions, matrix)
    boards = {
        condition.key: kept(f"leaderboard {condition.key}", [condition], None, partial(leaderboard, condition))
        for condition in conditions
    }
    about = _about(conditions)
    models = {variant.run.model for c in conditions for variant in c.variants}
    by_task = {column.condition.task for column in matrix.columns}
    in_matrix = {condition.key for column in matrix.columns for condition in column.conditions}
    trials = {c.key for c in conditions if c.task in by_task} - in_matrix
    quick = {each.key for column in matrix.columns if column.is_folded for each in column.conditions}
    grouped = tasks(conditions, trials, quick)
    own = own_models(conditions, names, earlier)
    script, style = _script("page" if sweeps is None else "live"), _resource("page.css")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            conditions=conditions,
            matrix=matrix,
            fill_matrix=FILL,
            trials=trials,
            labels=labels,
            about=about,
            file_names=_file_names(conditions, views, labels),
            quick=quick,
            tasks=grouped,
            leaderboards=boards,
            more_seeds={each.key: more_seeds(each, boards[each.key], results) for each in conditions},
            meanings=MEANINGS,
            headline=headline,
            own_models=own["own"],
            left_out=words_of_earlier(earlier, names),
            groups=GROUPS,
            group_of=group_of,
            infinity=math.inf,
            tolerance=TOLERANCE,
            widest=WIDEST,
            apart=APART.items(),
            solved_part=SOLVED,
            untimed=UNTIMED,
            full_title=full_title,
            flat_words=flat_words,
            in_words=in_words,
            names={each.task: each.task_name for each in conditions}
            | {model: name_of(model, names) for model in models},
            views=views,
            figures=drawn,
            scores=SCORES,
            charts=CHARTS,
            without_score={condition.key: without_score(condition) for condition in conditions},
            remarks={part.key: part.remarks for part in parts},
            commands=_commands(views, sections),
            studies=sections,
            shared_studies=[section for section in sections if not section.study.has_page],
            sections={section.study.name: section for section in sections},
            study_claims={result.study.name: study_claims(result, views) for result in results},
            count_claims=count_claims,
            figures_of=figures_of,
            printed_panels=printed_panels,
            failed=verdict_sheet.failed_claims(views, conditions),
            confirmed=verdict_sheet.held_claims(views),
            seed_decided=verdict_sheet.seed_decided_claims(views),
            dots=verdict_sheet.dots(views),
            square=verdict_sheet.square,
            glyphs=verdict_sheet.GLYPHS,
            statuses=verdict_sheet.STATUSES,
            own=verdict_sheet.own_conditions(conditions, views),
            spark=sparks.spark,
            dot_plot=sparks.dot_plot,
            reach=sparks.REACH,
            commentary=commentary,
            surroundings=where_it_was_run(conditions),
            printed_numbers=printed and numbers_sheet(printed),
            about_printed_numbers=explanation(printed),
            open_hours=open_hours(views, conditions, index()["specs"]),
            searches=searches,
            gated=gated,
            regressions=regressions,
            draw_gate=draw_gate,
            styles=styles,
            papers={paper.key: paper for paper in papers()},
            discrepancies=discrepancies(),
            policy=policy([plotly_script(), script], fetches=sweeps is not None),
            css=Markup(style),
            js=Markup(script),
            blocks=[
                plotly_block(),
                *_facts(
                    list(chain.from_iterable(grouped)),
                    views,
                    styles,
                    searches,
                    list(counted.values()),
                    labels,
                    sweeps or (),
                    own,
                ),
                *(part.block for part in parts),
                *_run_blocks(conditions, points_for(len(counted)), kept),
                json_block("about", about),
            ],
            created_at=datetime.now(UTC),
            version=__version__,
            runs=len(counted),
            counts=_counts(conditions, views),
            statuses_of_runs=_statuses(conditions),
            seeds=sorted({run.seed for c in conditions for variant in c.variants for run in variant.runs}),
            models=sorted(models, key=lambda model: name_of(model, names).lower()),
            tag_names=sorted({tag for c in conditions for variant in c.variants for tag in variant.tags}),
        )
    )


class _Unindented(Extension):
    """Read templates without their indentation, because the page would repeat it in every row of its tables."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return re.sub(r"^ +", "", source, flags=re.MULTILINE)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("orthobench", "reporting/page"),
        autoescape=True,
        # Strict, because a misspelt name would leave a gap on the page that nobody notices.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        extensions=[_Unindented],
    )
    environment.filters["number"] = shown_number
    environment.filters["signed"] = signed
    environment.filters["capitalized"] = capitalized
    environment.filters["cited"] = cited
    environment.filters["panel"] = panel_of
    return environment


@dataclass(frozen=True)
class Part:
    """The figures of a condition, a panel of a paper or a study, with their remarks and their block of data."""

    key: str
    figures: Drawn
    remarks: dict[str, Any]
    block: Markup
    section: Section | None = None


def _part(key: str, figures: Drawn, rates: Mapping[str, Any], section: Section | None = None) -> Part:
    plain = {name: figure_json(figure) for name, (_, figure) in figures.items()}
    words = {name: remarks(figure) for name, (_, figure) in figures.items()}
    return Part(key, figures, words, block(f"figures-{key}", packed_figures(plain, rates=rates)), section)


def _condition_part(condition: Condition, styles: Styles, kept: Kept) -> Part:
    def build() -> Part:
        lengths = over_length(condition, styles)
        figures = condition_figures(condition, styles) | ({"lengths": lengths} if lengths else {})
        return _part(condition.key, figures, _rates(condition))

    return kept(f"figures-{condition.key}", [condition], styles.looks([condition]), build)


def _panel_part(part: ArtifactView, panel: Condition, styles: Styles, kept: Kept) -> Part:
    def build() -> Part:
        return _part(panel.key, panel_figures(part, panel, styles), _rates(panel))

    variants = [variant for each in part.panels for variant in each.variants]
    values = styles.looks([panel]), [variant.label for variant in variants]
    return kept(f"figures-{panel.key}", [run for variant in variants for run in variant.runs], values, build)


def _study_part(result: StoredStudy, styles: Styles, kept: Kept) -> Part:
    def build() -> Part:
        section = draw(result, styles)
        return _part(f"study-{section.study.name}", section.figures, {}, section)

    looks = styles.looks([condition for _, condition in result.conditions])
    return kept(f"figures-study-{result.study.name}", [result], looks, build)


def _run_blocks(conditions: Sequence[Condition], points: int, kept: Kept) -> list[Markup]:
    """Return the details of the runs of each condition."""

    def build(condition: Condition) -> Markup:
        return block(f"runs-{condition.key}", run_details(condition, points))

    return [kept(f"runs-{condition.key}", [condition], points, partial(build, condition)) for condition in conditions]


def _facts(
    conditions: Sequence[Condition],
    views: Sequence[PaperView],
    styles: Styles,
    searches: Sequence[SearchData],
    runs: Sequence[Any],
    labels: Mapping[str, str],
    sweeps: Sequence[Mapping[str, Any]],
    own: Mapping[str, Any],
) -> list[Markup]:
    """Return the index of runs, and their environments."""
    index = {
        **run_index(conditions, styles, labels),
        **own,
        "palette": PALETTE,
        "appearances": _appearances(views),
        "searches": [search_record(search) for search in searches],
        "sweeps": sweep_records(sweeps, runs),
    }
    return [
        json_block("index", index),
        json_block("environments", {run.environment.digest: run.environment.flat_facts for run in runs}),
    ]


def _labels(conditions: Sequence[Condition], matrix: ResultMatrix) -> dict[str, str]:
    """Return a short name of each condition by its key: in the matrix that of its column, which suits fewer names.

    Conditions that share a column keep their own names, because that of the column does not tell them apart.
    """
    named = dict(zip((condition.key for condition in conditions), short_labels(conditions), strict=True))

    def is_alone(column: MatrixColumn) -> bool:
        return not column.is_folded and len(column.conditions) == 1

    columns = {column.condition.key: column.label for column in matrix.columns if is_alone(column)}
    others = {label for key, label in named.items() if key not in columns}
    return named | {key: label for key, label in columns.items() if label not in others}


def _about(conditions: Sequence[Condition]) -> dict[str, dict[str, Any]]:
    """Return what the built-in tasks and models of these conditions are, and their settings, by "kind/name"."""
    models = {variant.run.model for condition in conditions for variant in condition.variants}
    known = [f"task/{task}" for task in sorted({condition.task for condition in conditions})]
    known += [f"model/{model}" for model in sorted(models)]
    return {
        name: {
            "title": capitalized(plugin["title"]) if plugin["kind"] == "task" else plugin["title"],
            "paper": plugin["paper"],
            "family": plugin.get("family"),
            "settings": [[each["name"], each["default"], each["meaning"]] for each in plugin["settings"]],
        }
        for name in known
        if (plugin := index()["plugins"].get(name))
    }


def _appearances(views: Sequence[PaperView]) -> dict[str, list[tuple[str, str]]]:
    """Return the tables and figures that show each run, by key: their part of the page, and their names."""
    appearances: dict[str, dict[str, str]] = {}
    for view in views:
        for part in view.artifacts:
            cells = part.table.cells if part.table else []
            panels = (run.key for panel in part.panels for variant in panel.variants for run in variant.runs)
            for key in (*(key for cell in cells for key in cell.runs), *panels):
                appearances.setdefault(key, {})[part.key] = f"{view.paper.key}, {part.artifact.name}"
    return {key: list(named.items()) for key, named in appearances.items()}


def _rates(condition: Condition) -> dict[str, list[float | None]]:
    """Return iterations and training seconds per epoch, by variant label."""
    return {
        variant.label: [
            variant.run.iterations_per_epoch,
            variant.seconds_per_epoch.mean if variant.seconds_per_epoch else None,
        ]
        for variant in condition.variants
    }


def _commands(views: Sequence[PaperView], sections: Sequence[Any]) -> dict[str, str]:
    """Return the command that measures each figure, by the key of its data; runs have their own commands."""
    commands = {f"study-{section.study.name}": f"orthobench study {section.study.name}" for section in sections}
    for view in views:
        for part in view.artifacts:
            for panel in part.panels:
                commands[panel.key] = fill_command(part.artifact, part.printed, part.printed)
    return commands


def _file_names(
    conditions: Sequence[Condition], views: Sequence[PaperView], labels: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return the first part of the names of files for each condition's figures, and its metric, by key."""
    named = [(condition, labels[condition.key]) for condition in conditions]
    for view in views:
        for part in view.artifacts:
            panels = zip(part.panels, short_labels(part.panels), strict=True)
            named += [(panel, f"{view.paper.short_name} {part.artifact.name} {label}") for panel, label in panels]
    return {
        condition.key: (re.sub(r"[^\w.]+", "-", name.replace(" = ", "")).strip("-"), condition.metric.name)
        for condition, name in named
    }


def _counts(conditions: list[Condition], views: list[PaperView]) -> dict[str, Any]:
    """Return the counts at the top of the overview."""
    statuses = [run.status for c in conditions for variant in c.variants for run in variant.runs]
    measured, results = (sum(view.coverage[part] for view in views) for part in (0, 1))
    totals = total_verdicts(views)
    return {
        "runs": len(statuses),
        "finished": statuses.count(Status.FINISHED),
        "measured": measured,
        "results": results,
        "verdicts": {group: totals[group] for group in GROUPS},
        "compared": compared(totals),
        "claims": count_claims([result for view in views for result in view.claim_results]),
    }


def _statuses(conditions: Sequence[Condition]) -> list[tuple[str, int]]:
    """Return the number of runs by status."""
    counts = Counter(str(run.status) for c in conditions for variant in c.variants for run in variant.runs)
    return sorted(counts.items())


LARGE = 1e5
"""Numbers from this size on have an exponent, on the page and in its script."""


def shown_number(value: float | None, digits: int = 4) -> str:
    """Return a number as the report shows it."""
    if value is None:
        return "–"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < LARGE else text  # 1130 is easier to read than 1.13e+03


def signed(value: float) -> str:
    """Return a difference with its sign, in two digits; zero has none."""
    return f"{value:+.2g}".replace("-", "−") if value else "0"


def cited(text: str) -> Markup:
    """Return a note as HTML: words in backticks are code, and a cited discrepancy (D-NN) leads to its entry."""
    words = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))).replace("\\*", "*")
    return Markup(re.sub(r"\b(D-\d+)\b", r'<a href="#\1" title="where sources disagree">\1</a>', words))


@cache
def _script(entry: str) -> str:
    """Return the script of the page: `page`, or `live` if a server updates it."""
    return bundle(entry, lambda name: _resource(f"script/{name}.js"))


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
