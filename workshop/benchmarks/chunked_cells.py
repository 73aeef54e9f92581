"""Time the models whose CUDA kernels run many steps at once, next to scoRNN.

python workshop/benchmarks/chunked_cells.py

Milliseconds of a training step as in `orthobench bench --models`, eager and as a CUDA graph, the sizes of chunks, and
whether computing W pays on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from orthobench.bench.measure import interleave, summarise
from orthobench.bench.models import BATCH, CLASSES, PIXELS, STEPS, ModelStep, step_on_noise
from orthobench.isolation import isolated
from orthobench.model import Signature
from orthobench.models import _plain
from orthobench.plugins import Catalog
from orthobench.recurrence.backends import last_self_tests
from orthobench.recurrence.ops.memories import cuda as memories
from orthobench.task import Batch

MODELS = ("scornn", "rwkv7", "mamba3", "pd_ssm", "enrnn", "dtriv", "deltanet", "mamba")
DEVICE = torch.device("cuda")


def milliseconds(step: Callable[[], object]) -> float:
    """Return the milliseconds of a step among many, until the GPU is done."""

    def waited() -> None:
        step()
        torch.cuda.synchronize()

    (samples,) = interleave({"step": waited}, 5, shortest=0.02, patience=0.8).values()
    return summarise(samples).seconds * 1e3


def reading_all(model_class: Any, steps: int) -> ModelStep:
    """Return a step of a model whose outputs at all steps are read."""
    generator = torch.Generator().manual_seed(0)
    settings = model_class.Settings.read({"hidden_size": 128})
    model = model_class(settings, Signature(PIXELS, CLASSES, "all"), generator).to(DEVICE)
    inputs = torch.rand(steps, BATCH, PIXELS, generator=generator).to(DEVICE)
    return ModelStep(model, Batch(inputs, inputs), lambda outputs, targets: outputs.square().mean())


def applying(model_class: Any, size: int) -> Callable[[], object]:
    """Return forward and backward pass of a model that would apply the factors of W on a CPU."""
    generator = torch.Generator().manual_seed(0)
    settings = model_class.Settings.read({"hidden_size": size})
    model = model_class(settings, Signature(PIXELS, CLASSES, "last"), generator).to(DEVICE)
    model.forms_weight = False
    inputs = torch.rand(STEPS // 8, BATCH, PIXELS, generator=generator).to(DEVICE)

    def step() -> None:
        outputs, _ = model(inputs)
        outputs.square().mean().backward()

    return step


@contextmanager
def changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def main() -> None:
    catalog = Catalog(())
    loaded = {name: catalog.load("model", name) for name in (*MODELS, "urnn", "wrnn")}
    for name in MODELS:
        step = step_on_noise(loaded[name], DEVICE, 128, STEPS)
        row = f"{name}: graph {milliseconds(step):.2f} ms, eager {milliseconds(step.train):.2f} ms"
        if name in ("rwkv7", "mamba3", "scornn"):
            row += f"; all outputs read: graph {milliseconds(reading_all(loaded[name], STEPS)):.2f} ms"
        print(row, flush=True)
    for name, chunk, lengths in (("rwkv7", "ERASED_CHUNK", (16, 64)), ("mamba3", "CHUNK", (32, 128))):
        for length in lengths:
            with changed(memories, chunk, length):
                last, every = step_on_noise(loaded[name], DEVICE, 128, STEPS), reading_all(loaded[name], STEPS)
                times = f"{milliseconds(last):.2f} ms, all outputs read {milliseconds(every):.2f} ms"
                print(f"{name} in chunks of {length}: {times}", flush=True)
    for name, size in (("urnn", 2170), ("wrnn", 2048), ("wrnn", 4096)):
        spent = []
        for most in (1 << 20, 0):
            with changed(_plain, "FORMED_ON_GPU", most):
                spent.append(milliseconds(applying(loaded[name], size)))
        print(f"{name} {size}, {STEPS // 8} steps: W {spent[0]:.1f} ms, its factors {spent[1]:.1f} ms", flush=True)
    print("self-tests:", last_self_tests())


if __name__ == "__main__":
    with isolated():
        main()
