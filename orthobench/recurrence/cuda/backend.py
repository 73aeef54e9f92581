"""The CUDA back end: kernels in float32 with a hand-written backward pass.

Up to 256 features, the whole time loop of `recurrence` and `gated_recurrence` is one launch of Triton's (`triton_row`).
Above, and for LSTM and GRU, each step is one launch (`triton_step`). A CUDA graph should capture these together with
the rest of a training step. Weight gradients are one product over all steps afterwards. The other operations run in
PyTorch's operations, many steps at once.

Importing this module needs neither Triton nor a GPU; `unsupported` returns what a call lacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import kernels
from orthobench.recurrence.activations import Activation, Kind
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cuda import delta_chunks, gated, launch, mlstm_chunks, verdicts
from orthobench.recurrence.cuda.diagonal import Diagonal
from orthobench.recurrence.cuda.pieces import Minimal, Oscillators
from orthobench.recurrence.cuda.selective_pieces import SelectiveScan
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape

_GATED = "gated"
_IN_CHUNKS = {"delta_rule": delta_chunks.run, "mlstm": mlstm_chunks.run}
"""Operations of torch's, a chunk of steps at once, which autograd differentiates."""
_IN_TORCH: tuple[type[Kernel], ...] = (Diagonal, Minimal, Oscillators, SelectiveScan)
"""Kernels of torch's operations, which need no Triton and no self-test."""


def unsupported(call: Call) -> str | None:
    """Return the reason why this back end has no kernel for the call, or None."""
    op, x, weight = call.operation.name, call.x, call.weight
    if op in _IN_CHUNKS:
        return None
    if op not in KERNELS:
        return f"{op} has no Triton kernels"
    if not isinstance(weight, Tensor):
        return "W is applied by a function, which has no Triton kernel"
    if x.device.type != "cuda" or weight.device != x.device:
        return f"{op}: x is on {x.device} and the weight on {weight.device}, not on one CUDA device"
    if KERNELS[op] in _IN_TORCH:
        return None
    if problem := launch.triton_problem():
        return problem
    if torch.cuda.get_device_capability(x.device) < (8, 0):
        return f"{torch.cuda.get_device_name(x.device)} has no TF32 tensor cores"
    if x.dtype != torch.float32 or weight.dtype != torch.float32:
        return f"{op}: the kernels are float32, x is {x.dtype} and the weight {weight.dtype}"
    return _unsupported_parameters(op, **call.parameters)


def _unsupported_parameters(
    op: str, activation: Activation | None = None, cell_weight: Tensor | None = None, **others: Any
) -> str | None:
    if cell_weight is not None:
        return "the LSTM kernels have no cell_weight"
    if activation is None:
        return None
    if op == "gru" and activation.kind is not Kind.TANH:
        return f"the GRU kernels' candidate is tanh's, not {activation.kind}'s"
    # The backward pass tells the branches of leaky ReLU apart by the sign of its output.
    if activation.kind is Kind.LEAKY_RELU and activation.slope <= 0:
        return f"leaky_relu needs a positive slope, not {activation.slope}"
    return None


def unusable(call: Call) -> str | None:
    """Return the reason why the kernels of a supported call failed their self-test on its device, or None.

    A call without a state only asks for the back end, and tests nothing.
    """
    if call.operation.name in _IN_CHUNKS or KERNELS[call.operation.name] in _IN_TORCH or not call.state:
        return None
    return verdicts.failure(call, run)


def run(call: Call) -> Result:
    """Run all steps, by Triton's kernels or by PyTorch's."""
    if call.operation.name in _IN_CHUNKS:
        return _IN_CHUNKS[call.operation.name](call)
    # Triton launches on the current device.
    with torch.cuda.device(call.x.device) if call.x.is_cuda else contextlib.nullcontext():
        return kernels.run(KERNELS[call.operation.name], call)


@dataclass(frozen=True)
class _Cell:
    """The pointwise part of a step, as the kernels read it."""

    kind: str
    slope: float
    epsilon: float
    step_size: float | None

    @property
    def gates(self) -> int:
        return 2 if self.kind == _GATED else 1

    @property
    def is_complex(self) -> bool:
        return self.kind.startswith("complex")

    @property
    def is_residual(self) -> bool:
        return self.step_size is not None

    @property
    def keeps(self) -> bool:
        """Whether the backward pass needs more than the states."""
        return self.is_residual or self.is_complex

    def scalars(self) -> dict[str, float]:
        return {"step_size": self.step_size or 0.0, "slope": self.slope, "epsilon": self.epsilon}

    def constants(self) -> dict[str, Any]:
        return {"KIND": self.kind, "RESIDUAL": self.is_residual}


def _cell(parameters: Mapping[str, Any]) -> _Cell:
    """Return the cell of `recurrence`, or of `gated_recurrence`, which has no activation."""
    activation: Activation | None = parameters.get("activation")
    if activation is None:
        return _Cell(_GATED, 0.0, 0.0, parameters["step_size"])
    return _Cell(activation.kind.value, activation.slope, activation.epsilon, parameters["step_size"])


class _Recurrence:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        cell, weight, (h0,) = _cell(arguments.parameters), arguments.weight, arguments.state
        steps, (batch, n) = x.shape[-3], h0.shape[-2:]
        bias = arguments.parameters.get("bias")
        b = h0.new_zeros(*h0.shape[:-2], n) if bias is None else bias
        states = x.new_empty(*x.shape[:-1], n)
        saved = torch.empty_like(x) if cell.keeps else states
        plan = launch.row_plan(n)
        shared = {**cell.scalars(), **cell.constants(), "KEEP": cell.keeps}
        if plan is not None:
            launch.kernels().row.row_forward[(h0.numel() // n,)](
                x, weight.mT.contiguous(), h0, b, states, saved, steps, batch, n, **shared, **plan.constants()
            )
        else:
            kernel, constants = launch.step_launch("step_forward", x, batch, n)
            for t in range(steps):
                previous, t_other = (states, t - 1) if t else (h0, 0)
                slabs = steps if t else 1
                kernel(x, weight, previous, b, states, saved, t, t_other, steps, slabs, batch, **shared, **constants)
        return (states,), (saved if cell.keeps else None,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        cell, weight, (h0,), (states,) = _cell(arguments.parameters), arguments.weight, arguments.state, tape.states
        saved = states if tape.saved[0] is None else tape.saved[0]
        bias = arguments.parameters.get("bias")
        final, grad = launch.loss_gradient(tape)
        norms = tape.norms[0] if tape.norms else None
        steps, batch, n = states.shape[-3:]
        b = h0.new_zeros(*h0.shape[:-2], n) if bias is None else bias
        dx = torch.empty_like(saved)
        dbias = torch.zeros_like(h0)
        plan = launch.row_plan(n)
        shared = {**cell.scalars(), **cell.constants(), "BIAS": bias is not None, "FINAL": final}
        if plan is not None:
            dh0 = torch.empty_like(h0)
            launch.kernels().row.row_backward[(h0.numel() // n,)](
                grad, weight, saved, b, dx, dh0, dbias, dbias if norms is None else norms, steps, batch, n,
                **shared, TRACE=norms is not None, **plan.constants(),
            )  # fmt: skip
            d_mixed = dx[..., :n] + dx[..., n:] if cell.gates == 2 else dx
        else:
            needs_total = cell.is_residual or norms is not None
            total = torch.empty_like(states) if needs_total else dx
            d_mixed = torch.empty_like(states) if cell.gates == 2 else dx
            m = weight.mT.contiguous()
            kernel, constants = launch.step_launch("step_backward", states, batch, n)
            for t in reversed(range(steps)):
                kernel(
                    grad, m, saved, b, dx, d_mixed, total, dbias, t, min(t + 1, steps - 1), steps, batch,
                    **shared, TOTAL=needs_total, LAST=t == steps - 1, **constants,
                )  # fmt: skip
            dh0 = launch.first_gradient(d_mixed, weight)
            if cell.is_residual:
                dh0 += total.select(-3, 0)
            launch.record(norms, total)
        db = None
        if bias is not None:
            terms = dbias[..., ::2] if cell.is_complex else dbias  # a pair holds its term twice
            db = launch.of_each_run(launch.sum_of_rows, terms)
        return Gradients(dx, launch.weight_gradient(d_mixed, states, h0), (dh0,), {"bias": db})


KERNELS: dict[str, type[Kernel]] = {
    "recurrence": _Recurrence,
    "gated_recurrence": _Recurrence,
    "lstm": gated.LSTM,
    "gru": gated.GRU,
    "diagonal_recurrence": Diagonal,
    "min_gru": Minimal,
    "min_lstm": Minimal,
    "oscillators": Oscillators,
    "selective_scan": SelectiveScan,
}
"""The kernels, by the operation's name."""
