"""How runs train: one record, from which the Python API and the command line take their options.

An option is one field, with its values, its default and its help. It does not change a run's key or its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

from orthobench.errors import UsageError
from orthobench.options.arguments import (
    AtLeastZero,
    BackendName,
    Count,
    Device,
    File,
    Files,
    GraphMode,
    KeepWeights,
    Name,
    NamedPlace,
    NotNegative,
    OnDivergence,
    Places,
    Positive,
    Tags,
    Texts,
    check_tag,
    parse_duration,
)
from orthobench.options.checked import checked_record

WHAT, HOW, WHERE, CLUSTERS = "What to train", "How to train", "Where results go", "Clusters and servers"
"""The headings of the help of commands that train."""
JOBS_VARIABLE = "ORTHOBENCH_JOBS"
"""The variable of the environment that names the number of runs at once."""


@dataclass(frozen=True)
class Option:
    """What an option is for, what its values are, and how the command line spells it.

    Attributes:
        flags: the names on the command line; none for the field's own name.
        least: the least number that the command line takes.
        variable: the variable of the environment that stands for the option.
        parse: reads a text of the command line; the flag is put before the message of its ValueError.
        group: under which heading the help lists it.
    """

    help: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    least: int | None = None
    variable: str | None = None
    parse: Callable[[str], Any] | None = None
    group: str = HOW


@checked_record
@dataclass(frozen=True)
class RunOptions:
    """How a run trains. A single text or path in place of a list counts as a list of one.

    Raises:
        UsageError: a value is invalid, or the options contradict each other.
    """

    device: Annotated[Device, Option("Where to compute.")] = "auto"
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
        File | None,
        Option(
            "Folder of the data sets; else $ORTHOBENCH_DATA, else the user's cache folder.",
            ("--data-dir",),
            "DIR",
            group=WHAT,
        ),
    ] = None
    plugins: Annotated[
        Files,
        Option("A Python file with a task, model or probe of yours.", ("--plugin",), "FILE", group=WHAT),
    ] = ()
    tags: Annotated[
        Tags,
        Option(
            "A name for the runs; may be repeated.",
            ("--tag",),
            "NAME",
            parse=check_tag,
            group=WHERE,
        ),
    ] = ()
    log_to: Annotated[
        Places,
        Option(
            "Send the runs while they train to tensorboard[:DIR], mlflow[:DIR|URI], trackio[:DIR] or "
            "wandb[:DIR]; may be repeated.",
            metavar="DESTINATION",
            parse=str,
            group=WHERE,
        ),
    ] = ()
    checkpoints: Annotated[
        NamedPlace | None,
        Option(
            "With a database server: folder or URL that all its machines see.",
            metavar="PLACE",
            parse=str,
            group=CLUSTERS,
        ),
    ] = None
    checkpoint_every: Annotated[NotNegative, Option("Time between checkpoints.", metavar="SECONDS", least=0)] = 30.0
    keep_weights: Annotated[
        KeepWeights,
        Option(
            "Weights that a finished run keeps: those of its best test, the last ones with the training state that "
            "a longer run continues from, both, or none.",
            group=WHERE,
        ),
    ] = "best"
    weights: Annotated[
        NamedPlace | None,
        Option(
            "Folder or URL of kept weights; else the folder next to the database.",
            ("--weights-at",),
            "PLACE",
            parse=str,
            group=WHERE,
        ),
    ] = None
    on_divergence: Annotated[
        OnDivergence,
        Option("stop: end a run when it diverges; continue: end it only when its weights are not finite."),
    ] = "stop"


@checked_record
@dataclass(frozen=True)
class SweepOptions(RunOptions):
    """Where and how the runs of a sweep train."""

    executor: Annotated[
        Name,
        Option(
            "Where runs train: in processes here, on the Ray cluster of this machine or another one, or on SLURM.",
            metavar="local|ray|ray://HOST:PORT|slurm",
            group=CLUSTERS,
        ),
    ] = "local"
    threads: Annotated[
        Count | None, Option("On a cluster: threads, and CPUs, of each run [1].", least=1, group=CLUSTERS)
    ] = None
    slurm: Annotated[
        Texts,
        Option(
            "With SLURM: options of sbatch, such as partition=gpu,time=2:00:00; may be repeated; see docs/train.md.",
            metavar="KEY=VALUE,...|FILE.toml",
            group=CLUSTERS,
        ),
    ] = ()
    group_minutes: Annotated[
        Positive | None,
        Option("With SLURM: minutes of estimated training in one task [60].", metavar="N", group=CLUSTERS),
    ] = None
    jobs: Annotated[
        AtLeastZero | None,
        Option(
            "Number of parallel runs, each in its own process; 0: in this process. Default: one per core, or as many "
            "as the GPUs can share.",
            ("-j", "--jobs"),
            least=0,
            variable=JOBS_VARIABLE,
        ),
    ] = None
    gpu_share: Annotated[
        Count,
        Option("Runs on one GPU at once; without NVIDIA's MPS they take turns on it.", metavar="K", least=1),
    ] = 1
    budget: Annotated[
        NotNegative | None,
        Option(
            "Train the runs that fit into 8h, 90m or 1h30m, by priority.",
            metavar="TIME",
            parse=parse_duration,
        ),
    ] = None
    profile: Annotated[
        bool,
        Option(
            "If no stored run is similar, estimate a run by timing a few steps; otherwise use stored runs only.",
            ("--profile/--no-profile",),
        ),
    ] = True

    def __post_init__(self) -> None:
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
OPTIONS: dict[str, tuple[Any, Option]] = {
    name: (kind, next(each for each in get_args(_TYPES[name]) if isinstance(each, Option)))
    for name, kind in get_type_hints(SweepOptions).items()
}
"""By name, the type of an option's values and its description."""


def names_of(record: type[RunOptions]) -> list[str]:
    """Return the names of a record's options."""
    return [each.name for each in fields(record)]
