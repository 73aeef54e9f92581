"""The Triton kernels of the plain and the gated recurrence, for what the persistent kernels do not serve.

Up to 256 features, the whole time loop is one launch (`triton_row`). With more, each step is one launch
(`triton_step`). Weight gradients are computed afterwards as one product over all steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.call import Activation, Kind
from orthobench.recurrence.cuda import launch
from orthobench.recurrence.kernels import Arguments, Gradients, Tape, kernel
from orthobench.recurrence.ops.plain import gated_recurrence

_GATED = "gated"


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


@kernel(gated_recurrence, "triton")
class Recurrence(launch.TritonKernel):
    """The kernel of `recurrence` and `gated_recurrence`."""

    @staticmethod
    def unsupported(parameters: Mapping[str, Any]) -> str | None:
        activation: Activation | None = parameters.get("activation")
        # The backward pass distinguishes the branches of leaky ReLU by the sign of its output.
        if activation is not None and activation.kind is Kind.LEAKY_RELU and activation.slope <= 0:
            return f"leaky_relu needs a positive slope, not {activation.slope}"
        return None

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        cell, weight, (h0,) = _cell(arguments.parameters), arguments.weight, arguments.state
        steps, (batch, n) = len(x), h0.shape
        bias = arguments.parameters.get("bias")
        b = h0.new_zeros(n) if bias is None else bias
        states = x.new_empty(*x.shape[:-1], n)
        saved = torch.empty_like(x) if cell.keeps else states
        plan = launch.row_plan(n)
        shared = {**cell.scalars(), **cell.constants(), "KEEP": cell.keeps}
        if plan is not None:
            launch.kernels().row.row_forward[(batch,)](
                x, weight.T.contiguous(), h0, b, states, saved, steps, batch, n, **shared, **plan.constants()
            )
        else:
            kernel, constants = launch.step_launch("step_forward", x, batch, n)
            for t in range(steps):
                previous, t_other = (states, t - 1) if t else (h0, 0)
                kernel(x, weight, previous, b, states, saved, t, t_other, batch, **shared, **constants)
        return (states,), (saved if cell.keeps else None,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        cell, weight, (h0,), (states,) = _cell(arguments.parameters), arguments.weight, arguments.state, tape.states
        saved = states if tape.saved[0] is None else tape.saved[0]
        bias = arguments.parameters.get("bias")
        final, grad = launch.loss_gradient(tape)
        norms = tape.norms[0] if tape.norms else None
        steps, batch, n = states.shape
        b = h0.new_zeros(n) if bias is None else bias
        dx = torch.empty_like(saved)
        dbias = torch.zeros_like(h0)
        plan = launch.row_plan(n)
        shared = {**cell.scalars(), **cell.constants(), "BIAS": bias is not None, "FINAL": final}
        if plan is not None:
            dh0 = torch.empty_like(h0)
            launch.kernels().row.row_backward[(batch,)](
                grad, weight, saved, b, dx, dh0, dbias, dbias if norms is None else norms, steps, batch, n,
                **shared, TRACE=norms is not None, **plan.constants(),
            )  # fmt: skip
            d_mixed = dx[..., :n] + dx[..., n:] if cell.gates == 2 else dx
        else:
            needs_total = cell.is_residual or norms is not None
            total = torch.empty_like(states) if needs_total else dx
            d_mixed = torch.empty_like(states) if cell.gates == 2 else dx
            m = weight.T.contiguous()
            kernel, constants = launch.step_launch("step_backward", states, batch, n)
            for t in reversed(range(steps)):
                kernel(
                    grad, m, saved, b, dx, d_mixed, total, dbias, t, min(t + 1, steps - 1), batch,
                    **shared, TOTAL=needs_total, LAST=t == steps - 1, **constants,
                )  # fmt: skip
            dh0 = d_mixed[0] @ weight
            if cell.is_residual:
                dh0 += total[0]
            launch.record(norms, total)
        db = None
        if bias is not None:
            terms = dbias[..., ::2] if cell.is_complex else dbias  # both columns of a pair hold its term
            db = terms.sum(0)
        return Gradients(dx, launch.weight_gradient(d_mixed, states, h0), (dh0,), {"bias": db})
