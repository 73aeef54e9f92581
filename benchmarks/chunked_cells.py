"""Time the models whose CUDA kernels run many steps at once, next to scoRNN: `python benchmarks/chunked_cells.py`.

Milliseconds of a training step as in `orthobench bench --models`, eager and as a CUDA graph, the sizes of chunks, and
whether computing W pays on a GPU. First, the gradients of a batch are compared with those of the definition in float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from orthobench.bench.models import BATCH, CLASSES, PIXELS, STEPS, ModelStep, step_on_noise
from orthobench.isolation import isolated
from orthobench.model import Signature
from orthobench.models import _plain
from orthobench.plugins import Catalog
from orthobench.recurrence.ops.memories import cuda as memories
from orthobench.recurrence.runtime import forget_used, last_self_tests, last_used
from orthobench.task import Batch

MODELS = ("scornn", "rwkv7", "mamba3", "pd_ssm", "enrnn", "dtriv", "deltanet", "mamba")
DEVICE = torch.device("cuda")


def milliseconds(step: Callable[[], object], most: float = 0.8) -> float:
    """Return the shortest of some runs of a step, which ends when the device is done."""
    step()
    spent: list[float] = []
    start = time.perf_counter()
    while len(spent) < 3 or (len(spent) < 20 and time.perf_counter() - start < most):
        before = time.perf_counter()
        step()
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - before)
    return 1000 * min(spent)


def reading_all(model_class: Any, steps: int) -> ModelStep:
    """Return a step of a model whose outputs at all steps are read."""
    generator = torch.Generator().manual_seed(0)
    settings = model_class.Settings.read({"hidden_size": 128})
    model = model_class(settings, Signature(PIXELS, CLASSES, "all"), generator).to(DEVICE)
    inputs = torch.rand(steps, BATCH, PIXELS, generator=generator).to(DEVICE)
    return ModelStep(model, Batch(inputs, inputs), lambda outputs, targets: outputs.square().mean())


def gradient_errors(model_class: Any) -> dict[str, str]:
    """Return the largest relative error of a parameter's gradient, and its name, on the GPU and on the CPU.

    The step on the GPU has trained the model while its graph was recorded, so the others take over its weights.
    """
    steps = {place: step_on_noise(model_class, torch.device(place), 32, 100) for place in ("cuda", "cpu")}
    steps["float64"] = truth = step_on_noise(model_class, torch.device("cpu"), 32, 100)
    truth.model.double()
    truth.batch = Batch(truth.batch.inputs.double(), truth.batch.targets)
    weights = {name: value.clone() for name, value in steps["cuda"].model.state_dict().items()}
    gradients = {}
    for place, step in steps.items():
        step.model.load_state_dict(weights)
        step.train()
        named = step.model.named_parameters()
        gradients[place] = {name: each.grad.cpu().double() for name, each in named if each.grad is not None}
    expected = gradients.pop("float64")
    errors = {
        place: [
            (float((of_place[name] - each).norm() / each.norm()), name) for name, each in expected.items() if each.any()
        ]
        for place, of_place in gradients.items()
    }
    return {place: "{:.1e} ({})".format(*max(each)) for place, each in errors.items()}


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
    for name in MODELS[1:]:
        forget_used()
        errors = gradient_errors(loaded[name])
        print(f"{name}: largest relative error of a gradient {errors}; back ends {sorted(last_used())}", flush=True)
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
        spent: list[float] = []
        for most in (1 << 20, 0):
            with changed(_plain, "FORMED_ON_GPU", most):
                spent.append(milliseconds(applying(loaded[name], size), most=0.1))
        print(f"{name} {size}, {STEPS // 8} steps: W {spent[0]:.1f} ms, its factors {spent[1]:.1f} ms", flush=True)
    print("self-tests:", last_self_tests())


if __name__ == "__main__":
    with isolated():
        main()
