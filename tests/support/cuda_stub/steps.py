"""Count the work of training steps on the stub: `python steps.py '[[task, model, settings, cuda_graph], ...]'`."""

import collections
import ctypes
import json
import sys
import traceback
from pathlib import Path
from typing import Any

STEPS = 3
NAMES = ("launches", "waits", "library", "from_host", "allocations", "graph_launches", "captures", "forbidden")
PACKAGES = ("orthobench", "tasks", "models")

runtime, driver = ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1")
for function in (runtime.stub_count, driver.stub_triton_launches):
    function.restype = ctypes.c_long
callers: collections.Counter[str] = collections.Counter()


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)
def on_wait(name: bytes) -> None:
    for frame in reversed(traceback.extract_stack()):
        parts = Path(frame.filename).parts
        if any(package in parts for package in PACKAGES) and "tests" not in parts:
            callers[f"{Path(frame.filename).name}:{frame.name}"] += 1
            return
    callers[f"{name.decode()} elsewhere"] += 1


def counts() -> dict[str, int]:
    return {name: runtime.stub_count(i) for i, name in enumerate(NAMES)} | {"compiled": driver.stub_triton_launches()}


def reset() -> None:
    callers.clear()
    runtime.stub_reset()
    driver.stub_triton_reset()


def measure(task: str, model: str, settings: dict[str, str], cuda_graph: Any) -> dict[str, object]:
    """Return the counts of each of a few steps, after those that compile and allocate."""
    import torch

    from orthobench.plugins import Catalog
    from orthobench.recurrence.backends import forget_used, last_used
    from orthobench.recurrence.cuda import launch
    from orthobench.spec.resolve import resolve
    from orthobench.training.build import build_trainer

    torch.linalg.svd = lambda a: (a, a[0], a)  # whose result the stub cannot give
    forget_used()
    config = resolve(Catalog(()), task, model, settings, "paper", 0)
    trainer = build_trainer(config, torch.device("cuda", 0))
    trainer.use_graph(cuda_graph)
    for _ in range(4):  # with a graph, its warm-up and the capture
        trainer.advance()
    captures = counts()["captures"]
    reset()
    for _ in range(STEPS):
        trainer.advance()
    per_step = {name: count / STEPS for name, count in counts().items()}
    waits = {caller: count / STEPS for caller, count in callers.items()}
    facts = {"callers": waits, "backends": sorted(last_used()), "captures": captures}
    return per_step | facts | {"problem": launch.triton_problem()}


if __name__ == "__main__":
    runtime.stub_on_wait(on_wait)
    for job in json.loads(sys.argv[1]):
        reset()
        print(json.dumps(measure(*job)), flush=True)
