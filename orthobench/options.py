"""How runs train: one record, from which the Python API and the command line take their options.

An option is one field, with its values, its default and its help. It does not change a run's key or its numbers.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, cast, get_args, get_type_hints

from orthobench.arguments import (
    A_COUNT,
    A_FILE,
    A_FOLDER,
    A_LIMIT,
    A_PLACE,
    A_POSITIVE,
    A_SEED,
    A_TRUTH,
    LARGEST_SEED,
    SOME_FILES,
    SOME_PLACES,
    SOME_SECONDS,
    SOME_TEXTS,
    BackendName,
    ComparedValue,
    DeviceName,
    GraphMode,
    KeepWeights,
    Kind,
    LoggedSplit,
    OnDivergence,
    Preset,
    ReportFormat,
    WhichWeights,
    check_tag,
    label,
    location,
    model,
    models,
    named_location,
    not_negative,
    parameters,
    parse_duration,
    places,
    read,
    real,
    seeds,
    tags,
    values,
    whole,
    word,
)
from orthobench.errors import UsageError
from orthobench.location import Place, from_home


@dataclass(frozen=True)
class Option:
    """What an option is for, what its values are, and how the command line spells it.

    Attributes:
        kind: validates the values; None for a `Literal`, whose words are the values.
        flags: the names on the command line; none for the field's own name.
        least: the least number that the command line takes.
        variable: the variable of the environment that stands for the option.
        parse: reads a text of the command line; the flag is put before the message of its ValueError.
    """

    help: str
    kind: Kind = None
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    least: int | None = None
    variable: str | None = None
    parse: Callable[[str], Any] | None = None


@dataclass(frozen=True)
class RunOptions:
    """How a run trains. A single text or path in place of a list counts as a list of one.

    Raises:
        UsageError: a value is invalid, or the options contradict each other.
    """

    device: Annotated[DeviceName, Option("Where to compute.")] = "auto"
    backend: Annotated[
        BackendName, Option("Kernels of the recurrence; auto: the fastest back end that supports the run.")
    ] = "auto"
    cuda_graph: Annotated[
        GraphMode,
        Option(
            "Record a training step on CUDA once and replay it, with the same numbers; auto: where the model allows."
        ),
    ] = "auto"
    data_folder: Annotated[
        Path | None,
        Option(
            "Folder of the data sets; else $ORTHOBENCH_DATA, else the user's cache folder.",
            A_FOLDER,
            ("--data-dir",),
            "DIR",
        ),
    ] = None
    plugins: Annotated[
        tuple[Path, ...],
        Option("A Python file with a task, model or probe of yours.", SOME_FILES, ("--plugin",), "FILE"),
    ] = ()
    tags: Annotated[
        tuple[str, ...],
        Option(
            "A name for the runs; may be repeated.",
            (
                tags,
                "words of up to 64 characters, without commas, and other than none, which selects runs without a tag",
            ),
            ("--tag",),
            "NAME",
            parse=check_tag,
        ),
    ] = ()
    log_to: Annotated[
        tuple[Place, ...],
        Option(
            "Send the runs while they train to tensorboard[:DIR], mlflow[:DIR|URI] or wandb[:DIR]; may be repeated.",
            SOME_PLACES,
            metavar="DESTINATION",
            parse=str,
        ),
    ] = ()
    checkpoints: Annotated[
        Place | None,
        Option("With a database server: folder or URL that all its machines see.", A_PLACE, metavar="PLACE", parse=str),
    ] = None
    checkpoint_every: Annotated[
        float, Option("Time between checkpoints.", SOME_SECONDS, metavar="SECONDS", least=0)
    ] = 30.0
    keep_weights: Annotated[
        KeepWeights,
        Option(
            "Weights that a finished run keeps: those of its best test, the last ones with the training state that "
            "a longer run continues from, both, or none."
        ),
    ] = "best"
    weights: Annotated[
        Place | None,
        Option(
            "Folder or URL of kept weights; else the folder next to the database.",
            A_PLACE,
            ("--weights-at",),
            "PLACE",
            parse=str,
        ),
    ] = None
    on_divergence: Annotated[
        OnDivergence,
        Option("stop: end a run when it diverges; continue: end it only when its weights are not finite."),
    ] = "stop"

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if value is not None or option.default is not None:
                values, text = OPTIONS[option.name]
                object.__setattr__(self, option.name, read(option.name, value, text.kind or values))


@dataclass(frozen=True)
class SweepOptions(RunOptions):
    """Where and how the runs of a sweep train."""

    executor: Annotated[
        str,
        Option(
            "Where runs train: in processes here, on the Ray cluster of this machine or another one, or on SLURM.",
            (word, "local, ray, ray://HOST:PORT, or slurm"),
            metavar="local|ray|ray://HOST:PORT|slurm",
        ),
    ] = "local"
    threads: Annotated[int | None, Option("On a cluster: threads, and CPUs, of each run [1].", A_COUNT, least=1)] = None
    slurm: Annotated[
        tuple[str, ...],
        Option(
            "With SLURM: options of sbatch, such as partition=gpu,time=2:00:00; may be repeated; see docs/cluster.md.",
            SOME_TEXTS,
            metavar="KEY=VALUE,...|FILE.toml",
        ),
    ] = ()
    group_minutes: Annotated[
        float | None,
        Option("With SLURM: minutes of estimated training in one task [60].", A_POSITIVE, metavar="N"),
    ] = None
    jobs: Annotated[
        int | None,
        Option(
            "Number of parallel runs, each in its own process; 0: in this process. Default: one per core, or as many "
            "as the GPUs can share.",
            A_LIMIT,
            ("-j", "--jobs"),
            least=0,
            variable="ORTHOBENCH_JOBS",
        ),
    ] = None
    gpu_share: Annotated[
        int,
        Option("Runs on one GPU at once; without NVIDIA's MPS they take turns on it.", A_COUNT, metavar="K", least=1),
    ] = 1
    budget: Annotated[
        float | None,
        Option(
            "Train the runs that fit into 8h, 90m or 1h30m, by priority.",
            SOME_SECONDS,
            metavar="TIME",
            parse=parse_duration,
        ),
    ] = None
    profile: Annotated[
        bool,
        Option(
            "If no stored run is similar, estimate a run by timing a few steps; otherwise use stored runs only.",
            A_TRUTH,
            ("--profile/--no-profile",),
        ),
    ] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.executor not in ("local", "ray", "slurm") and not self.executor.startswith("ray://"):
            raise UsageError(f"executor '{self.executor}' is not known: give local, ray, ray://host:10001, or slurm")
        if self.executor == "local" and self.threads is not None:
            raise UsageError(
                "`threads` is for `executor='ray'` and `executor='slurm'`: here the runs share the cores, leave it out"
            )
        if self.executor != "local" and self.jobs == 0:
            raise UsageError(
                f"`jobs=0` is for runs in this process: leave it out with `executor={self.executor!r}`, or give a limit"
            )
        if self.executor != "slurm" and (self.slurm or self.group_minutes is not None):
            raise UsageError("`slurm` and `group_minutes` are for `executor='slurm'`")

    def check_gpu_share(self, device: str) -> None:
        """Refuse runs that should share a GPU but train on the CPU.

        Args:
            device: where they train, "cpu" or "cuda".

        Raises:
            UsageError: the runs train on the CPU.
        """
        if device != "cuda" and self.gpu_share > 1:
            raise UsageError("`gpu_share` is for runs on GPUs: leave it out, or give `device='cuda'`")

    @classmethod
    def of(cls, options: RunOptions | None) -> SweepOptions:
        """Return the options of a sweep whose runs train with these options; None: the defaults."""
        if isinstance(options, SweepOptions):
            return options
        return cls() if options is None else cls(**vars(options))


_TYPES = get_type_hints(SweepOptions, include_extras=True)
OPTIONS: dict[str, tuple[Any, Option]] = {each.name: get_args(_TYPES[each.name])[:2] for each in fields(SweepOptions)}
"""By name, the type of an option's values and its description."""


def names_of(record: type[RunOptions]) -> list[str]:
    """Return the names of a record's options."""
    return [each.name for each in fields(record)]


_chosen: ContextVar[Path | None] = ContextVar("data_folder", default=None)


def data_folder() -> Path:
    """Return the data folder: the one set by `use_data_folder`, else $ORTHOBENCH_DATA, else the user's cache folder."""
    if (chosen := _chosen.get()) is not None:
        return chosen
    if variable := os.environ.get("ORTHOBENCH_DATA"):
        return Path(from_home(variable))
    from orthobench.files import user_cache_folder

    return Path(from_home(str(user_cache_folder()))) / "data"


@contextmanager
def use_data_folder(folder: Path | None) -> Iterator[None]:
    """Set the data folder inside the block; None keeps the current one."""
    token = _chosen.set(_chosen.get() if folder is None else Path(from_home(str(folder))))
    try:
        yield
    finally:
        _chosen.reset(token)


P = ParamSpec("P")
T = TypeVar("T")


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value
    raise ValueError


def _options(value: Any) -> Any:
    if isinstance(value, RunOptions):
        return value
    raise ValueError


def _display(value: Any) -> Any:
    if not isinstance(value, type) and hasattr(value, "on_stop_request"):  # an import of Display would be circular
        return value
    raise ValueError


A_DATABASE = (location, "a file or an SQLAlchemy URL")
A_LABEL = (label, "a number or a name")
A_MAPPING = (_mapping, "a dictionary of settings by name, such as {'hidden_size': 64}")
ARGUMENTS: dict[str, Kind] = {
    "task": (word, "the name of a task, such as 'adding'"),
    "model": (model, "the name of a model, such as 'scornn', or the class of a layer"),
    "models": (models, "the name of a model or the class of a layer, or a list of them"),
    "seed": A_SEED,
    "first_seed": A_SEED,
    "seeds": (seeds, f"a number of seeds of at least 1, or a list of whole numbers from 0 to {LARGEST_SEED}"),
    "preset": Preset,
    "db": A_DATABASE,
    "history": A_DATABASE,
    "databases": (places, "a database, or a list of them"),
    "settings": A_MAPPING,
    "grid": (values, "a dictionary of lists by setting, such as {'learning_rate': [1e-3, 1e-4]}"),
    "options": (_options, "SweepOptions(...), or RunOptions(...)"),
    "match_parameters": (parameters, "a number of parameters, such as 15_000, or a model of the sweep"),
    "paper": (word, "the key of a paper, such as 'helfrich2018'"),
    "table": A_LABEL,
    "figure": A_LABEL,
    "name": (word, "a name"),
    "to": (named_location, "tensorboard[:DIR], mlflow[:DIR|URI] or wandb[:DIR]"),
    "split": LoggedSplit,
    "scale": (real, "a number"),
    "older_than": (not_negative, "a number of days of at least 0"),
    "port": (whole(0, 65_535), "a whole number from 0 to 65535"),
    "jobs": A_LIMIT,
    "display": (_display, "Display(), or an object of a class derived from it"),
    "plugins": SOME_FILES,
    "data_folder": A_FOLDER,
    "folder": A_FOLDER,
    "device": DeviceName,
    "backend": BackendName,
    "value": ComparedValue,
    "form": ReportFormat,
    "weights": WhichWeights,
    "weights_at": A_PLACE,
    **dict.fromkeys(("where", "only", "names", "selections", "columns", "kinds"), SOME_TEXTS),
    **dict.fromkeys(("trials", "steps", "batch"), A_COUNT),
    **dict.fromkeys(("baseline", "path", "file", "out", "commentary"), A_FILE),
    **dict.fromkeys(("force", "extend", "dry_run", "prune", "db_only", "for_update"), A_TRUTH),
    **dict.fromkeys(("fail_on_speed", "retest", "paired", "bold_best"), A_TRUTH),
}
"""The kind of each argument, for all functions."""


def checked(**special: Kind) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Validate the arguments of an API function by their names, before the function runs.

    An argument whose default is None may be None.

    Args:
        special: the arguments whose kind differs from `ARGUMENTS` in this function; None switches the check off.
    """
    kinds = {**ARGUMENTS, **special}

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            for name, value in bound.arguments.items():
                kind = kinds.get(name)
                if kind is not None and (value is not None or signature.parameters[name].default is not None):
                    bound.arguments[name] = read(name, value, kind)
            return function(*bound.args, **bound.kwargs)

        return cast(Callable[P, T], call)

    return wrap
