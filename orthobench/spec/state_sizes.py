"""The sizes of the states of stored runs, for the report: another process counts them, because that loads torch.

A size follows from the code and the canonical form of a run, so a file in the user's cache folder keeps it under the
hash of the code, as for the index (`spec/index.py`). Only built-in tasks and models are counted, because a stored name
imports nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from orthobench.errors import OrthobenchError
from orthobench.plugins import Catalog
from orthobench.spec.index import answer_of, index, keep, read_kept
from orthobench.spec.resolve import RunConfig, RunSpec

FILE = "state_sizes"


def state_sizes(specs: Mapping[str, RunSpec]) -> dict[str, int]:
    """Return how many real numbers the model of each run carries from step to step, without those that are unknown.

    Args:
        specs: the canonical forms of runs, by names of the caller's choice.
    """
    plugins = index()["plugins"]
    wanted = {
        name: spec
        for name, spec in specs.items()
        if f"task/{spec.task}" in plugins and f"model/{spec.model}" in plugins
    }
    known: dict[str, int | None] = {} if "torch" in sys.modules else read_kept(FILE) or {}
    if missing := {spec.variant: asdict(spec) for spec in wanted.values() if spec.variant not in known}:
        # A process that fails counts nothing, and the next report asks again.
        with suppress(OSError, ValueError, subprocess.CalledProcessError):
            known |= compute(missing) if "torch" in sys.modules else answer_of(__name__, missing)
            if "torch" not in sys.modules:
                keep(FILE, known)
    sizes = {name: known.get(spec.variant) for name, spec in wanted.items()}
    return {name: size for name, size in sizes.items() if size}


def compute(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, int | None]:
    """Return the size of each canonical form by its name; None if the model cannot be built from it."""
    from orthobench.spec.model_sizes import Counter  # here, because it loads torch, which the report spares its readers

    counter, catalog = Counter(), Catalog()
    sizes: dict[str, int | None] = {}
    for name, spec in specs.items():
        try:
            sizes[name] = counter.state_size(RunConfig(RunSpec(**spec), catalog))
        except OrthobenchError:
            sizes[name] = None
    return sizes


if __name__ == "__main__":
    print(json.dumps(compute(json.load(sys.stdin))))
