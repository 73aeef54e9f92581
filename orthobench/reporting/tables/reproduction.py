"""Write a reproduction report in Markdown: published next to measured values, with machines and hours.

The report begins with one table of everything measured, which the author's text follows.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

from orthobench.analysis.claims import ClaimResult
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.curves import curve_over_seeds
from orthobench.analysis.judged import WORDS
from orthobench.analysis.paper_tables import TableCell
from orthobench.analysis.printed_curves import PrintedCurve, printed_curves
from orthobench.errors import counted
from orthobench.metric import STEP
from orthobench.reporting.account.abilities import Abilities, compute_abilities
from orthobench.reporting.account.captions import where
from orthobench.reporting.account.commentary import NONE, Commentary, Remark, verdicts_of
from orthobench.reporting.account.leaderboards import fullest_first
from orthobench.reporting.account.matrix import compute_matrix
from orthobench.reporting.account.names import full_title
from orthobench.reporting.account.paper_views import ArtifactView, PaperView
from orthobench.reporting.account.printed_numbers import explanation, printed_numbers
from orthobench.reporting.account.studies import StoredStudy
from orthobench.reporting.figures.figures import scored
from orthobench.reporting.tables.condition_tables import condition_table
from orthobench.reporting.tables.paper_tables import published_and_measured
from orthobench.reporting.tables.printed_numbers import numbers_table
from orthobench.reporting.tables.table import Table, table_of, write
from orthobench.spec.index import built_in
from orthobench.store import Run, Status

BEGINNING = """# What was reproduced

<!-- Written by `orthobench report --format reproduction`, with the text and the remarks of its --commentary. -->

The interval is the one that decides the verdict, and not always that of our mean; the papers' tables name which it is.
"""
ABOUT_ABILITIES = """Scores run from 0, the best guess without memory, to 100, perfect. A cell reaches 90 if its median
seed does, with at least three seeds; the best one is that with the highest score of those.
"""
WITHOUT_RESULT = "Runs without a result, which decide no claim"
"""The title of the table of interrupted, failed and running runs."""


def reproduction(
    conditions: Sequence[Condition],
    views: Sequence[PaperView],
    studies: Sequence[StoredStudy],
    only_papers: bool = False,
    commentary: Commentary = NONE,
) -> str:
    """Return the report: everything measured, machines, runs without a result, papers, studies, other runs, counts.

    Args:
        conditions: all measured conditions, whose runs also say how long others take.
        only_papers: leave out the runs and studies that belong to no table or figure of `views`.
    """
    papers = {key for view in views for part in view.artifacts for key in _keys(part)}
    if only_papers:
        named = {part.study.name for view in views for part in view.artifacts if part.study}
        studies = [result for result in studies if result.study.name in named]
    papers |= {run.key for result in studies for run in result.runs}
    shown = [own for each in conditions if (own := _of_runs(each, papers))] if only_papers else conditions
    parts = [BEGINNING, f"<!-- table: measured -->\n\n{everything_measured(views)}\n<!-- end of table -->\n"]
    if not only_papers and (abilities := compute_abilities(compute_matrix(conditions))):
        parts += ["## What each family of cells can learn\n", ABOUT_ABILITIES, _abilities(abilities)]
    parts += [f"{commentary.text.strip()}\n"] if commentary.text else []
    parts += ["## Where it was run\n", _markdown([_machines(shown)])]
    if without := _without_result(shown):
        parts += [f"## {WITHOUT_RESULT}\n", _markdown([without])]
    for view in views:
        parts += _paper(view, commentary)
    if studies:
        hours = _hours_heading(run for result in studies for run in result.ended)
        header = ["study", "source", "version", "runs", hours, "what its source shows"]
        parts += ["## Studies\n", _markdown([table_of("", header, list(map(_study, studies)))])]
    others = [c for c in shown if not all(run.key in papers for run in _all_runs([c]))]
    if others:
        parts += [
            "## Without published results to compare\n\nTheir settings or data differ from those of every paper.\n",
            _markdown([condition_table(condition, others) for condition in fullest_first(others)]),
        ]
    if counts := printed_numbers(views, conditions, built_in()["specs"]):
        parts += [
            f"## Printed numbers by paper\n\n{explanation(counts)}\n",
            _markdown([replace(numbers_table(counts), title="")]),
        ]
    return "\n".join(parts)


def everything_measured(views: Sequence[PaperView]) -> str:
    """Return one table with every measured number next to the published one, and every decided claim."""
    header = ["paper", "result", "published", "measured [90 % interval]", "seeds", "verdict"]
    rows = [[view.paper.key, *row] for view in views for part in view.artifacts for row in _measured(part)]
    return _markdown([table_of("", header, rows)]) if rows else "Nothing is measured yet.\n"


def _abilities(abilities: Abilities) -> str:
    """Return the first screen as a table with a row for each cell."""
    header = ["family: task", "settings", "reach 90", "cells", "best", "score", "lowest seed", "highest seed", "seeds"]
    rows = [
        [
            f"{family.title}: {column.label}",
            WORDS[column.column.block],
            str(cell.reach),
            str(len(cell.members)),
            cell.name or "none",
            *(str(round(100 * score)) for score in (cell.best.cell.score, cell.best.cell.low, cell.best.cell.high)),
            str(cell.best.cell.seeds),
        ]
        for family, column, cell in abilities.cells()
    ]
    return f"<!-- table: abilities -->\n\n{_markdown([table_of('', header, rows)])}\n<!-- end of table -->\n"


def _measured(part: ArtifactView) -> Iterator[list[str]]:
    """Yield the measured numbers and decided claims of a table or figure as rows of the first table.

    Claims that are decided by the same runs in another paper are left out.
    """
    name = part.artifact.name
    for row in part.table.rows if part.table else []:
        for label, cell in row.cells.items():
            if cell.measured is not None and cell.printed.value is not None:
                seeds = str(cell.measured.n)
                yield [
                    f"{name}: {row.label}, {label}",
                    cell.printed_text,
                    _with_words(cell),
                    seeds,
                    cell.words,
                ]
    for result in part.claim_results:
        if result.is_decided and not result.same_as:
            seeds = "" if result.seeds is None else str(result.seeds)
            yield [name, result.claim.text, result.reason, seeds, _verdict(result)]


def where_it_was_run(conditions: Sequence[Condition]) -> list[Table]:
    """Return the machines of these runs, these by commit if there are several, and the runs without a result."""
    if not conditions:
        return []
    machines, commits = _machines(conditions, with_commits=False), _machines(conditions)
    without = _without_result(conditions)
    return [
        replace(machines, title="Where it was run"),
        *([replace(commits, title="The same by commit")] if len(commits.rows) > len(machines.rows) else []),
        *([replace(without, title=WITHOUT_RESULT)] if without else []),
    ]


def _paper(view: PaperView, commentary: Commentary) -> list[str]:
    remarks = {part.key: commentary.on(view.paper.key, part.artifact.name) for part in view.artifacts}
    parts = [
        part
        for part in view.artifacts
        if _keys(part) or any(r.is_decided for r in part.claim_results) or remarks[part.key]
    ]
    if not parts:
        return []
    measured, total = view.coverage
    paper = view.paper
    head = f"## {paper.authors} {paper.year}: {paper.title}\n\nPublished results measured: {measured} of {total}\n"
    return [head, *(text for part in parts for text in _artifact(part, remarks[part.key]))]


def _artifact(part: ArtifactView, remarks: Sequence[Remark]) -> list[str]:
    artifact = part.artifact
    name = artifact.name[:1].upper() + artifact.name[1:]
    texts = [f"### {name}{': ' if artifact.title else ''}{artifact.title}\n"]
    if part.table and (measured := published_and_measured(part.table, unmeasured=False)).rows:
        texts.append(_markdown([replace(measured, title="")]))
    if artifact.shows == "orthogonality":
        texts += [*map(_scores, part.panels), *(f"{note}\n" for note in artifact.notes)]
    else:
        texts += map(figure_curves, part.panels)
    texts += [_markdown([_points_table(part, curve)]) for curve in _printed_curves(part)]
    if decided := [result for result in part.claim_results if result.is_decided]:
        texts.append(decided_claims(decided))
    if remarks:
        verdicts = verdicts_of(part)
        texts.append("".join(f"* **{each.about}**: {each.shown(verdicts[each.about])}\n" for each in remarks))
    if part.missing:
        labels = list(dict.fromkeys(_with_length(e.label, e.task_settings) for e in part.missing))
        texts.append(f"Not measured: {', '.join(labels)}\n")
    return texts


def figure_curves(panel: Condition) -> str:
    """Return the results of the measured curves in a figure's panel as a Markdown table."""
    baseline = "" if panel.baseline is None else f" (baseline {panel.baseline:.4g})"
    return _markdown([replace(condition_table(panel, [panel]), title=f"{where(panel)[0]}{baseline}")])


def _scores(panel: Condition) -> str:
    """Return the distances from orthogonality in a figure's panel, before training and at the end: medians of seeds."""
    rows = [
        [f"{variant.label}, {matrix}", f"{curve.median[0]:.3g}", f"{curve.median[-1]:.3g}", str(curve.seeds), words]
        for variant in panel.variants
        for matrix, logged in scored(variant, STEP)
        if len(curve := curve_over_seeds(logged, variant.runs))
        for words in ["; ".join([switch.words for switch in curve.switches] or variant.backends)]
    ]
    header = ["model and matrix", "before training", "at the end", "seeds", "back ends"]
    return _markdown([table_of(", ".join(where(panel)), header, rows)])


def decided_claims(results: Sequence[ClaimResult]) -> str:
    """Return the claims with their verdicts as a Markdown table."""
    rows = [[result.claim.text, _verdict(result), result.reason] for result in results]
    return _markdown([table_of("Claims", ["the paper says", "here", "measured"], rows)])


def _printed_curves(part: ArtifactView) -> list[PrintedCurve]:
    """Return the published curves of a figure for which there are runs."""
    variants = [variant for panel in part.panels for variant in panel.variants]
    return [curve for curve in printed_curves(part.artifact, part.printed, variants) if curve.variant]


def _points_table(part: ArtifactView, curve: PrintedCurve) -> Table:
    """Return the points of a published curve next to the median over seeds at the same places."""
    unit = part.artifact.x
    rows = [
        [f"{x:g}", f"{printed:g}", "" if measured is None else f"{measured:.4g}"]
        for (x, printed), measured in zip(curve.printed.curve, curve.measured(unit), strict=True)
    ]
    title = f"{curve.experiment.label}: {curve.printed.split} {curve.printed.metric}"
    return table_of(title, [unit, "published", "measured"], rows)


def _verdict(result: ClaimResult) -> str:
    return f"{result.verdict}, not counted: {result.uncounted}" if result.uncounted else result.verdict


def _with_length(label: str, settings: dict[str, object]) -> str:
    length = settings.get("sequence_length")
    return f"{label} (T = {length})" if length else label


def _with_words(cell: TableCell) -> str:
    """Return the measured number, with how it is computed if the paper states how it computed its number."""
    words = cell.measured.words if cell.measured else ""
    return f"{cell.measured} ({words})" if words else str(cell.measured)


def _study(result: StoredStudy) -> list[str]:
    runs, study = result.ended, result.study
    source = f"own study after {study.source}" if study.is_own else study.figure
    counts = [str(len(runs)), _hours(runs)] if runs else ["", ""]
    return [study.title, source, "small" if result.is_small else "whole", *counts, study.finding]


def _machines(conditions: Sequence[Condition], with_commits: bool = True) -> Table:
    by_machine: dict[tuple[str, ...], list[Run]] = {}
    for run in _all_runs(conditions):
        facts = run.environment.facts
        threads = None if facts.get("accelerator") else facts.get("threads")
        machine = run.environment.machine + (f", {counted(threads, 'thread')}" if threads else "")
        torch = facts.get("packages", {}).get("torch", "")
        commit = ((facts.get("commit") or "")[:10],) if with_commits else ()
        by_machine.setdefault((machine, torch, *commit), []).append(run)
    rows = [[*which, str(len(runs)), _hours(runs)] for which, runs in sorted(by_machine.items())]
    commit_header = ["commit"] if with_commits else []
    return table_of(
        "", ["machine at the end", "torch", *commit_header, "runs", _hours_heading(_all_runs(conditions))], rows
    )


def _without_result(conditions: Sequence[Condition]) -> Table | None:
    """Return the runs without a result, with their status and its cause, their progress and latest values.

    Trials of searches are left out, because a search stops them, and nobody continues them.
    """
    rows = [
        [
            full_title(condition, conditions),
            variant.label,
            str(run.seed),
            run.status,
            " ".join((run.message or "").split()),
            f"{run.epochs:.3g} of {run.total_iterations / run.iterations_per_epoch:.3g}",
            condition.metric.name,
            *("" if value is None else f"{value:.4g}" for value in (run.final_value, run.best_test)),
            _hours([run]),
        ]
        for condition in conditions
        for variant in condition.variants
        for run in variant.runs
        if not Status(run.status).is_final and not run.is_trial
    ]
    hours = _hours_heading(_all_runs(conditions))
    header = ["task", "model", "seed", "status", "cause", "epochs", "metric", "at last", "best", hours]
    return table_of("", header, rows) if rows else None


def _of_runs(condition: Condition, keys: Container[str]) -> Condition | None:
    """Return the condition with the runs of these keys; None if it has none of them."""
    variants = [
        replace(variant, runs=runs, cache={})  # a new cache, because the old one holds the curves of all runs
        for variant in condition.variants
        if (runs := [run for run in variant.runs if run.key in keys])
    ]
    return replace(condition, variants=variants) if variants else None


def _keys(part: ArtifactView) -> set[str]:
    """Return the keys of the runs behind a table or figure, also of those without a result."""
    measured = [cell.variant for cell in part.table.cells if cell.variant] if part.table else []
    runs = [*_all_runs(part.panels), *(run for variant in measured for run in variant.runs)]
    return {run.key for run in runs}


def _all_runs(conditions: Iterable[Condition]) -> list[Run]:
    variants: Iterable[VariantData] = (variant for condition in conditions for variant in condition.variants)
    return [run for variant in variants for run in variant.runs]


def _hours(runs: Iterable[Run]) -> str:
    """Return the hours of these runs, CPU time where it counts (`Run.own_seconds`)."""
    return f"{sum(run.own_seconds for run in runs) / 3600:.2g}"


def _hours_heading(runs: Iterable[Run]) -> str:
    """Name the hours of these runs by their clocks."""
    clocks = {run.has_cpu_time for run in runs}
    return {frozenset([True]): "CPU hours", frozenset([False]): "hours"}.get(
        frozenset(clocks), "hours, CPU time if known"
    )


def _markdown(tables: Sequence[Table]) -> str:
    return write("markdown", tables)
