"""The row kernels of `row.cu`, compiled by NVRTC: the plain recurrence up to 192 features, one launch a direction.

Beside the Triton kernel of the same purpose, a step has a quarter fewer instructions and one barrier (n = 170).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import kernels
from orthobench.recurrence.activations import Activation, Kind
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cuda import launch, nvrtc
from orthobench.recurrence.kernels import Arguments, Gradients, Tape

NAME = "nvrtc"
"""The name of these kernels in the verdicts of their self-tests."""
SOURCE = Path(__file__).with_name("row.cu")
MAX_FEATURES, THREADS = 192, 256
_KINDS = {
    kind: number for number, kind in enumerate((Kind.IDENTITY, Kind.TANH, Kind.RELU, Kind.LEAKY_RELU, Kind.MODRELU))
}  # the order of the enum in activations.cuh


def serves(call: Call) -> bool:
    """Return whether there is a kernel for a call that `cuda.unsupported` allows."""
    is_plain = call.operation.name == "recurrence"
    return is_plain and has(call.parameters.get("activation")) and call.x.shape[-1] <= MAX_FEATURES


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
    return {"COLUMNS": columns, "DEPTH": depth, **form(activation, is_residual, is_final, is_traced)}


def form(activation: Activation, is_residual: bool, is_final: bool, is_traced: bool) -> dict[str, int]:
    """Return the macros of the plain recurrence's form, which no size changes."""
    values = {"KIND": _KINDS[activation.kind], "RESIDUAL": is_residual, "FINAL": is_final, "TRACE": is_traced}
    return {name: int(value) for name, value in values.items()}


def has(activation: Activation | None) -> bool:
    """Return whether the kernels in CUDA C++ have the activation."""
    return activation is not None and activation.kind in _KINDS


def _launch(name: str, h0: Tensor, macros: dict[str, int], *arguments: Tensor | int | float) -> None:
    rows = h0.numel() // h0.shape[-1]  # of all runs
    nvrtc.load(SOURCE, h0.device, macros).launch(name, rows, THREADS, arguments)


class Row:
    """The kernel of `recurrence`."""

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
        is_final, gradient = launch.loss_gradient(tape)
        dx, dh0, dbias = torch.empty_like(states), torch.empty_like(h0), torch.empty_like(h0)
        total = torch.empty_like(states) if tape.norms else dx
        _launch(
            "row_backward", h0, constants(activation, n, step_size is not None, is_final, bool(tape.norms)),
            *(gradient, arguments.weight, saved, dx, total, dh0, dbias, steps, batch, n),
            *(float(step_size or 0.0), float(activation.slope)),
        )  # fmt: skip
        for norms in tape.norms:
            launch.record(norms, total)
        weight = launch.weight_gradient(dx, states, h0)
        db = None if bias is None else launch.of_each_run(launch.sum_of_rows, dbias)
        return Gradients(dx, weight, (dh0,), {"bias": db})
