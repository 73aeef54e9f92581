"""The environment of a run: versions, commit and hardware, which a reader of its numbers would ask for."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

from orthobench.system.processor import cpu_model, cpu_name

CODE = ("orthobench", "tasks", "models")
"""The folders of a checkout in which changes may change a run's numbers."""
SOURCES = (".py", ".c", ".h", ".cu", ".cuh", ".toml")
"""The ends of new files that may: others are those of editors and systems, such as `.lstm.py.swp` and `.DS_Store`."""
PACKAGES = ("orthobench", "torch", "triton", "numpy", "scipy", "sqlalchemy")


def describe(device: torch.device, plugins: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the facts that may change a run's numbers or its speed.

    Args:
        plugins: the source code of the run's plugins that are not built in, each with its `revision`; the commit does
            not determine them, so they count as changes.
    """
    commit, changed = _code()
    changes = _hash([*changed, *sorted(str(plugin["revision"]) for plugin in plugins)])
    facts = {
        "python": platform.python_version(),
        "packages": {name: number for name in PACKAGES if (number := _version(name))},
        "commit": commit,
        "dirty": changes is not None,
        "changes": changes,
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpu_model": cpu_model(),
        "cores": psutil.cpu_count(logical=False),
        "threads": torch.get_num_threads(),
        "memory": psutil.virtual_memory().total,
        "accelerator": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    return facts | {"plugins": [dict(plugin) for plugin in plugins]} if plugins else facts


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes, or None if the system does not report it."""
    if sys.platform == "win32":
        return None
    if sys.platform == "linux":  # because its resource usage starts at the parent's memory
        match = re.search(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.M)
        if match:
            return 1024 * int(match[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


@cache  # as imported; a package that is upgraded in the meantime does not change this process
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache  # because a process runs the code that it has imported, and to ask git for each run takes time
def _code() -> tuple[str | None, tuple[str, ...]]:
    """Return the commit of this package's checkout, and each changed or new file with the hash of its content.

    Without a checkout these are None and ().
    """
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None, ()
    # Names alone, because the user's configuration may change everything else of a difference; also their order.
    changes = git(folder, "diff", "HEAD", "--name-only", "--no-renames", "-z", "--", *CODE) or ""
    listed = git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", *CODE) or ""
    new = [name for name in listed.split("\0") if name.endswith(SOURCES) and not Path(name).name.startswith(".")]
    files = [(name, folder / name) for name in sorted(filter(None, (*changes.split("\0"), *new)))]
    changed = [
        f"{name} {hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None}\n" for name, file in files
    ]
    return git(folder, "rev-parse", "HEAD"), tuple(changed)


def _hash(changed: Sequence[str]) -> str | None:
    """Return a hash of changed files and of the plugins' revisions; None without any."""
    return hashlib.sha256("".join(changed).encode()).hexdigest()[:16] if changed else None


def git(folder: Path, *arguments: str) -> str | None:
    """Run a git command in the repository of a folder; return None if git fails."""
    # Git sets variables for its hooks that name the repository of the hook. Configuration may say whom to trust.
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG_")
    }
    try:
        # File names may be in any encoding. There is a limit, because git may wait for a lock or a slow network
        # folder, and a run should start anyway.
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
