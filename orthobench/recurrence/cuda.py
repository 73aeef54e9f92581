"""CUDA back end: the functions of `reference`, float32, in Triton kernels with a hand-written backward pass.

Up to 256 features the whole time loop of `recurrence` and `gated_recurrence` is one launch (`triton_row`). Above, and
for LSTM and GRU, it is one launch per step (`triton_step`), made to be captured with the rest of a training step in a
CUDA graph. Weight gradients are one product over all steps afterwards.

cuDNN's LSTM and GRU are no alternative: their input projection cannot be left out, they do not return the cell states
of all steps, and they hide the gradients that a `GradientTrace` records.

Importing this module needs neither Triton nor a GPU; `unsupported` says what a case lacks.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from orthobench.recurrence import reference
from orthobench.recurrence.activations import Activation, Kind
from orthobench.recurrence.trace import GradientTrace

_GATED = "gated"
_MAX_ROW_FEATURES = 256
_FUSED = {"enable_fp_fusion": True}  # newer Tritons leave multiply-adds apart unless told


@dataclass(frozen=True)
class RowPlan:
    """How a row kernel holds n features: in one tile of `size`, or in 3 x 3 tiles of 64."""

    size: int
    three: bool
    warps: int

    def constants(self) -> dict[str, int]:
        # Without the limit, ptxas may take 40 registers and spill all of W where W does not fit anyway.
        options = {"num_warps": self.warps, "num_stages": 1, "maxnreg": 255, **_FUSED}
        return {"N": self.size, "THREE": self.three, **options}


@dataclass(frozen=True)
class StepPlan:
    """Tile of a step kernel: rows, columns, depth of a slice of the product."""

    rows: int
    columns: int
    depth: int = 64
    warps: int = 4
    stages: int = 3

    def constants(self) -> dict[str, int]:
        tile = {"BM": self.rows, "BN": self.columns, "BK": self.depth}
        return {**tile, "num_warps": self.warps, "num_stages": self.stages, **_FUSED}


def row_plan(features: int) -> RowPlan | None:
    """Choose the row kernel for this many features, if there is one.

    As few warps as registers allow: a thread then owns a whole column of W, and the sum needs no exchange. With Triton
    3.6 and 3.8 all of these but the last compile for sm_90 without a spill.
    """
    if features > _MAX_ROW_FEATURES:
        return None
    if features <= 64:
        return RowPlan(64, False, warps=2)
    if features <= 128:
        return RowPlan(128, False, warps=4)
    if features <= 192:
        return RowPlan(256, True, warps=8)
    return RowPlan(256, False, warps=8)


def step_plan(batch: int, columns: int, processors: int, gates: int = 1) -> StepPlan:
    """Choose the smallest tile whose grid runs in one wave: a step is bound by latency, not by throughput."""
    tiles = ((16, 32), (32, 32), (32, 64), (64, 64)) if gates == 1 else ((16, 64), (32, 64), (64, 64))
    for rows, width in tiles:
        if -(-batch // rows) * -(-columns * gates // width) <= processors:
            return StepPlan(rows, width)
    return StepPlan(*tiles[-1])


def unsupported(op: str, x: Tensor, weight: Tensor, activation: Activation | None = None) -> str | None:
    """Why this back end does not serve a call of `op`, or None."""
    if x.device.type != "cuda" or weight.device != x.device:
        return f"{op}: x is on {x.device} and the weight on {weight.device}, not on one CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if torch.cuda.get_device_capability(x.device) < (8, 0):
        return f"{torch.cuda.get_device_name(x.device)} has no TF32 tensor cores"
    if x.dtype != torch.float32 or weight.dtype != torch.float32:
        return f"{op}: the kernels are float32, x is {x.dtype} and the weight {weight.dtype}"
    if activation is not None:
        return _unsupported_activation(activation)
    return None


def _unsupported_activation(activation: Activation) -> str | None:
    # The backward pass tells the branches of leaky ReLU apart by the sign of its output.
    if activation.kind is Kind.LEAKY_RELU and activation.slope <= 0:
        return f"leaky_relu needs a positive slope, not {activation.slope}"
    # Padding is z = 0, where this form divides 0 by epsilon.
    if activation.kind is Kind.COMPLEX_MODRELU_SMOOTH and activation.epsilon <= 0:
        return f"complex_modrelu_smooth needs a positive epsilon, not {activation.epsilon}"
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
    h, c = _apply(_LSTM, x, weight, h0, c0, trace)
    return h, c


def gru(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    candidate_bias: Tensor | None,
    reset_after: bool,
    trace: GradientTrace | None,
) -> Tensor:
    """See `reference.gru`, which also runs here for want of a kernel if not `reset_after`."""
    if not reset_after:
        return reference.gru(x, weight, h0, candidate_bias, reset_after, trace)
    states: Tensor = _apply(_GRU, x, weight, h0, candidate_bias, trace)
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
        plan = row_plan(n)
        shared = {**cell.scalars(), **cell.constants(), "KEEP": cell.keeps}
        if plan is not None:
            _kernels().row.row_forward[(batch,)](
                x, weight.T.contiguous(), h0, b, states, kept, steps, batch, n, **shared, **plan.constants()
            )
        else:
            kernel, constants = _step_launch("step_forward", x, batch, n)
            for t in range(steps):
                previous, t_other = (states, t - 1) if t else (h0, 0)
                kernel(x, weight, previous, b, states, kept, t, t_other, batch, **shared, **constants)
        ctx.save_for_backward(weight, h0, b, states, kept)
        ctx.cell, ctx.has_bias, ctx.norms = cell, bias is not None, _register(trace, "h", states)
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
        plan = row_plan(n)
        shared = {**cell.scalars(), **cell.constants(), "BIAS": ctx.has_bias}
        if plan is not None:
            dh0 = torch.empty_like(h0)
            norms = dbias if ctx.norms is None else ctx.norms
            _kernels().row.row_backward[(batch,)](
                grad, weight, kept, b, dx, dh0, dbias, norms, steps, batch, n,
                **shared, TRACE=ctx.norms is not None, **plan.constants(),
            )  # fmt: skip
            d_mixed = dx[..., :n] + dx[..., n:] if cell.gates == 2 else dx
        else:
            needs_total = cell.is_residual or ctx.norms is not None
            total = torch.empty_like(states) if needs_total else dx
            d_mixed = torch.empty_like(states) if cell.gates == 2 else dx
            m = weight.T.contiguous()
            kernel, constants = _step_launch("step_backward", states, batch, n)
            for t in reversed(range(steps)):
                kernel(
                    grad, m, kept, b, dx, d_mixed, total, dbias, t, min(t + 1, steps - 1), batch,
                    **shared, TOTAL=needs_total, LAST=t == steps - 1, **constants,
                )  # fmt: skip
            dh0 = d_mixed[0] @ weight
            if cell.is_residual:
                dh0 += total[0]
            _record(ctx.norms, total)
        db = None
        if ctx.has_bias:
            db = dbias[:, ::2].sum(0) if cell.is_complex else dbias.sum(0)  # a pair holds its term twice
        return dx, _weight_gradient(d_mixed, states, h0), dh0, db, None, None


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, trace: GradientTrace | None
    ) -> tuple[Tensor, Tensor]:
        x, weight, h0, c0 = x.contiguous(), weight.contiguous(), h0.contiguous(), c0.contiguous()
        steps, batch, n = x.shape[0], *h0.shape
        h, c, gates = x.new_empty(steps, batch, n), x.new_empty(steps, batch, n), torch.empty_like(x)
        kernel, constants = _step_launch("lstm_forward", x, batch, n, gates=4)
        for t in range(steps):
            h_previous, c_previous, t_other = (h, c, t - 1) if t else (h0, c0, 0)
            kernel(x, weight, h_previous, c_previous, h, c, gates, t, t_other, batch, **constants)
        ctx.save_for_backward(weight, h0, c0, h, c, gates)
        ctx.norms = _register(trace, "h", h), _register(trace, "c", c)
        return h, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor, grad_c: Tensor) -> tuple[Tensor | None, ...]:
        weight, h0, c0, h, c, gates = ctx.saved_tensors
        grad_h, grad_c = grad_h.contiguous(), grad_c.contiguous()
        steps, batch, n = h.shape
        dx, dc0 = torch.empty_like(gates), torch.empty_like(c0)
        traced = ctx.norms[0] is not None
        total_h, total_c = (torch.empty_like(h), torch.empty_like(c)) if traced else (dx, dx)
        m = weight.T.contiguous()
        kernel, constants = _step_launch("lstm_backward", h, batch, n)
        for t in reversed(range(steps)):
            c_previous, t_previous = (c, t - 1) if t else (c0, 0)
            kernel(
                grad_h, grad_c, m, gates, c, c_previous, dx, dc0, total_h, total_c,
                t, min(t + 1, steps - 1), t_previous, batch, TRACE=traced, LAST=t == steps - 1, **constants,
            )  # fmt: skip
        _record(ctx.norms[0], total_h)
        _record(ctx.norms[1], total_c)
        return dx, _weight_gradient(dx, h, h0), dx[0] @ weight, dc0, None


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, h0: Tensor, bias: Tensor | None, trace: GradientTrace | None
    ) -> Tensor:
        x, weight, h0 = x.contiguous(), weight.contiguous(), h0.contiguous()
        steps, batch, n = x.shape[0], *h0.shape
        b = x.new_zeros(n) if bias is None else bias.contiguous()
        states, gates = x.new_empty(steps, batch, n), x.new_empty(steps, batch, 4 * n)
        kernel, constants = _step_launch("gru_forward", x, batch, n, gates=4)
        for t in range(steps):
            previous, t_other = (states, t - 1) if t else (h0, 0)
            kernel(x, weight, previous, b, states, gates, t, t_other, batch, **constants)
        ctx.save_for_backward(weight, h0, states, gates)
        ctx.has_bias, ctx.norms = bias is not None, _register(trace, "h", states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, h0, states, gates = ctx.saved_tensors
        grad = grad.contiguous()
        steps, batch, n = states.shape
        dx, d_mixed = states.new_empty(steps, batch, 3 * n), states.new_empty(steps, batch, 3 * n)
        carry = torch.empty_like(h0)
        traced = ctx.norms is not None
        total = torch.empty_like(states) if traced else dx
        m = weight.T.contiguous()
        kernel, constants = _step_launch("gru_backward", states, batch, n)
        for t in reversed(range(steps)):
            previous, t_previous = (states, t - 1) if t else (h0, 0)
            kernel(
                grad, m, gates, previous, dx, d_mixed, carry, total,
                t, min(t + 1, steps - 1), t_previous, batch, TRACE=traced, LAST=t == steps - 1, **constants,
            )  # fmt: skip
        _record(ctx.norms, total)
        db = d_mixed[..., 2 * n :].sum((0, 1)) if ctx.has_bias else None
        return dx, _weight_gradient(d_mixed, states, h0), torch.addmm(carry, d_mixed[0], weight), db, None


@functools.cache
def _kernels() -> Any:
    """Import the kernels' modules, and with them Triton."""
    from orthobench.recurrence import triton_row, triton_step

    return SimpleNamespace(row=triton_row, step=triton_step)


def _apply(function: type[torch.autograd.Function], x: Tensor, *rest: Any) -> Any:
    # Triton launches on the current device.
    with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
        return function.apply(x, *rest)


def _step_launch(name: str, like: Tensor, batch: int, n: int, gates: int = 1) -> tuple[Any, dict[str, Any]]:
    """Give a step kernel on its grid, and its compile-time constants."""
    processors = torch.cuda.get_device_properties(like.device).multi_processor_count if like.is_cuda else 1
    plan = step_plan(batch, n, processors, gates)
    grid = (-(-batch // plan.rows), -(-n * gates // plan.columns))
    return getattr(_kernels().step, name)[grid], {"n": n, **plan.constants()}


def _weight_gradient(d_mixed: Tensor, states: Tensor, h0: Tensor) -> Tensor:
    """dL/dW = sum_t d_mixed_t^T h_{t-1}, from `[T, B, k]` and `[T, B, n]`."""
    gradient = d_mixed[0].T @ h0
    if len(states) > 1:
        gradient.addmm_(d_mixed[1:].flatten(0, 1).T, states[:-1].flatten(0, 1))
    return gradient


def _register(trace: GradientTrace | None, state: str, states: Tensor) -> Tensor | None:
    if trace is None:
        return None
    trace.norms[state] = states.new_zeros(states.shape[:2])
    return trace.norms[state]


def _record(norms: Tensor | None, total: Tensor) -> None:
    if norms is not None:
        torch.linalg.vector_norm(total, dim=-1, out=norms)
