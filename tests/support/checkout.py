"""A copy of the checkout, whose code may be broken on purpose."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNELS = Path("orthobench/recurrence/cpu")


def copy_checkout(target: Path) -> None:
    """Copy the checkout's files, with models/ and tasks/ inside the package, so that the copy is imported whole.

    The database of results stays behind.
    """
    shutil.rmtree(target, ignore_errors=True)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        file = target / path_in_copy(name)
        if (ROOT / name).is_file() and name != "results.db":
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, file)
    for library in (ROOT / KERNELS).glob("*.so"):  # git ignores them
        shutil.copyfile(library, target / KERNELS / library.name)


def path_in_copy(name: str) -> Path:
    """Return the path in a copy of a file with this path in the checkout."""
    return Path("orthobench", name) if name.startswith(("models/", "tasks/")) else Path(name)
