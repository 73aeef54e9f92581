"""The recurrences on the CPU in float32: `cpu.c` under autograd.

Forward keeps h and what h does not give back (see `cpu.c`, "saved"); backward runs the loop in reverse and then makes
dL/dW as one product over all steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from orthobench.recurrence import native, workspace
from orthobench.recurrence.activations import Activation, Kind
from orthobench.recurrence.trace import GradientTrace, expected_norms

_KINDS = {kind: number for number, kind in enumerate(Kind)}  # the order of `enum kind` in cpu.c
_Settings = dict[str, int | float]


def unsupported(op: str, x: Tensor, weight: Tensor, activation: Activation | None = None) -> str | None:
    """Why this back end cannot serve the call, or None."""
    if x.device.type != "cpu":
        return f"the tensors are on {x.device.type}"
    if x.dtype is not torch.float32 or weight.dtype is not torch.float32:
        return f"the C kernels are for float32, not {x.dtype}".replace("torch.", "")
    if activation is not None and activation.kind is Kind.LEAKY_RELU and activation.slope < 0:
        return "leaky ReLU with a negative slope: its output does not tell its side"
    return native.missing()


def recurrence(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    activation: Activation,
    bias: Tensor | None,
    step_size: float | None,
    trace: GradientTrace | None,
    last: bool = False,
) -> Tensor:
    """As `reference.recurrence`; with `last` only h_T `[B, n]`, which spares a gradient of the size of all states."""
    settings: _Settings = {
        "kind": _KINDS[activation.kind],
        "slope": activation.slope,
        "epsilon": activation.epsilon,
        "euler": step_size is not None,
        "step_size": step_size or 0.0,
    }
    trace_norms = expected_norms(trace, x, "h")
    return _call(_Recurrence, settings, trace_norms, last, x, weight, h0, bias)[0]


def gated_recurrence(
    x: Tensor, weight: Tensor, h0: Tensor, step_size: float, trace: GradientTrace | None, last: bool = False
) -> Tensor:
    settings: _Settings = {"euler": True, "step_size": step_size}
    return _call(_Gated, settings, expected_norms(trace, x, "h"), last, x, weight, h0)[0]


def lstm(
    x: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, trace: GradientTrace | None, last: bool = False
) -> tuple[Tensor, Tensor]:
    h, c = _call(_LSTM, {}, expected_norms(trace, x, "h", "c"), last, x, weight, h0, c0)
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
    last: bool = False,
) -> Tensor:
    settings: _Settings = {
        "kind": _KINDS[activation.kind],
        "epsilon": activation.epsilon,
        "reset_after": reset_after,
    }
    return _call(_GRU, settings, expected_norms(trace, x, "h"), last, x, weight, h0, candidate_bias, activation_bias)[0]


def cornn(
    x: Tensor,
    weight: Tensor,
    y0: Tensor,
    z0: Tensor,
    step_size: float,
    frequency: float,
    damping: float,
    trace: GradientTrace | None,
    last: bool = False,
) -> tuple[Tensor, Tensor]:
    settings: _Settings = {"step_size": step_size, "frequency": frequency, "damping": damping}
    y, z = _call(_CoRNN, settings, expected_norms(trace, x, "h", "z"), last, x, weight, y0, z0)
    return y, z


def lem(
    x: Tensor,
    weight: Tensor,
    y0: Tensor,
    z0: Tensor,
    step_size: float,
    trace: GradientTrace | None,
    last: bool = False,
) -> tuple[Tensor, Tensor]:
    y, z = _call(_LEM, {"step_size": step_size}, expected_norms(trace, x, "h", "z"), last, x, weight, y0, z0)
    return y, z


def lipschitz(
    x: Tensor, weight: Tensor, h0: Tensor, step_size: float, trace: GradientTrace | None, last: bool = False
) -> Tensor:
    settings: _Settings = {"euler": True, "step_size": step_size}
    return _call(_Lipschitz, settings, expected_norms(trace, x, "h"), last, x, weight, h0)[0]


def _call(
    function: type[_Op], settings: _Settings, norms: tuple[Tensor, ...], last: bool, *inputs: Tensor | None
) -> tuple[Tensor, ...]:
    # torch.linalg.solve, for one, returns W column by column.
    inputs = tuple(None if tensor is None else tensor.contiguous() for tensor in inputs)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs):
        outputs: tuple[Tensor, ...] = function.apply(settings, norms, last, *inputs)
        return outputs
    states, _ = function.run(settings, False, *inputs)
    return _last(states) if last else states


def _last(states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(state[-1].clone() for state in states)


class _Op(Function):
    """What the operations share under autograd."""

    @staticmethod
    def run(settings: _Settings, keep: bool, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
        """(states over all steps, what the backward pass needs besides them if `keep`)."""
        raise NotImplementedError

    @classmethod
    def forward(
        cls, ctx: Any, settings: _Settings, norms: tuple[Tensor, ...], last: bool, *inputs: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Save what backward needs and return what the caller asked for."""
        states, kept = cls.run(settings, True, *inputs)
        ctx.settings, ctx.norms, ctx.last = settings, norms, last
        # x is not needed again: kept alive it would be the largest tensor of the step.
        ctx.save_for_backward(*inputs[1:], *states, *kept)
        ctx.set_materialize_grads(False)
        return _last(states) if last else states

    @staticmethod
    def backward_fields(ctx: Any, width: int, states: Tensor, *grads: Tensor | None) -> dict[str, Any]:
        """Collect the fields of a backward problem that all operations have."""
        names = ("grad_last", "grad_c_last") if ctx.last else ("grad_h", "grad_c")
        fields: dict[str, Any] = dict(ctx.settings)
        fields |= {name: grad.contiguous() for name, grad in zip(names, grads, strict=False) if grad is not None}
        fields |= dict(zip(("norms", "c_norms"), ctx.norms, strict=False))
        return fields | {
            "h": states,
            "dh0": states.new_empty(states.shape[1:]),
            "dx": workspace.take(*states.shape[:2], width),
        }


class _Recurrence(_Op):
    @staticmethod
    def run(settings: _Settings, keep: bool, x: Tensor, weight: Tensor, h0: Tensor, bias: Tensor | None) -> Any:
        h = workspace.take(*x.shape)
        # The complex kinds' input, or the Euler form's update, is not to be had from h.
        saved = workspace.take(*x.shape) if keep and (_complex(settings) or settings["euler"]) else None
        packed = native.pack(weight)
        native.loop(
            "recurrence_forward", settings, x=x, packed=packed, bias=_columns(settings, bias), h0=h0, h=h, saved=saved
        )
        return (h,), (saved,)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        weight, h0, bias, h, saved = ctx.saved_tensors
        bias = _columns(ctx.settings, bias)
        fields = _Op.backward_fields(ctx, weight.shape[0], h, *grads) | {
            "bias": bias,
            "saved": saved,
            "packed": native.pack_transposed(weight),
        }
        if bias is not None:
            fields["dbias"] = torch.zeros_like(h0)
        native.loop("recurrence_backward", **fields)
        dweight = native.weight_gradient(fields["dx"], h, h0) if ctx.needs_input_grad[4] else None
        dbias = None if bias is None else native.total(fields["dbias"])
        if dbias is not None and _complex(ctx.settings):
            dbias = dbias[::2].contiguous()
        return None, None, None, fields["dx"], dweight, fields["dh0"], dbias


class _Gated(_Op):
    @staticmethod
    def run(settings: _Settings, keep: bool, x: Tensor, weight: Tensor, h0: Tensor) -> Any:
        h = workspace.take(*x.shape[:2], h0.shape[-1])
        saved = workspace.take(*x.shape) if keep else None
        native.loop("gated_forward", settings, x=x, packed=native.pack(weight), h0=h0, h=h, saved=saved)
        return (h,), (saved,)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        weight, h0, h, saved = ctx.saved_tensors
        dmixed = workspace.take(*h.shape)
        fields = _Op.backward_fields(ctx, 2 * h.shape[-1], h, *grads) | {"saved": saved, "dmixed": dmixed}
        native.loop("gated_backward", packed=native.pack_transposed(weight), **fields)
        dweight = native.weight_gradient(dmixed, h, h0) if ctx.needs_input_grad[4] else None
        return None, None, None, fields["dx"], dweight, fields["dh0"]


class _LSTM(_Op):
    @staticmethod
    def run(settings: _Settings, keep: bool, x: Tensor, weight: Tensor, h0: Tensor, c0: Tensor) -> Any:
        h, c = (workspace.take(*x.shape[:2], h0.shape[-1]) for _ in range(2))
        saved = workspace.take(*x.shape) if keep else None
        native.loop(
            "lstm_forward", settings, x=x, packed=native.pack(weight, gates=4), h0=h0, c0=c0, h=h, c=c, saved=saved
        )
        return (h, c), (saved,)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        weight, h0, c0, h, c, saved = ctx.saved_tensors
        fields = _Op.backward_fields(ctx, weight.shape[0], h, *grads)
        fields |= {"saved": saved, "c": c, "c0": c0, "dc0": torch.empty_like(c0)}
        native.loop("lstm_backward", packed=native.pack_transposed(weight), **fields)
        dweight = native.weight_gradient(fields["dx"], h, h0) if ctx.needs_input_grad[4] else None
        return None, None, None, fields["dx"], dweight, fields["dh0"], fields["dc0"]


class _GRU(_Op):
    @staticmethod
    def run(
        settings: _Settings,
        keep: bool,
        x: Tensor,
        weight: Tensor,
        h0: Tensor,
        candidate_bias: Tensor | None,
        activation_bias: Tensor | None,
    ) -> Any:
        n = h0.shape[-1]
        h, recurrent = (workspace.take(*x.shape[:2], n) for _ in range(2))
        saved = workspace.take(*x.shape)
        native.loop(
            "gru_forward",
            settings,
            **{"x": x, "h0": h0, "h": h, "saved": saved, "recurrent": recurrent},
            **{"candidate_bias": candidate_bias, "bias": activation_bias},
            packed=native.pack(weight[: 2 * n], gates=2),
            packed_candidate=native.pack(weight[2 * n :]),
        )
        return (h,), (saved, recurrent)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        weight, h0, candidate_bias, activation_bias, h, saved, recurrent = ctx.saved_tensors
        n, reset_after = h0.shape[-1], ctx.settings["reset_after"]
        fields = _Op.backward_fields(ctx, weight.shape[0], h, *grads) | {
            "saved": saved,
            "recurrent": recurrent,
            "h0": h0,
        }
        if reset_after:
            fields["dmixed"] = workspace.take(*h.shape)
        if candidate_bias is not None:
            fields["dcandidate_bias"] = torch.zeros_like(h0)
        if activation_bias is not None:
            fields["dbias"] = torch.zeros_like(h0)
        native.loop(
            "gru_backward",
            packed=native.pack_transposed(weight[: 2 * n]),
            packed_candidate=native.pack_transposed(weight[2 * n :]),
            **fields,
        )
        dweight, dx = None, fields["dx"]
        if ctx.needs_input_grad[4]:
            dweight = torch.empty_like(weight)
            native.weight_gradient(dx[..., : 2 * n], h, h0, dweight[: 2 * n])
            if reset_after:
                native.weight_gradient(fields["dmixed"], h, h0, dweight[2 * n :])
            else:
                native.weight_gradient(dx[..., 2 * n :], recurrent, None, dweight[2 * n :])
        dbiases = (native.total(fields[name]) if name in fields else None for name in ("dcandidate_bias", "dbias"))
        return None, None, None, dx, dweight, fields["dh0"], *dbiases


class _CoRNN(_Op):
    @staticmethod
    def run(settings: _Settings, keep: bool, x: Tensor, weight: Tensor, y0: Tensor, z0: Tensor) -> Any:
        n = y0.shape[-1]
        y, z = workspace.take(*x.shape), workspace.take(*x.shape)
        saved = workspace.take(*x.shape) if keep else None
        native.loop(
            "cornn_forward",
            settings,
            **{"x": x, "h0": y0, "c0": z0, "h": y, "c": z, "saved": saved},
            packed=native.pack(weight[:, :n]),
            packed_candidate=native.pack(weight[:, n:]),
        )
        return (y, z), (saved,)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        weight, y0, z0, y, z, saved = ctx.saved_tensors
        fields = _Op.backward_fields(ctx, y.shape[-1], y, *grads) | {"saved": saved, "dc0": torch.empty_like(z0)}
        native.loop("cornn_backward", packed=native.pack_transposed(weight, gates=2), **fields)
        dweight = None
        if ctx.needs_input_grad[4]:
            dweight = torch.cat(
                (native.weight_gradient(fields["dx"], y, y0), native.weight_gradient(fields["dx"], z, z0)), dim=1
            )
        return None, None, None, fields["dx"], dweight, fields["dh0"], fields["dc0"]


class _LEM(_Op):
    @staticmethod
    def run(settings: _Settings, keep: bool, x: Tensor, weight: Tensor, y0: Tensor, z0: Tensor) -> Any:
        n = y0.shape[-1]
        y, z = (workspace.take(*x.shape[:2], n) for _ in range(2))
        saved = workspace.take(*x.shape)
        native.loop(
            "lem_forward",
            settings,
            **{"x": x, "h0": y0, "c0": z0, "h": y, "c": z, "saved": saved},
            packed=native.pack(weight[: 3 * n], gates=3),
            packed_candidate=native.pack(weight[3 * n :]),
        )
        return (y, z), (saved,)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        weight, y0, z0, y, z, saved = ctx.saved_tensors
        n = y0.shape[-1]
        fields = _Op.backward_fields(ctx, 4 * n, y, *grads)
        fields |= {"saved": saved, "h0": y0, "c": z, "c0": z0, "dc0": torch.empty_like(z0)}
        native.loop(
            "lem_backward",
            packed=native.pack_transposed(weight[: 3 * n]),
            packed_candidate=native.pack_transposed(weight[3 * n :]),
            **fields,
        )
        dweight, dx = None, fields["dx"]
        if ctx.needs_input_grad[4]:
            dweight = torch.empty_like(weight)
            native.weight_gradient(dx[..., : 3 * n], y, y0, dweight[: 3 * n])
            native.weight_gradient(dx[..., 3 * n :], z, None, dweight[3 * n :])
        return None, None, None, dx, dweight, fields["dh0"], fields["dc0"]


class _Lipschitz(_Op):
    @staticmethod
    def run(settings: _Settings, keep: bool, x: Tensor, weight: Tensor, h0: Tensor) -> Any:
        h = workspace.take(*x.shape)
        saved = workspace.take(*x.shape) if keep else None
        native.loop("lipschitz_forward", settings, x=x, packed=native.pack(weight, gates=2), h0=h0, h=h, saved=saved)
        return (h,), (saved,)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        weight, h0, h, saved = ctx.saved_tensors
        n = h.shape[-1]
        dlinear = workspace.take(*h.shape)
        fields = _Op.backward_fields(ctx, n, h, *grads) | {"saved": saved, "dmixed": dlinear}
        native.loop(
            "lipschitz_backward",
            packed=native.pack_transposed(weight[:n]),
            packed_candidate=native.pack_transposed(weight[n:]),
            **fields,
        )
        dweight = None
        if ctx.needs_input_grad[4]:
            dweight = torch.empty_like(weight)
            native.weight_gradient(dlinear, h, h0, dweight[:n])
            native.weight_gradient(fields["dx"], h, h0, dweight[n:])
        return None, None, None, fields["dx"], dweight, fields["dh0"]


def _complex(settings: _Settings) -> bool:
    return settings["kind"] in (_KINDS[Kind.COMPLEX_MODRELU], _KINDS[Kind.COMPLEX_MODRELU_SMOOTH])


def _columns(settings: _Settings, bias: Tensor | None) -> Tensor | None:
    """Bias per real column: both columns of a complex unit have its one."""
    return bias.repeat_interleave(2) if bias is not None and _complex(settings) else bias
