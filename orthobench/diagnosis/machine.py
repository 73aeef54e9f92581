"""The machine: versions of packages, processors, GPUs, compilers."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from orthobench.data import speech
from orthobench.diagnosis.findings import DoctorFinding, Level
from orthobench.errors import installation
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cuda import self_test
from orthobench.system import environment
from orthobench.system.location import from_home
from orthobench.version import __version__

EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "audio": (speech.PACKAGES, "the task timit"),
    "cells": (("ziglang",), "kernels of your own cells where there is no C compiler"),
    "hub": (("huggingface_hub",), "orthobench publish --hub"),
    "mlflow": (("mlflow", "sqlparse"), "`log_to='mlflow'`"),
    "onnx": (("onnx", "onnxscript"), "the export of a model to ONNX"),
    "parquet": (("pyarrow",), "tables in Parquet"),
    "postgresql": (("psycopg",), "a PostgreSQL server as database"),
    "ray": (("ray",), "`executor='ray'`"),
    "search": (("optuna",), "orthobench tune"),
    "slurm": (("submitit",), "`executor='slurm'`"),
    "tensorboard": (("tensorboard",), "`log_to='tensorboard'`"),
    "trackio": (("trackio",), "`log_to='trackio'`"),
    "vision": (("torchvision",), "more places to download MNIST, Fashion-MNIST, KMNIST, EMNIST and CIFAR-10 from"),
    "wandb": (("wandb",), "`log_to='wandb'`"),
}
"""The packages of each extra in pyproject.toml, and what they are for."""
OLDEST_CAPABILITY = (8, 0)
SMALL_MEMORY = 4 << 30


def versions() -> Iterator[DoctorFinding]:
    """Yield the versions of Python and of the packages, and the extras that are missing."""
    section = "versions"
    facts = environment.describe(torch.device("cpu"))
    commit = f", commit {facts['commit'][:12]}" if facts["commit"] else ""
    yield DoctorFinding(section, "orthobench", f"{__version__}{commit}{', with changes' if facts['dirty'] else ''}")
    yield DoctorFinding(section, "python", f"{platform.python_version()} on {facts['platform']}")
    for name, number in facts["packages"].items():
        if name != "orthobench":
            yield DoctorFinding(section, name, number)
    for extra, (packages, use) in EXTRAS.items():
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            text = f"without {', '.join(missing)}, which {use} needs"
            yield DoctorFinding(section, f"extra {extra}", text, Level.NOTE, installation(extra))


def devices() -> Iterator[DoctorFinding]:
    """Yield the processor, the memory and the GPUs."""
    section = "devices"
    facts = environment.describe(torch.device("cpu"))
    threads = f"{facts['cores']} cores, {facts['threads']} threads, torch uses {facts['cpu_capability']}"
    yield DoctorFinding(section, "processor", f"{facts['cpu']}: {threads}")
    if threads_set := os.environ.get("OMP_NUM_THREADS"):
        yield DoctorFinding(
            section, "OMP_NUM_THREADS", f"it is {threads_set}: each run in this process uses that many threads",
            Level.NOTE, "unset it, unless you mean it",
        )  # fmt: skip
    memory = psutil.virtual_memory()
    small = memory.available < SMALL_MEMORY
    yield DoctorFinding(
        section, "memory", f"{memory.total / 1e9:.0f} GB, {memory.available / 1e9:.1f} GB of them free",
        Level.NOTE if small else Level.OK, "close other programs, or run fewer `jobs` at once" if small else "",
    )  # fmt: skip
    yield from _gpus(section)


def _gpus(section: str) -> Iterator[DoctorFinding]:
    if torch.cuda.is_available():
        driver = self_test.driver_version()
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            capability = (properties.major, properties.minor)
            text = (
                f"{properties.name}, {properties.total_memory / 1e9:.0f} GB, capability {capability[0]}."
                f"{capability[1]}, driver {driver or 'unknown'}, CUDA {torch.version.cuda}"
            )
            if capability < OLDEST_CAPABILITY:
                text += ": too old for the Triton kernels, so recurrences run in PyTorch"
                yield DoctorFinding(section, f"GPU {number}", text, Level.NOTE, "train on the CPU, or on a newer GPU")
            else:
                yield DoctorFinding(section, f"GPU {number}", text)
        return
    if (driver := self_test.driver_version()) is None:
        yield DoctorFinding(section, "GPU", "no NVIDIA GPU: runs train on the CPU")
        return
    if torch.version.cuda is None:
        text = f"an NVIDIA driver is installed ({driver}), but this torch is built for the CPU only"
        fix = "install torch with CUDA: https://pytorch.org/get-started/locally"
    else:
        text = f"an NVIDIA driver is installed ({driver}), but torch {torch.__version__} sees no GPU"
        fix = f"see nvidia-smi and $CUDA_VISIBLE_DEVICES; CUDA {torch.version.cuda} may need a newer driver"
    yield DoctorFinding(section, "GPU", text, Level.ACTION, fix)


def compilers() -> Iterator[DoctorFinding]:
    """Yield a C compiler, which an installation and Triton need, and what else Triton needs where there is a GPU."""
    section = "compilers"
    command = [from_home(word) for word in shlex.split(os.environ.get("CC") or "cc")]
    if shutil.which(command[0]):
        yield DoctorFinding(section, "C compiler", f"{' '.join(command)}: {_first_line(*command, '--version')}")
    elif torch.cuda.is_available() or call_c.missing():
        fix = "install gcc or clang, such as apt install gcc, or set $CC"
        yield DoctorFinding(section, "C compiler", f"{command[0]} does not exist", Level.ACTION, fix)
    else:
        yield DoctorFinding(
            section,
            "C compiler",
            f"{command[0]} does not exist, and nothing but kernels of your own cells needs it here",
        )
    if not torch.cuda.is_available():
        return
    if importlib.util.find_spec("triton") is None:
        yield DoctorFinding(section, "triton", "it is not installed", Level.ACTION, "pip install triton")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        fix = "install Python's headers, such as apt install python3-dev"
        yield DoctorFinding(section, "Python.h", f"{header} is missing, and Triton needs it", Level.ACTION, fix)


def _first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return "it cannot be run"
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        return f"it cannot be run ({error})"
    return next(iter((run.stdout or run.stderr).splitlines()), "it printed no message")
