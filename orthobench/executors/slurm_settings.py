"""The options of sbatch in the values of `slurm`, which are text or TOML files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orthobench.errors import UsageError
from orthobench.options.arguments import DeviceName
from orthobench.settings import read_toml
from orthobench.system.location import from_home

GPU_OPTIONS = ("gpus", "gpus_per_node", "gpus_per_task", "gpus_per_socket")
"""The options of sbatch that request GPUs; `gres=gpu:1` also does."""
RESERVED = ("array", "error", "nodes", "ntasks", "ntasks_per_node", "open_mode", "output", "signal", "wrap", "parsable")
"""The options of sbatch that orthobench sets itself: each group of runs is one task on one node."""


@dataclass(frozen=True)
class SlurmSettings:
    """The options of sbatch for a sweep.

    Attributes:
        options: the values by option name, with underscores; True for an option without a value.
        folder: the folder for SLURM's scripts and logs; None for `slurm` in the folder of the checkpoints.
    """

    options: Mapping[str, str | bool] = field(default_factory=dict)
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Refuse control characters, because a line break would start a new line in the script of the job.

        Raises:
            UsageError: an option contains one.
        """
        for name, value in self.options.items():
            if not f"{name}{value}".isprintable():
                raise UsageError(f"`slurm` {name!r}: its value has a control character; write it in one line")

    @property
    def asks_for_gpus(self) -> bool:
        """Whether the options request GPUs."""
        return any(name in self.options for name in GPU_OPTIONS) or "gpu" in str(self.options.get("gres", ""))

    def device(self, wanted: DeviceName) -> DeviceName:
        """Return where the runs train: "auto" means a GPU if these options ask for one.

        Raises:
            UsageError: the options ask for GPUs, and the runs should train on the CPU.
        """
        if wanted == "cpu" and self.asks_for_gpus:
            raise UsageError("`device='cpu'` uses no GPU: leave it out, or the GPUs of `slurm`")
        return wanted if wanted != "auto" else "cuda" if self.asks_for_gpus else "cpu"

    def arguments(self) -> list[str]:
        """Return the options as arguments of sbatch."""
        pairs = {name.replace("_", "-"): value for name, value in self.options.items()}
        return [f"--{name}" if value is True else f"--{name}={value}" for name, value in pairs.items()]


def read_settings(texts: Iterable[str]) -> SlurmSettings:
    """Read the values of `slurm`: `partition=gpu,time=2:00:00`, or the name of a TOML file with the same options.

    A comma separates two options only if a name and `=` follow it, so `exclude=n1,n2` is one option. Later values
    override earlier ones.

    Raises:
        UsageError: a text is not an option, a file cannot be read, or orthobench sets the option itself.
    """
    values: dict[str, str | bool] = {}
    for text in texts:
        values |= _from_file(Path(from_home(text))) if text.endswith(".toml") else _from_words(text)
    for name in values:
        if name in RESERVED:
            raise UsageError(f"`slurm` {name}: orthobench sets this option of sbatch itself, leave it out")
    folder = values.pop("folder", None)
    return SlurmSettings(values, None if folder is None else Path(from_home(str(folder))))


def _from_words(text: str) -> dict[str, str | bool]:
    words = re.split(r",(?=[A-Za-z][\w-]*=)|,(?=exclusive\b)", text)
    values: dict[str, str | bool] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not re.fullmatch(r"[A-Za-z][\w-]*", name.strip()) or (equals and not value.strip()):
            raise UsageError(
                f"`slurm={text!r}`: write options of sbatch, partition=gpu,time=2:00:00, or name a .toml file"
            )
        values[_name(name)] = value.strip() if equals else True
    return values


def _from_file(file: Path) -> dict[str, str | bool]:
    values: dict[str, str | bool] = {}
    for name, value in read_toml(file, f"`slurm` {file}").items():
        if not isinstance(value, str | int | float):
            raise UsageError(f"`slurm` {file}: write {name} as one word or number, as sbatch takes it")
        if value is not False:
            values[_name(name)] = True if value is True else str(value)
    return values


def _name(word: str) -> str:
    return word.strip().replace("-", "_")
