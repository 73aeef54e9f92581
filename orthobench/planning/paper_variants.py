"""The variant of every paper's experiment, for commands that read results and need no torch.

An experiment's settings can be resolved only by the classes of its task and its model, which load torch. The result
follows from the code alone. So the user's cache folder keeps it with the hash of the code. After a change of the code,
another process resolves the experiments again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import platformdirs

from orthobench.errors import StorageError
from orthobench.planning.requests import code_hash
from orthobench.store import atomic


def paper_variants() -> dict[str, str]:
    """Return the variant of each paper's experiment that can run, by the experiment's identity."""
    if "torch" in sys.modules:  # then it takes a third of a second
        return resolve_variants()
    file = platformdirs.user_cache_path("orthobench") / "paper-variants.json"
    variants = _read(file)
    if variants is None:
        variants = _resolved_elsewhere()
        content = {"code": code_hash(), "variants": variants}
        with suppress(OSError, StorageError):  # without a cache the next report takes longer
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(file, json.dumps(content).encode())
    return variants


def resolve_variants() -> dict[str, str]:
    """Return the same as `paper_variants`, from the classes themselves."""
    from orthobench.planning.paper import variant_keys
    from orthobench.plugins import Catalog

    variants, _ = variant_keys(Catalog())
    return variants


def _read(file: Path) -> dict[str, str] | None:
    """Return the variants in a file that this code has written; None without such a file."""
    try:
        content = json.loads(file.read_text("utf-8"))
        variants: dict[str, str] = content["variants"]
        return variants if content["code"] == code_hash() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _resolved_elsewhere() -> dict[str, str]:
    """Return the variants from another process; from this one where that process cannot start or fails."""
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
        variants: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return resolve_variants()
    return variants


if __name__ == "__main__":
    print(json.dumps(resolve_variants()))
