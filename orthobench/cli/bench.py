"""`orthobench bench`: time a training step on this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from orthobench import api
from orthobench.cli.options import DEFAULT_DATABASE, Device, Json, Quiet, WrittenDatabase
from orthobench.cli.records import TEXT, console, print_table
from orthobench.display import print_json
from orthobench.errors import UsageError

SLOW = 2.0
"""Models that take more than this multiple of scoRNN's time are listed with the reason."""


def command(
    shape: Annotated[
        list[str] | None, typer.Option("--shape", metavar="NAME", help="Restrict to this shape; may be repeated.")
    ] = None,
    models: Annotated[
        bool, typer.Option("--models", help="Time every model, and compare it with the scoRNN paper's table 3.")
    ] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Number of timings of each implementation.")] = 5,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Number of CPU threads.")] = None,
    device: Device = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="Use toy sizes to test the command; its times are not meaningful.")
    ] = False,
    db: WrittenDatabase = DEFAULT_DATABASE,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Time a training step at the papers' shapes.

    Every back end is timed next to the eager loop, nn.RNN, nn.LSTM and the machine's matrix product, in alternation.
    A CPU's row "FMA peak" is the rate of fused multiply-adds on registers, which no kernel exceeds.
    With one thread on a CPU, the times are CPU time. Slow implementations have fewer rounds. The command takes minutes
    and stores its results in the database.
    """
    if shape and models:
        raise UsageError("--models has its own shapes: leave --shape out")
    results = api.benchmarks.measure(
        "models" if models else "recurrence",
        db,
        only=shape or (),
        rounds=rounds,
        threads=threads,
        device=device,
        quick=quick,
        tell=(lambda line: None) if quiet else partial(typer.echo, err=True),
    )
    if json:
        print_json(results)
        return
    _print(results)
    for line in notes(results):
        console().print(line, soft_wrap=True)


COLUMNS: dict[str, dict[str, Callable[[Any, Any], str]]] = {
    "recurrence": {
        "implementation": lambda shape, row: row["implementation"],
        "s/step": lambda shape, row: f"{row['seconds']:.3g}",
        "GFLOP/s": lambda shape, row: f"{row['gflops']:.3g}",
        "of sgemm": lambda shape, row: f"{row['of_sgemm']:.0%}",
        "of peak": lambda shape, row: "-" if row["of_peak"] is None else f"{row['of_peak']:.0%}",
        "x eager": lambda shape, row: "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
        "n": lambda shape, row: str(row["n"]),
        "spread": lambda shape, row: f"{row['spread']:.0%}",
    },
    "models": {
        "model": lambda shape, row: row["model"],
        "n": lambda shape, row: str(row["hidden_size"]),
        "s/step": lambda shape, row: f"{row['seconds']:.3g}",
        "x scornn": lambda shape, row: f"{row['ratio']:.2f}",
        "min/epoch": lambda shape, row: f"{row['minutes']:.2f}",
        "published": lambda shape, row: "" if row["printed"] is None else str(row["printed"]),
        "why": lambda shape, row: row["cost"] if row["ratio"] > SLOW else "",
    },
}
"""The columns of each benchmark's table, with the cell of a row of a shape."""
TEXTS = ("shape", "implementation", "model", "why")
"""The columns that are aligned to the left."""


def _print(results: dict[str, Any]) -> None:
    """Print the rows of all shapes as one table; each shape is named once."""
    columns = COLUMNS[results["name"]]
    headings = ["shape", *columns]
    rows = []
    for group in results["shapes"]:
        for number, row in enumerate(group["rows"]):
            cells = {name: cell(group["shape"], row) for name, cell in columns.items()}
            cells["shape"] = "" if number else group["shape"]["name"]
            rows.append([cells[heading] for heading in headings])
    numbers = [heading for heading in headings if heading not in TEXTS]
    print_table(headings, rows, optional=numbers[1:], folds=dict.fromkeys(TEXTS, TEXT), right=numbers)


def notes(results: dict[str, Any]) -> list[str]:
    """Return the lines below the table about missing implementations, memory and the load of the machine."""
    lines = []
    for group in results["shapes"]:
        name = group["shape"]["name"]
        lines += [f"{name}: without {left}: {reason}" for left, reason in group.get("left_out", {}).items()]
        memory = [
            f"{who} {size / 1e6:.0f} MB" for who, size in group.get("peak_memory", {}).items() if size is not None
        ]
        if memory:
            lines.append(f"{name}: peak memory of a step above model and data: {', '.join(memory)}")
    if results["quick"]:
        return [*lines, "toy sizes (--quick): the times are not meaningful"]
    if results["clock"] == "cpu":
        return [*lines, f"{results['device']}, one thread: CPU time, to which other programs add nothing"]
    load = "" if results["load_average"] is None else f"; the load average before was {results['load_average']:.1f}"
    lines.append(f"{results['device']}, {results['threads']} threads{load}")
    if results["device"] == "cpu" and results["wait_policy"] == "PASSIVE":
        lines.append("OMP_WAIT_POLICY=PASSIVE, as in training: PyTorch's own loops may be faster with ACTIVE, try both")
    return lines
