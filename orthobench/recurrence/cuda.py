"""CUDA back end: the functions of `reference`, float32, in Triton kernels with a hand-written backward pass.

Up to 256 features the whole time loop of `recurrence` and `gated_recurrence` is one launch (`triton_row`). Above, and
for LSTM and GRU, it is one launch per step (`triton_step`), made to be captured with the rest of a training step in a
CUDA graph. Weight gradients are one product over all steps afterwards.

Importing this module needs neither Triton nor a GPU; `unsupported` says what a case lacks.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from orthobench.recurrence import cuda_gated, cuda_launch
from orthobench.recurrence.activations import Activation, Kind
from orthobench.recurrence.trace import GradientTrace

_OPS = ("recurrence", "gated_recurrence", "lstm", "gru")
_GATED = "gated"


def unsupported(op: str, x: Tensor, weight: Tensor, activation: Activation | None = None) -> str | None:
    """Why this back end does not serve a call of `op`, or None."""
    if op not in _OPS:
        return f"{op} has no Triton kernels"
    if x.device.type != "cuda" or weight.device != x.device:
        return f"{op}: x is on {x.device} and the weight on {weight.device}, not on one CUDA device"
    if not _has_triton():
        return "triton is not installed"
    if torch.cuda.get_device_capability(x.device) < (8, 0):
        return f"{torch.cuda.get_device_name(x.device)} has no TF32 tensor cores"
    if x.dtype != torch.float32 or weight.dtype != torch.float32:
        return f"{op}: the kernels are float32, x is {x.dtype} and the weight {weight.dtype}"
    if op == "gru" and activation is not None and activation.kind is not Kind.TANH:
        return f"the GRU kernels' candidate is tanh's, not {activation.kind}'s"
    if activation is not None:
        return _unsupported_activation(activation)
    return None


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _unsupported_activation(activation: Activation) -> str | None:
    # The backward pass tells the branches of leaky ReLU apart by the sign of its output.
    if activation.kind is Kind.LEAKY_RELU and activation.slope <= 0:
        return f"leaky_relu needs a positive slope, not {activation.slope}"
    return None


def recurrence(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    activation: Activation,
    bias: Tensor | None,
    step_size: float | None,
    trace: GradientTrace | None,
) -> Tensor:
    """See `reference.recurrence`."""
    cell = _Cell(activation.kind.value, activation.slope, activation.epsilon, step_size)
    states: Tensor = _apply(_Recurrence, x, weight, h0, bias, cell, trace)
    return states


def gated_recurrence(x: Tensor, weight: Tensor, h0: Tensor, step_size: float, trace: GradientTrace | None) -> Tensor:
    """See `reference.gated_recurrence`."""
    states: Tensor = _apply(_Recurrence, x, weight, h0, None, _Cell(_GATED, 0.0, 0.0, step_size), trace)
    return states


def lstm(x: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, trace: GradientTrace | None) -> tuple[Tensor, Tensor]:
    """See `reference.lstm`."""
    h, c = _apply(cuda_gated.LSTM, x, weight, h0, c0, trace)
    return h, c


def gru(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    candidate_bias: Tensor | None,
    reset_after: bool,
    activation: Activation,
    activation_bias: Tensor | None,
    trace: GradientTrace | None,
) -> Tensor:
    """See `reference.gru`."""
    if reset_after:
        states: Tensor = _apply(cuda_gated.GRU, x, weight, h0, candidate_bias, trace)
    else:
        states = _apply(cuda_gated.GRUResetBefore, x, weight, h0, trace)
    return states


@dataclass(frozen=True)
class _Cell:
    """The pointwise part of a step, as the kernels take it."""

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


def _apply(function: type[torch.autograd.Function], x: Tensor, *rest: Any) -> Any:
    # Triton launches on the current device.
    with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
        return function.apply(x, *rest)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        h0: Tensor,
        bias: Tensor | None,
        cell: _Cell,
        trace: GradientTrace | None,
    ) -> Tensor:
        x, weight, h0 = x.contiguous(), weight.contiguous(), h0.contiguous()
        steps, batch, n = x.shape[0], *h0.shape
        b = x.new_zeros(n) if bias is None else bias.contiguous()
        states = x.new_empty(steps, batch, n)
        kept = torch.empty_like(x) if cell.keeps else states
        plan = cuda_launch.row_plan(n)
        shared = {**cell.scalars(), **cell.constants(), "KEEP": cell.keeps}
        if plan is not None:
            cuda_launch.kernels().row.row_forward[(batch,)](
                x, weight.T.contiguous(), h0, b, states, kept, steps, batch, n, **shared, **plan.constants()
            )
        else:
            kernel, constants = cuda_launch.step_launch("step_forward", x, batch, n)
            for t in range(steps):
                previous, t_other = (states, t - 1) if t else (h0, 0)
                kernel(x, weight, previous, b, states, kept, t, t_other, batch, **shared, **constants)
        ctx.save_for_backward(weight, h0, b, states, kept)
        ctx.cell, ctx.has_bias, ctx.norms = cell, bias is not None, cuda_launch.register(trace, "h", states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, h0, b, states, kept = ctx.saved_tensors
        cell: _Cell = ctx.cell
        grad = grad.contiguous()
        steps, batch, n = states.shape
        dx = torch.empty_like(kept)
        dbias = states.new_zeros(batch, n)
        plan = cuda_launch.row_plan(n)
        shared = {**cell.scalars(), **cell.constants(), "BIAS": ctx.has_bias}
        if plan is not None:
            dh0 = torch.empty_like(h0)
            norms = dbias if ctx.norms is None else ctx.norms
            cuda_launch.kernels().row.row_backward[(batch,)](
                grad, weight, kept, b, dx, dh0, dbias, norms, steps, batch, n,
                **shared, TRACE=ctx.norms is not None, **plan.constants(),
            )  # fmt: skip
            d_mixed = dx[..., :n] + dx[..., n:] if cell.gates == 2 else dx
        else:
            needs_total = cell.is_residual or ctx.norms is not None
            total = torch.empty_like(states) if needs_total else dx
            d_mixed = torch.empty_like(states) if cell.gates == 2 else dx
            m = weight.T.contiguous()
            kernel, constants = cuda_launch.step_launch("step_backward", states, batch, n)
            for t in reversed(range(steps)):
                kernel(
                    grad, m, kept, b, dx, d_mixed, total, dbias, t, min(t + 1, steps - 1), batch,
                    **shared, TOTAL=needs_total, LAST=t == steps - 1, **constants,
                )  # fmt: skip
            dh0 = d_mixed[0] @ weight
            if cell.is_residual:
                dh0 += total[0]
            cuda_launch.record(ctx.norms, total)
        db = None
        if ctx.has_bias:
            db = dbias[:, ::2].sum(0) if cell.is_complex else dbias.sum(0)  # a pair holds its term twice
        return dx, cuda_launch.weight_gradient(d_mixed, states, h0), dh0, db, None, None
