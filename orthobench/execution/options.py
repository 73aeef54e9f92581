"""Options of execution: where and how runs train. They do not change a run's key or its numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from orthobench.errors import UsageError
from orthobench.execution.arguments import OPTIONS, read
from orthobench.sinks.targets import Target, parse_target
from orthobench.training.devices import BackendName, DeviceName
from orthobench.training.graph import GraphMode
from orthobench.training.keep import KeepWeights
from orthobench.training.loop import OnDivergence


@dataclass(frozen=True)
class ExecutionOptions:
    """Where and how runs train. A single text or path in place of a list counts as a list of one.

    Attributes:
        device: "auto" is CUDA where it is available.
        backend: the kernels of the recurrence; "auto" takes the fastest.
        cuda_graph: whether a training step runs as a CUDA graph; "auto" where device and model allow it.
        executor: "local", "ray", "ray://HOST:PORT", or "slurm".
        jobs: runs at once, each in its own process; 0: one after the other in this process; None: one per core, or as
            many as the GPUs take.
        gpu_share: runs on one GPU at once; without NVIDIA's MPS they take turns on it.
        threads: with Ray and SLURM, the threads and CPUs of each run.
        slurm: with SLURM, options of sbatch such as "partition=gpu,time=2:00:00", or names of TOML files with them.
        group_minutes: with SLURM, the minutes of estimated training in one task; None for 60.
        checkpoint_every: seconds between checkpoints.
        on_divergence: "stop" ends a diverged run; "continue" trains it for as long as its weights are finite.
        tags: names added to the runs.
        plugins: Python files with tasks, models and probes.
        checkpoints: with a database server, the folder or URL of the checkpoints.
        keep_weights: the weights that a run keeps at its end: "best" at its best test, "last" with the training state
            that a longer run continues from, "both", or "none".
        weights: the folder or URL of the kept weights; None for the folder beside the database file.
        data_folder: the folder of the data sets; None for $ORTHOBENCH_DATA or the user's cache folder.
        budget: seconds within which runs start; None for no limit.
        log_to: destinations of the runs while they train: "tensorboard[:DIR]", "mlflow[:DIR|URI]", "wandb[:DIR]".
        profile: estimate runs without similar ones in the database from a few of their steps.

    Raises:
        UsageError: a value is invalid, or the options contradict each other.
    """

    device: DeviceName = "auto"
    backend: BackendName = "auto"
    cuda_graph: GraphMode = "auto"
    executor: str = "local"
    jobs: int | None = None
    gpu_share: int = 1
    threads: int | None = None
    slurm: tuple[str, ...] = ()
    group_minutes: float | None = None
    checkpoint_every: float = 30.0
    on_divergence: OnDivergence = "stop"
    tags: tuple[str, ...] = ()
    plugins: tuple[Path, ...] = ()
    checkpoints: str | None = None
    keep_weights: KeepWeights = "best"
    weights: str | None = None
    data_folder: Path | None = None
    budget: float | None = None
    profile: bool = True
    log_to: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if value is not None or option.default is not None:
                object.__setattr__(self, option.name, read(option.name, value, OPTIONS))
        if self.executor not in ("local", "ray", "slurm") and not self.executor.startswith("ray://"):
            raise UsageError(f"executor '{self.executor}' is not known: give local, ray, ray://host:10001, or slurm")
        if self.executor == "local" and self.threads is not None:
            raise UsageError(
                "--threads is for --executor ray and slurm (threads=, executor=): here the runs share the cores, leave "
                "it out"
            )
        if self.executor != "local" and self.jobs == 0:
            raise UsageError(
                f"-j 0 is for runs in this process (jobs=0): leave it out with --executor {self.executor}, or give a "
                "limit"
            )
        if self.executor != "slurm" and (self.slurm or self.group_minutes is not None):
            raise UsageError("--slurm and --group-minutes are for --executor slurm (slurm=, group_minutes=)")
        if self.group_minutes is not None and not self.group_minutes > 0:
            raise UsageError(f"--group-minutes {self.group_minutes:g} (group_minutes=): give a positive number")
        self.destinations()

    def destinations(self) -> list[Target]:
        """Return the destinations of `log_to`, each once.

        Raises:
            UsageError: a destination is unknown, or its package is not installed.
        """
        return list(dict.fromkeys(map(parse_target, self.log_to)))
