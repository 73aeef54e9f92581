"""Options that several commands share, and what they stand for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from orthobench.cli import completion
from orthobench.execution import LARGEST_SEED as LARGEST_SEED

DEFAULT_DATABASE = "results.db"


def _read_default(context: typer.Context, parameter: typer.CallbackParam, db: str) -> str:
    return _default(context, parameter, db, writes=False)


def _write_default(context: typer.Context, parameter: typer.CallbackParam, db: str) -> str:
    return _default(context, parameter, db, writes=True)


def _default(context: typer.Context, parameter: typer.CallbackParam, db: str, writes: bool) -> str:
    """Return the value of --db, or the default database."""
    source = context.get_parameter_source(str(parameter.name))
    if source is None or source.name != "DEFAULT":
        return db
    from orthobench.store.default import default_database

    chosen = default_database(writes)
    if chosen != db:
        typer.echo(f"{db} is protected: this command uses {chosen}, or the database that --db names", err=True)
    return chosen


DATABASE_HELP = "Database of runs: a file or an SQLAlchemy URL."
Database = Annotated[str, typer.Option("--db", callback=_read_default, help=DATABASE_HELP)]
WrittenDatabase = Annotated[str, typer.Option("--db", callback=_write_default, help=DATABASE_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PluginFiles = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file with a task, model or probe of yours."),
]
Given = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--set",
        metavar="KEY=VALUE",
        help="A hyper-parameter; may be repeated.",
        autocompletion=completion.settings,
    ),
]
PresetName = Annotated[
    Literal["paper", "quick"],
    typer.Option("--preset", help="paper: the paper's settings; quick: a small version for a minute or two."),
]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Where to compute.")]
CheckpointEvery = Annotated[
    float, typer.Option("--checkpoint-every", min=0, metavar="SECONDS", help="Time between checkpoints.")
]


def _check_tags(tags: list[str] | None) -> list[str]:
    from orthobench.errors import UsageError
    from orthobench.settings import check_tag

    try:
        return list(dict.fromkeys(map(check_tag, tags or ())))
    except ValueError as error:
        raise UsageError(f"--tag {error}") from error


Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="NAME", callback=_check_tags, help="A name for the runs; may be repeated."),
]
CheckpointPlace = Annotated[
    str | None,
    typer.Option(
        "--checkpoints", metavar="PLACE", help="With a database server: folder or URL that all its machines see."
    ),
]
KeepWeights = Annotated[
    Literal["none", "last", "best", "both"],
    typer.Option(
        "--keep-weights",
        help="Weights that a finished run keeps: those of its best test, the last ones with the training state that "
        "a longer run continues from, both, or none.",
    ),
]
WeightsAt = Annotated[
    str | None,
    typer.Option(
        "--weights-at", metavar="PLACE", help="Folder or URL of kept weights; else the folder beside the database."
    ),
]
WeightsPlace = Annotated[
    str | None,
    typer.Option(
        "--weights-at",
        metavar="PLACE",
        help="Folder or URL of the weights, if it is not the folder beside the database.",
    ),
]
TrainedRun = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's key, or its first digits; `orthobench ls` lists them. Or a file of weights.",
        autocompletion=completion.runs,
    ),
]
Which = Annotated[
    Literal["best", "last"] | None,
    typer.Option("--weights", help="Which of the run's weights [the best ones, if they are kept]."),
]
MatchParameters = Annotated[
    str | None,
    typer.Option(
        "--match-parameters",
        metavar="N|MODEL",
        help="Choose hidden sizes of equal parameter counts: a count such as 15000 or 15k, or that of one of the "
        "models at its own settings.",
    ),
]
OnDivergence = Annotated[
    Literal["stop", "continue"],
    typer.Option("--on-divergence", help="stop: a run that diverges ends; continue: only when its weights are NaN."),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "-j",
        "--jobs",
        min=0,
        envvar="ORTHOBENCH_JOBS",
        help="Runs at once, each in a process of its own; 0: in this process. Else as many as cores, or GPUs times "
        "their share.",
    ),
]
GpuShare = Annotated[
    int,
    typer.Option(
        "--gpu-share", min=1, metavar="K", help="Runs on one GPU at once; without NVIDIA's MPS they take turns on it."
    ),
]
ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="local|ray|ray://HOST:PORT|slurm",
        help="Where runs train: in processes here, on the Ray cluster of this machine or another one, or on SLURM.",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="On a cluster: threads, and CPUs, of each run [1].")
]
SlurmOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm",
        metavar="KEY=VALUE,...|FILE.toml",
        help="With SLURM: options of sbatch, such as partition=gpu,time=2:00:00; may be repeated; see docs/slurm.md.",
    ),
]
GroupMinutes = Annotated[
    float | None,
    typer.Option("--group-minutes", metavar="N", help="With SLURM: minutes of estimated training in one task [60]."),
]
BudgetTime = Annotated[
    str | None,
    typer.Option("--budget", metavar="TIME", help="Train the runs that fit into 8h, 90m or 1h30m, by priority."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the runs and their estimates, and train nothing.")]
NoProfile = Annotated[
    bool, typer.Option("--no-profile", help="Estimate from the database's runs alone; try no steps of new runs.")
]


def _check_destinations(texts: list[str] | None) -> list[str] | None:
    from orthobench.sinks.targets import parse_target

    for text in texts or ():
        parse_target(text)
    return texts


LogTo = Annotated[
    list[str] | None,
    typer.Option(
        "--log-to",
        metavar="DESTINATION",
        callback=_check_destinations,
        help="Send the runs while they train to tensorboard[:DIR], mlflow[:DIR|URI] or wandb[:DIR]; may be repeated.",
    ),
]
Backend = Annotated[
    Literal["auto", "reference", "cpu", "cuda"],
    typer.Option("--backend", help="Kernels of the recurrence; auto: the fastest that serve."),
]
CudaGraph = Annotated[
    Literal["auto", "on", "off"],
    typer.Option(
        "--cuda-graph",
        help="Record a training step on CUDA once and replay it, with the same numbers; auto: where the model allows.",
    ),
]


def _use_data_folder(context: typer.Context, folder: Path | None) -> Path | None:
    """Use the data folder until the command ends."""
    if folder is None:
        return None
    from orthobench.data import use_data_folder

    context.with_resource(use_data_folder(folder))
    return folder


DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        callback=_use_data_folder,
        help="Folder of the data sets; else $ORTHOBENCH_DATA, else the user's cache folder.",
    ),
]


def print_help(context: typer.Context) -> None:
    """Print the help of a group of commands that is called without one."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def split_names(models: Iterable[str]) -> list[str]:
    """Return the names in the values of `--models`.

    Raises:
        UsageError: a name is empty.
    """
    from orthobench.errors import UsageError

    texts = ",".join(models)
    names = [name.strip() for name in texts.split(",")]
    if not all(names):
        raise UsageError(f"--models '{texts}' has an empty name: write --models scornn,lstm")
    return names


def check_names(task: str | None, models: Iterable[str], plugins: Collection[Path] | None) -> None:
    """Refuse an unknown task or model before torch is loaded, which takes seconds.

    Raises:
        UsageError: a name is unknown. With plugin files nothing is checked here: only torch can load them.
    """
    from orthobench.errors import UsageError
    from orthobench.plugins import Catalog

    if plugins:
        return
    catalog = Catalog()
    if task is not None:
        models = list(models)
        if task in catalog.names("model") and set(models) & set(catalog.names("task")):
            raise UsageError(f"'{task}' is a model and '{models[0]}' a task: write the task first, {models[0]} {task}")
        catalog.find("task", task)
    for model in models:
        catalog.find("model", model)


def asks_for_results_alone(context: typer.Context, *known: str) -> bool:
    """Return whether the user gave no parameter but the known ones, from which stored results follow.

    Any other one, such as a tag or a device, changes a finished run or is checked on this machine.
    """
    sources = {name: context.get_parameter_source(name) for name in context.params if name not in known}
    return all(source is None or source.name == "DEFAULT" for source in sources.values())
