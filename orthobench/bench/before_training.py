"""What a model does before it trains: its gradient through time, and time and memory of a step next to the LSTM's.

The gradient is that of a random linear map of the outputs after the last step, with respect to the inputs of each step.
The memory is what autograd keeps of the forward pass for the backward pass, without the parameters. It grows with the
batch and the length, and is the larger part of a step's memory.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from orthobench.bench.measure import interleave, ratio, summarise
from orthobench.bench.models import ModelStep
from orthobench.errors import OrthobenchError
from orthobench.isolation import isolated, seed_generators
from orthobench.model import Model, Signature
from orthobench.model.build import build_model
from orthobench.system.own_code import described
from orthobench.task import Batch

LENGTHS = (10, 100, 300)
"""The numbers of steps over which the gradient is measured."""
INPUTS, BATCH, STEPS = 16, 16, 100
"""The shape of a timed step; the gradient has the same inputs and batch."""
SMALLEST = 1e-30
"""The least norm whose entries are exact in float32."""
ROUNDS, SHORTEST, PATIENCE = 5, 0.05, 2.0
"""Samples of a step, and the least and the largest seconds that they take."""


def diagnose(model_class: type[Model], reference: type[Model]) -> dict[str, Any]:
    """Measure a model with its default settings, next to the LSTM.

    Args:
        reference: the class of the LSTM, which gets the same hidden size.

    Returns:
        `defined`: the file and the line of the class, "" if they are not known. `parameters`: their number.
        `gradients`: for each length the norms at the first, the middle and the last step, and the factor per step, of
        the model and of the LSTM. `step`: the seconds and the bytes of a step. `missing`: what could not be measured
        and why, one line each.
    """
    found: dict[str, Any] = {"defined": place_of_class(model_class), "gradients": [], "step": {}, "missing": []}
    with isolated(), _quiet():
        size = _try(found, "a training step", lambda: model_class.Settings.read({}).hidden_size)
        model = None if size is None else _try(found, "a training step", lambda: _build(model_class, size))
        if model is None:
            return found
        lstm = _build(reference, model.units)
        found |= {"hidden_size": model.units, "parameters": model.count, "lstm_parameters": lstm.count}
        for steps in LENGTHS:
            own = _try(found, f"the gradient over {steps} steps", lambda steps=steps: model.gradients(steps))  # type: ignore[misc]
            if own is not None:
                found["gradients"].append({"steps": steps, "model": own, "lstm": lstm.gradients(steps)})
        found["step"] = _try(found, "time and memory of a step", lambda: _compared(model, lstm)) or {}
    return found


def place_of_class(model_class: Any) -> str:
    """Return the file and the line of a class, or of the layer that it wraps; "" if they are not known."""
    cls = getattr(model_class, "module_class", model_class)
    try:
        file, (_, line) = Path(inspect.getsourcefile(cls) or ""), inspect.getsourcelines(cls)
    except (TypeError, OSError):
        return ""
    if not file.is_file():
        return ""
    return f"{file.relative_to(Path.cwd()) if Path.cwd() in file.parents else file}:{line}"


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a layer warns of is shown when it trains
        yield


def _try(found: dict[str, Any], what: str, measure: Callable[[], Any]) -> Any:
    """Return a measurement; None if the model's code raises an error, which is noted as missing."""
    try:
        return measure()
    except KeyboardInterrupt:
        raise
    except OrthobenchError as error:
        reason = str(error)
    except BaseException as error:  # the code of a layer may raise anything
        reason = described(error)
    line = f"{what} could not be measured: {reason}"
    if line not in found["missing"]:
        found["missing"].append(line)
    return None


class _Measured:
    """A model on noise."""

    def __init__(self, model: Model, units: int) -> None:
        self.model, self.units = model, units
        self.count = sum(parameter.numel() for parameter in model.parameters())

    def noise(self, steps: int) -> Tensor:
        return torch.randn(steps, BATCH, INPUTS, generator=torch.Generator().manual_seed(1))

    def gradients(self, steps: int) -> dict[str, Any]:
        """Return the norms of the gradient at the first, the middle and the last step, over the batch, per sequence.

        `factor` is that by which a step further back changes the norm, on average from the last step to the first one
        whose norm is not too small for float32; None if there is none before the last, or if a norm is not finite.
        """
        inputs = self.noise(steps).requires_grad_()
        self.model.eval()
        outputs, _ = Batch(inputs, inputs).through(self.model)
        (gradient,) = torch.autograd.grad(outputs.sum(), inputs)
        self.model.train()
        norms = gradient.double().flatten(1).norm(dim=1) / math.sqrt(BATCH)
        first, middle, last = (float(norms[at]) for at in (0, steps // 2, steps - 1))
        reached = int(norms.gt(SMALLEST).int().argmax())
        share = float(norms[reached]) / last if last else math.nan
        factor = share ** (1 / (steps - 1 - reached)) if reached < steps - 1 and math.isfinite(share) else None
        return {"first": first, "middle": middle, "last": last, "factor": factor}

    def step(self) -> ModelStep:
        """Return a training step on one batch."""
        inputs = self.noise(STEPS)
        return ModelStep(self.model, Batch(inputs, inputs), lambda outputs, _: outputs.square().mean())

    def kept(self) -> int:
        """Return the bytes that autograd keeps of a forward pass, each block of memory once."""
        inputs, blocks = self.noise(STEPS), dict[int, int]()
        own = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                blocks[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            outputs, _ = Batch(inputs, inputs).through(self.model)
            outputs.sum().backward()
        return sum(blocks.values())


def _build(model_class: type[Model], hidden_size: int) -> _Measured:
    settings = model_class.Settings.read({"hidden_size": hidden_size})
    seed_generators(0)
    signature = Signature(INPUTS, 1, "last")
    model = build_model(model_class, settings, signature, torch.Generator().manual_seed(0))
    with torch.no_grad():
        nn.init.normal_(model.output_weight, generator=torch.Generator().manual_seed(2))
    return _Measured(model, hidden_size)


def _compared(model: _Measured, lstm: _Measured) -> dict[str, Any]:
    """Return the seconds and the bytes of a step of both models, and how often the model takes the LSTM's."""
    bytes_kept, of_lstm = model.kept(), lstm.kept()
    timed = interleave({"model": model.step(), "lstm": lstm.step()}, ROUNDS, shortest=SHORTEST, patience=PATIENCE)
    seconds, lstm_seconds = (summarise(timed[name]).seconds for name in ("model", "lstm"))
    return {
        "steps": STEPS,
        "batch": BATCH,
        "seconds": seconds,
        "lstm_seconds": lstm_seconds,
        "times": ratio(timed["model"], timed["lstm"]),
        "bytes": bytes_kept,
        "lstm_bytes": of_lstm,
    }
