"""Peak memory of a training step, in a separate process: `python -m orthobench.bench.memory SHAPE IMPLEMENTATION`."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from orthobench.bench.implementations import implementations
from orthobench.bench.shapes import Shape
from orthobench.isolation import isolated

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def peak_of_step(shape: Shape, implementation: str, threads: int) -> int | None:
    """Return the peak bytes of two steps beyond the memory before them, or None if the system does not report it.

    The memory before the steps holds the model, the data and the libraries. The system's count for a process
    (ru_maxrss) starts at its parent's size, so the process resets and reads its own peak, which is only possible on
    Linux.
    """
    if not _CLEAR.exists():
        return None
    command = [sys.executable, "-m", __name__, json.dumps(asdict(shape)), implementation, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak: int | None = json.loads(done.stdout.splitlines()[-1])
    return peak


def _measure(shape: Shape, implementation: str) -> int | None:
    device = torch.device("cpu")
    implementations(shape.small(), device)[implementation]()()  # loads libraries and starts threads
    step = implementations(shape, device)[implementation]()
    before = _kilobytes("VmRSS")
    try:
        # The peak is reset, because it would be that of loading the libraries.
        _CLEAR.write_text("5")
    except OSError:
        return None
    for _ in range(2):
        step()
    return 1024 * (_kilobytes("VmHWM") - before)


def _kilobytes(field: str) -> int:
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])


if __name__ == "__main__":
    with isolated(int(sys.argv[3])):
        print(json.dumps(_measure(Shape(**json.loads(sys.argv[1])), sys.argv[2])))
