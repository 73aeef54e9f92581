"""`orthobench compare`: compare selections of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Database,
    Json,
    ModelFilter,
    StatusFilter,
    TagFilter,
    TaskFilter,
    Where,
    conditions,
)

if TYPE_CHECKING:
    from orthobench.analysis.compare import Contrast


def command(
    selections: Annotated[
        list[str],
        typer.Argument(
            metavar="SELECTION...",
            help="Two or more selections: the first digits of a run, or conditions such as model=scornn,n=170.",
        ),
    ],
    value: Annotated[
        Literal["final", "best"], typer.Option("--value", help="Compare the last value of the metric, or its best.")
    ] = "final",
    task: TaskFilter = None,
    model: ModelFilter = None,
    tag: TagFilter = None,
    status: StatusFilter = None,
    where: Where = None,
    db: Database = DEFAULT_DATABASE,
    json: Json = False,
) -> None:
    """Compare selections of runs.

    The first selection is compared with each other selection: settings, environment, code and the metric.
    Runs are paired by their common seeds where both sides have them. The output names the test, the effect size and
    the smallest p that these seeds allow. --task, --model, --tag, --status and --where restrict all selections.
    `orthobench ls --help` explains conditions.
    """
    from orthobench.analysis.compare import adjusted, check_count, contrasts
    from orthobench.cli import records
    from orthobench.store import open_store
    from orthobench.training.locks import status_in

    check_count(selections)
    shared = conditions(where, task=task, model=model, tag=tag, status=status)
    with open_store(db) as store:
        compared = contrasts(store, selections, shared, status_in(store, db), value)
    p_values = adjusted(compared)
    if json:
        records.print_json([_record(each, p) for each, p in zip(compared, p_values, strict=True)])
        return
    for each, p in zip(compared, p_values, strict=True):
        _print(each, p if len(compared) > 1 else None, value)


def _record(contrast: Contrast, p: float | None) -> dict[str, Any]:
    result = contrast.result
    record: dict[str, Any] = {
        "first": contrast.first.text,
        "second": contrast.second.text,
        "runs": [[run.key for run in side.runs] for side in (contrast.first, contrast.second)],
        "settings": contrast.settings,
        "environment": contrast.environment,
        "metric": contrast.metric,
        "paired": contrast.paired,
        "caution": contrast.caution or None,
    }
    if result:
        record["result"] = {
            "n": result.n,
            "difference": result.difference.mean,
            "half_width": result.difference.half_width,
            "test": result.test,
            "p": result.p,
            "p_holm": p,
            "smallest_p": result.smallest_p,
            result.effect_name: result.effect,
            "words": result.words or None,
        }
    return record


def _print(contrast: Contrast, p: float | None, value: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    from orthobench.cli.records import cell, console

    out = console()
    table = Table("", escape(contrast.first.text), escape(contrast.second.text), box=None)
    table.add_row("runs", *(str(len(side.runs)) for side in (contrast.first, contrast.second)))
    for name, (left, right) in (contrast.settings | contrast.environment).items():
        table.add_row(name, escape(left), escape(right))
    out.print(table)
    result = contrast.result
    if result is None:
        out.print("too few finished runs to compare", markup=False)
        return
    seeds = f"{result.n[0]} common seeds" if contrast.paired else f"{result.n[0]} and {result.n[1]} runs, not paired"
    lines = [
        f"{contrast.metric}, {value}: difference {result.difference} (95 % interval), {seeds}",
        f"{result.test}: p = {cell(result.p)}"
        + (f", by Holm over all comparisons {cell(p)}" if p is not None else "")
        + f"; smallest possible p {cell(result.smallest_p)}",
        f"effect {result.effect_name} = {cell(result.effect)}",
        *(text for text in (result.words, contrast.caution) if text),
    ]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
    out.print()
