"""`orthobench place`: where a cell stands among the built-in ones that were tuned alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from orthobench import api
from orthobench.cli import completion
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    DryRun,
    Given,
    Json,
    Quiet,
    WrittenDatabase,
    split_names,
    with_options,
)
from orthobench.cli.records import show_duration
from orthobench.cli.sessions import displayed, report_failures
from orthobench.display import print_json
from orthobench.options.assignments import parse_assignments
from orthobench.options.run_options import SweepOptions


@with_options(SweepOptions)
def command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="CELL", help="A layer such as ./cell.py:MyCell, or a model.", autocompletion=completion.models
        ),
    ],
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", metavar="A,B", help="Columns of the protocol, such as copying,A5 [all]."),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Fresh seeds of the settings found [3].")] = None,
    set_: Given = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Also draw the places: .svg, .png or .pdf."),
    ] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print the scores as a line of a LaTeX table.")] = False,
    db: WrittenDatabase = DEFAULT_DATABASE,
    *,
    options: SweepOptions,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show where a cell stands among the built-in ones.

    Only this cell is trained: each column with the same search and the same seeds as the built-in cells got, whose
    results come with the installation. Columns follow one after the other, each with the cell's rank. The same command
    goes on where it was interrupted. --dry-run states the time. See docs/comparison.md.
    """
    api.names.check_names(None, [model], options.plugins)
    settings = parse_assignments(set_ or [])
    placements: list[api.Placement] = []
    with displayed(quiet, plan=False) as display:
        for name in split_names(columns) if columns else api.placement.column_names():
            placements += api.place(
                model, name, seeds=seeds, settings=settings, db=db, options=options, dry_run=dry_run, display=display
            )
            if not (json or latex):
                _print(placements[-1], dry_run)
    if json:
        print_json(list(map(_record, placements)))
    elif latex:
        typer.echo(api.placement.latex_row(model, placements))
    if output is not None and not dry_run:
        api.placement.draw_places(model, placements, output)
    if not dry_run:
        failed = [outcome for placement in placements for outcome in placement.result.failed]
        report_failures(len(failed), len(placements), sum(placement.result.refused for placement in placements))


def _print(placement: api.Placement, dry_run: bool) -> None:
    """Print a column: the cell's score, its rank and its nearest rivals, or what it costs."""
    place, (tuned,) = placement.place, placement.result.models
    if dry_run:
        cost = tuned.cost
        assert cost is not None
        time = "0s" if not cost.left else "unknown" if cost.seconds is None else f"about {show_duration(cost.seconds)}"
        typer.echo(f"{placement.title}: {cost.left:,} iterations left, {time} of one core")
        return
    if place is None:
        why = (
            "no run has a result"
            if not tuned.values
            else "the built-in cells have no results there yet"
            if placement.is_unmeasured
            else "the built-in cells were trained on other sizes"
        )
        typer.echo(f"{placement.title}: no place, because {why}")
        return
    spread = f" ({round(100 * min(place.scores))} to {round(100 * max(place.scores))})" if len(place.scores) > 1 else ""
    near = ", ".join(f"{rival.model} {round(100 * rival.score)}" for rival in place.nearest)
    typer.echo(
        f"{placement.title}: score {round(100 * place.score)}{spread}, place {place.rank} of {place.count}, "
        f"between {place.best_rank} and {place.worst_rank} by its seeds"
    )
    typer.echo(f"  nearest: {near}; best: {place.rivals[0].model} {round(100 * place.rivals[0].score)}")
    lstm, own = place.rival("lstm"), placement.milliseconds
    words = [f"{placement.parameters} parameters"]
    if own is not None:
        words.append(f"{own:.2g} ms of CPU time a step")
        if lstm is not None and lstm.milliseconds is not None:
            words.append(f"the LSTM had {lstm.milliseconds:.2g} on the machine of the table")
    typer.echo(f"  {', '.join(words)}")


def _record(placement: api.Placement) -> dict[str, Any]:
    place, (tuned,) = placement.place, placement.result.models
    cost = {} if tuned.cost is None else {"cost": vars(tuned.cost)}
    ranks = (
        {}
        if place is None
        else {
            "score": place.score,
            "scores": place.scores,
            "rank": place.rank,
            "best_rank": place.best_rank,
            "worst_rank": place.worst_rank,
            "of": place.count,
            "nearest": [rival.model for rival in place.nearest],
        }
    )
    own = {"parameters": placement.parameters, "milliseconds": placement.milliseconds, "chosen": tuned.chosen}
    return {"column": placement.result.column.name, **ranks, **own, **cost}
