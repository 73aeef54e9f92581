"""The variants of all papers' experiments, for commands that read results and do not need torch.

Resolving the settings of an experiment takes the classes of its task and its model, which load torch. The result
depends on the code alone, so it is cached in the user's cache folder under the hash of the code. After a change of the
code, another process resolves the experiments again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import platformdirs

from orthobench.errors import StorageError
from orthobench.files import atomic
from orthobench.planning.requests import code_hash


def paper_variants() -> dict[str, str]:
    """Return the variants of the papers' experiments that can run, by the identity of the experiment."""
    if "torch" in sys.modules:  # then resolving takes a third of a second
        return resolve_variants()
    file = platformdirs.user_cache_path("orthobench") / "paper-variants.json"
    variants = _read(file)
    if variants is None:
        variants = _resolved_elsewhere()
        content = {"code": code_hash(), "variants": variants}
        with suppress(OSError, StorageError):  # without a cache, only the next report takes longer
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(file, json.dumps(content).encode())
    return variants


def resolve_variants() -> dict[str, str]:
    """Compute the result of `paper_variants` from the classes of the plugins."""
    from orthobench.planning.paper import variant_keys
    from orthobench.plugins import Catalog

    variants, _ = variant_keys(Catalog())
    return variants


def _read(file: Path) -> dict[str, str] | None:
    """Return the variants from a file that this version of the code has written; None without such a file."""
    try:
        content = json.loads(file.read_text("utf-8"))
        variants: dict[str, str] = content["variants"]
        return variants if content["code"] == code_hash() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _resolved_elsewhere() -> dict[str, str]:
    """Compute the variants in another process, or in this one if the other process cannot start or fails."""
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
        variants: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return resolve_variants()
    return variants


if __name__ == "__main__":
    print(json.dumps(resolve_variants()))
