"""A CUDA graph of the whole training step, which is recorded once and then replayed without launches by the host.

A launch takes the host some microseconds. A step of an LSTM, of more than 256 units or in PyTorch has thousands. A
graph repeats what it has recorded, with the same addresses. The step therefore reads its batch and the carried state
from static tensors, and the learning rate and the optimisers' counters are tensors too. The graph replays the kernels
of the eager step, so the numbers are the same. Evaluations and probes, for example of the gradients through time, call
the model itself and stay eager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from orthobench.errors import UsageError, lacks_memory, one_line
from orthobench.model import Model
from orthobench.options.arguments import GraphMode

StaticTensors = tuple[Tensor, ...]
StaticStep = Callable[..., StaticTensors]
"""A training step, which takes and returns static tensors and has side effects only on static tensors."""

WARM_UP = 3
"""Eager steps before the recording, which compile kernels and create the optimisers' state."""

_logger = logging.getLogger("orthobench")


def graph_problem(model: Model, device: torch.device) -> str | None:
    """Return why the training step of a model cannot be recorded as a CUDA graph, or None if it can."""
    if device.type != "cuda":
        return "the run is not on a CUDA device"
    return f"its step waits for the GPU: {model.waits}" if model.waits else None


def check_graph(mode: GraphMode, device: torch.device) -> None:
    """Refuse a CUDA graph on any other device, before anything is stored.

    Raises:
        UsageError: the mode is "on", and the device is not a CUDA device.
    """
    if mode == "on" and device.type != "cuda":
        raise UsageError("`cuda_graph='on'`: the runs are not on a CUDA device; use `cuda_graph='auto'`")


class Recorder(Protocol):
    """The part of CUDA that a graph needs; tests replace it to run without a GPU."""

    def warm_up(self, step: Callable[[], StaticTensors]) -> StaticTensors:
        """Run a step as is needed before a recording, and return its results."""

    def record(self, step: Callable[[], StaticTensors]) -> tuple[Callable[[], None], StaticTensors]:
        """Record a step without running it; return a function that runs it, and the tensors of its results."""


class CudaRecorder:
    """Records on a CUDA device. The warm-up has its own stream, as torch requires."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)

    def warm_up(self, step: Callable[[], StaticTensors]) -> StaticTensors:
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            results = step()
        current.wait_stream(self.stream)
        return results

    def record(self, step: Callable[[], StaticTensors]) -> tuple[Callable[[], None], StaticTensors]:
        graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[self.stream.device.index]
        drawn, drawn_on_device = torch.get_rng_state(), generator.clone_state()
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                results = step()
        except RuntimeError:
            # The eager step that follows draws the same numbers again. Torch would refuse to draw on the device,
            # because a failed recording leaves the device's generator in the state of a recording.
            torch.set_rng_state(drawn)
            generator.graphsafe_set_state(drawn_on_device)
            raise
        return graph.replay, results


class StepGraph:
    """Runs a training step eagerly at first, and then as a graph whenever its tensors have the recorded shapes.

    If a task carries its state, the first step of an epoch has no carried state, and runs eagerly.

    Args:
        required: raise an error if the step cannot be recorded. Otherwise the step stays eager, with a warning.
    """

    def __init__(self, step: StaticStep, recorder: Recorder, required: bool = False) -> None:
        self.step, self.recorder, self.required = step, recorder, required
        self.failed = False
        self._seen = 0  # consecutive steps with the newest shapes
        self._shapes: list[object] = []
        self._inputs: tuple[Tensor | None, ...] = ()
        self._results: StaticTensors = ()
        self._replay: Callable[[], None] | None = None

    def __call__(self, *tensors: Tensor | None) -> StaticTensors:
        """Run one step on these tensors, some of which may be None; the next call overwrites the returned results.

        Raises:
            UsageError: the graph is required, and the step cannot be recorded.
        """
        shapes: list[object] = [t if t is None else (t.shape, t.dtype) for t in tensors]
        if self._replay is None and not self.failed:
            # Counted without interruption, because the last batch of an epoch may be smaller,
            # and a graph of it would hardly be used.
            self._seen = self._seen + 1 if shapes == self._shapes else 1
            self._shapes = shapes
            if self._seen > WARM_UP:
                self._record(tensors)
        if self._replay is None or shapes != self._shapes:
            return self.step(*tensors) if self.failed else self.recorder.warm_up(lambda: self.step(*tensors))
        for static, tensor in zip(self._inputs, tensors, strict=True):
            if static is not None and tensor is not None:
                static.copy_(tensor)
        self._replay()
        return self._results

    def _record(self, tensors: tuple[Tensor | None, ...]) -> None:
        self._inputs = tuple(None if tensor is None else tensor.clone() for tensor in tensors)
        try:
            self._replay, self._results = self.recorder.record(lambda: self.step(*self._inputs))
        except RuntimeError as error:
            if lacks_memory(error):
                raise
            if self.required:
                raise UsageError(
                    f"`cuda_graph='on'`: the step cannot be recorded: {one_line(error)}; use `cuda_graph='auto'`"
                ) from error
            self.failed = True
            _logger.warning("the training step runs without a CUDA graph: %s", one_line(error))
