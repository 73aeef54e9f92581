"""The row kernels of `row.cu`, compiled by NVRTC: the plain recurrence up to 192 features, one launch a direction.

Beside the Triton kernel of the same purpose, a step has a quarter fewer instructions and one barrier (n = 170).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import cuda_launch, kernels, nvrtc
from orthobench.recurrence.activations import Activation, Kind
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.kernels import Arguments, Gradients, Tape

NAME = "nvrtc"
"""The name of these kernels in the verdicts of their self-tests."""
SOURCE = Path(__file__).with_name("row.cu")
MAX_FEATURES, THREADS = 192, 256
_KINDS = {
    kind: number for number, kind in enumerate((Kind.IDENTITY, Kind.TANH, Kind.RELU, Kind.LEAKY_RELU, Kind.MODRELU))
}  # the order of the enum in row.cu


def serves(call: Call) -> bool:
    """Return whether there is a kernel for a call that `cuda.unsupported` allows."""
    activation: Activation | None = call.parameters.get("activation")
    return (
        call.operation.name == "recurrence"
        and activation is not None
        and activation.kind in _KINDS
        and call.x.shape[-1] <= MAX_FEATURES
    )


def run(call: Call) -> Result:
    """Run all steps.

    Raises:
        NvrtcError: the kernel cannot be compiled or launched.
    """
    with torch.cuda.device(call.x.device):
        return kernels.run(Row, call)


def constants(activation: Activation, n: int, is_residual: bool, is_final: bool, is_traced: bool) -> dict[str, int]:
    """Return the macros of a form of `row.cu`."""
    columns, depth = -(-n // 64), 4 * -(-n // 16)
    form = {"KIND": _KINDS[activation.kind], "RESIDUAL": is_residual, "FINAL": is_final, "TRACE": is_traced}
    return {"COLUMNS": columns, "DEPTH": depth, **{name: int(value) for name, value in form.items()}}


@functools.cache
def _module(device: int, *macros: tuple[str, int]) -> nvrtc.Module:
    major, minor = torch.cuda.get_device_capability(device)
    return nvrtc.Module(
        nvrtc.compile_source(SOURCE.read_text("utf-8"), SOURCE.name, f"sm_{major}{minor}", dict(macros))
    )


def _launch(name: str, h0: Tensor, macros: dict[str, int], *arguments: Tensor | int | float) -> None:
    assert h0.device.index is not None
    rows = h0.numel() // h0.shape[-1]  # of all runs
    _module(h0.device.index, *macros.items()).launch(name, rows, THREADS, arguments)


class Row:
    """The kernel of `recurrence`."""

    takes_runs = True

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        activation, step_size = arguments.parameters["activation"], arguments.parameters["step_size"]
        (h0,), bias = arguments.state, arguments.parameters["bias"]
        steps, batch, n = x.shape[-3:]
        states = torch.empty_like(x)
        updates = torch.empty_like(x) if step_size is not None else states
        b = h0.new_zeros(*h0.shape[:-2], n) if bias is None else bias
        _launch(
            "row_forward", h0, constants(activation, n, step_size is not None, False, False),
            *(x, arguments.weight, h0, b, states, updates, steps, batch, n),
            *(float(step_size or 0.0), float(activation.slope), float(activation.epsilon)),
        )  # fmt: skip
        return (states,), (updates if step_size is not None else None,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        activation, step_size = arguments.parameters["activation"], arguments.parameters["step_size"]
        (h0,), (states,), bias = arguments.state, tape.states, arguments.parameters["bias"]
        steps, batch, n = states.shape[-3:]
        saved = states if tape.saved[0] is None else tape.saved[0]
        is_final, gradient = cuda_launch.loss_gradient(tape)
        dx, dh0, dbias = torch.empty_like(states), torch.empty_like(h0), torch.empty_like(h0)
        total = torch.empty_like(states) if tape.norms else dx
        _launch(
            "row_backward", h0, constants(activation, n, step_size is not None, is_final, bool(tape.norms)),
            *(gradient, arguments.weight, saved, dx, total, dh0, dbias, steps, batch, n),
            *(float(step_size or 0.0), float(activation.slope)),
        )  # fmt: skip
        for norms in tape.norms:
            cuda_launch.record(norms, total)
        weight = cuda_launch.weight_gradient(dx, states, h0)
        db = None if bias is None else cuda_launch.of_each_run(cuda_launch.sum_of_rows, dbias)
        return Gradients(dx, weight, (dh0,), {"bias": db})
