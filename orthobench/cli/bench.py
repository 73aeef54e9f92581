"""`orthobench bench`: time a training step on this machine."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Annotated, Any

import typer

from orthobench.cli.options import DEFAULT_DATABASE, DataFolder, Device, Json, Quiet, WrittenDatabase

SLOW = 2.0
"""Models that take more than this multiple of scoRNN's time are listed with the reason."""


def command(
    shape: Annotated[
        list[str] | None, typer.Option("--shape", metavar="NAME", help="Restrict to this shape; may be repeated.")
    ] = None,
    constraints: Annotated[
        bool, typer.Option("--constraints", help="Time the constraints on W, and their share of a step.")
    ] = False,
    models: Annotated[
        bool, typer.Option("--models", help="Time every model, and compare it with the scoRNN paper's table 3.")
    ] = False,
    tasks: Annotated[
        bool, typer.Option("--tasks", help="Time the data of every task, and its share of a step.")
    ] = False,
    breakdown: Annotated[
        bool,
        typer.Option("--breakdown", help="Time the parts of a step on the CPU kernels: forward, backward and so on."),
    ] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Number of timings of each implementation.")] = 5,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Number of CPU threads.")] = None,
    device: Device = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="Use toy sizes to test the command; its times are not meaningful.")
    ] = False,
    db: WrittenDatabase = DEFAULT_DATABASE,
    data_dir: DataFolder = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Time a training step at the papers' shapes.

    Every back end is timed next to the eager loop, nn.RNN, nn.LSTM and the machine's matrix product, in alternation.
    A CPU's row "FMA peak" is the rate of fused multiply-adds on registers, which no kernel exceeds.
    Slow implementations have fewer rounds. The command takes minutes and stores its results in the database.
    """
    import torch

    from orthobench.bench import shapes, suite
    from orthobench.bench.breakdown import measure_breakdown
    from orthobench.bench.models import measure_models
    from orthobench.bench.tasks import measure_tasks
    from orthobench.cli import records
    from orthobench.errors import UsageError
    from orthobench.plugins import Catalog
    from orthobench.store import open_store
    from orthobench.store.open import check_writable
    from orthobench.system import environment
    from orthobench.training.device import pick_device

    for option, is_given in (("--models", models), ("--tasks", tasks)):
        if is_given and (constraints or shape or (models and tasks)):
            raise UsageError(f"{option} has its own shapes: leave the other benchmarks and --shape out")
    if breakdown and (constraints or models or tasks):
        raise UsageError("--breakdown, --constraints, --models and --tasks are different benchmarks: give one of them")
    selected = shapes.select(shape or ())
    check_writable(db)
    torch_device = pick_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    tell = (lambda message: None) if quiet else partial(typer.echo, err=True)
    setup = suite.Setup(torch_device, rounds, quick, tell=tell)
    with open_store(db, create=True) as store:
        if constraints:
            name = "constraints"
            results = suite.measure_constraints(selected if shape else suite.CONSTRAINED, setup)
        elif models:
            name = "models"
            results = measure_models(Catalog().usable("model"), setup)
        elif tasks:
            name = "tasks"
            results = measure_tasks(Catalog(), setup)
        elif breakdown:
            name = "breakdown"
            results = measure_breakdown(selected, setup)
        else:
            name = "recurrence"
            results = suite.measure_recurrences(selected, setup)
        facts = environment.describe(torch_device)
        benchmark = store.add_benchmark(name, results, facts)
    if json:
        header = {
            "benchmark": benchmark.id,
            "name": name,
            "created_at": benchmark.created_at.isoformat(timespec="seconds"),
        }
        records.print_json({**header, "environment": facts, **results})
        return
    console = records.console()
    tables = {
        "breakdown": breakdown_table,
        "constraints": constraints_table,
        "models": models_table,
        "tasks": tasks_table,
    }
    console.print(tables.get(name, recurrence_table)(results))
    for line in notes(results):
        console.print(line, soft_wrap=True)


def recurrence_table(results: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("shape", "implementation", box=None)
    for heading in ("s/step", "GFLOP/s", "of sgemm", "of peak", "x eager", "n", "spread"):
        table.add_column(heading, justify="right")
    for group in results["shapes"]:
        for number, row in enumerate(group["rows"]):
            table.add_row(
                "" if number else group["shape"]["name"],
                row["implementation"],
                f"{row['seconds']:.3g}",
                f"{row['gflops']:.3g}",
                f"{row['of_sgemm']:.0%}",
                "-" if row["of_peak"] is None else f"{row['of_peak']:.0%}",
                "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
                str(row["n"]),
                f"{row['spread']:.0%}",
            )
    return table


def breakdown_table(results: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("shape", "part", box=None)
    for heading in ("ms", "of the step", "GFLOP/s", "of peak"):
        table.add_column(heading, justify="right")
    for group in results["shapes"]:
        for number, row in enumerate(group["rows"]):
            table.add_row(
                "" if number else group["shape"]["name"],
                row["part"],
                f"{1000 * row['seconds']:.3g}",
                f"{row['share']:.1%}",
                "-" if row["gflops"] is None else f"{row['gflops']:.3g}",
                "-" if row["of_peak"] is None else f"{row['of_peak']:.0%}",
            )
    return table


def constraints_table(results: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("shape", "constraint", box=None)
    for heading in ("n x n", "ms", "of the step", "n", "spread"):
        table.add_column(heading, justify="right")
    for group in results["shapes"]:
        for number, row in enumerate(group["rows"]):
            table.add_row(
                "" if number else group["shape"]["name"],
                row["constraint"],
                str(group["shape"]["hidden"]),
                f"{1000 * row['seconds']:.3g}",
                f"{row['share']:.1%}",
                str(row["n"]),
                f"{row['spread']:.0%}",
            )
    return table


def models_table(results: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("shape", "model", box=None)
    for heading in ("n", "s/step", "x scornn", "min/epoch", "published"):
        table.add_column(heading, justify="right")
    table.add_column("why")
    for group in results["shapes"]:
        for number, row in enumerate(group["rows"]):
            table.add_row(
                "" if number else group["shape"]["name"],
                row["model"],
                str(row["hidden_size"]),
                f"{row['seconds']:.3g}",
                f"{row['ratio']:.2f}",
                f"{row['minutes']:.2f}",
                "" if row["printed"] is None else str(row["printed"]),
                row["cost"] if row["ratio"] > SLOW else "",
            )
    return table


def tasks_table(results: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("task", box=None)
    for heading in ("steps x batch x inputs", "ms/batch", "ms/step", "share", "n", "spread"):
        table.add_column(heading, justify="right")
    for group in results["shapes"]:
        for row in group["rows"]:
            table.add_row(
                row["task"],
                " x ".join(map(str, row["shape"])),
                f"{1000 * row['seconds']:.3g}",
                f"{1000 * row['step_seconds']:.3g}",
                f"{row['share']:.2%}",
                str(row["n"]),
                f"{row['spread']:.0%}",
            )
    return table


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
    rows = [[group["step"]] if "step" in group else group["rows"] for group in results["shapes"]]
    foreign = [sample["foreign"] for row in chain.from_iterable(rows) for sample in row["samples"]]
    share, worst = sum(foreign) / len(foreign), max(foreign)
    lines.append(
        f"{results['device']}, {results['threads']} threads; others took {share:.0%} of the cores, {worst:.0%} at worst"
    )
    if results["device"] == "cpu" and results["wait_policy"] == "PASSIVE":
        lines.append("OMP_WAIT_POLICY=PASSIVE, as in training: PyTorch's own loops may be faster with ACTIVE, try both")
    return lines
