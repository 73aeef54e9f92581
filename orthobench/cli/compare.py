"""`orthobench compare`: two or more selections of runs beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orthobench.cli.options import DEFAULT_DATABASE, Database, Json

if TYPE_CHECKING:
    from orthobench.analysis.compare import Contrast


def command(
    selections: Annotated[
        list[str],
        typer.Argument(metavar="SELECTION...", help="A run's name, or key=value,...: model=scornn,hidden_size=170."),
    ],
    value: Annotated[
        Literal["final", "best"], typer.Option("--value", help="The metric at the end, or at its best.")
    ] = "final",
    db: Database = DEFAULT_DATABASE,
    json: Json = False,
) -> None:
    """Compare runs: settings, environment, code, and the metric.

    The first selection against each other one: paired over common seeds where there are, with the test's name, the
    size of the effect, and the smallest p that so few seeds could give.
    """
    from orthobench.analysis.compare import adjusted, contrast, select
    from orthobench.errors import UsageError
    from orthobench.store import open_store

    if len(selections) < 2:
        raise UsageError("name two selections, for example model=scornn model=lstm")
    with open_store(db) as store:
        first, *others = [select(store, text) for text in selections]
    contrasts = [contrast(first, other, value) for other in others]
    p_values = adjusted(contrasts)
    if json:
        from orthobench.cli.records import print_json

        print_json([_record(one, p) for one, p in zip(contrasts, p_values, strict=True)])
        return
    for one, p in zip(contrasts, p_values, strict=True):
        _print(one, p if len(contrasts) > 1 else None, value)


def _record(one: Contrast, p: float | None) -> dict[str, Any]:
    result = one.result
    record: dict[str, Any] = {
        "first": one.first.text,
        "second": one.second.text,
        "runs": [[run.key for run in side.runs] for side in (one.first, one.second)],
        "settings": one.settings,
        "environment": one.environment,
        "metric": one.metric,
        "paired": one.paired,
        "caution": one.caution or None,
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


def _print(one: Contrast, p: float | None, value: str) -> None:
    from rich.table import Table

    from orthobench.cli.records import cell, console

    out = console()
    table = Table("", one.first.text, one.second.text, box=None)
    table.add_row("runs", *(str(len(side.runs)) for side in (one.first, one.second)))
    for name, (left, right) in (one.settings | one.environment).items():
        table.add_row(name, left, right)
    out.print(table)
    result = one.result
    if result is None:
        out.print("too few finished runs to compare", markup=False)
        return
    seeds = f"{result.n[0]} common seeds" if one.paired else f"{result.n[0]} and {result.n[1]} runs, not paired"
    lines = [
        f"{one.metric}, {value}: difference {result.difference} (95 % interval), {seeds}",
        f"{result.test}: p = {cell(result.p)}"
        + (f", by Holm over all comparisons {cell(p)}" if p is not None else "")
        + f"; smallest possible p {cell(result.smallest_p)}",
        f"effect {result.effect_name} = {cell(result.effect)}",
        *(text for text in (result.words, one.caution) if text),
    ]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
    out.print()
