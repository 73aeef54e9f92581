"""The C kernels of the recurrences with one state: calls of `plain.c`, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.call import Activation, Kind
from orthobench.recurrence.cpu import dense, native
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.plain import gated_recurrence, lipschitz, recurrence


@kernel(recurrence, "cpu")
class Recurrence(Kernel):
    reads = True
    makes = staticmethod(dense.makes)

    @staticmethod
    def unsupported(parameters: Mapping[str, Any]) -> str | None:
        activation = parameters["activation"]
        if activation.kind is Kind.LEAKY_RELU and activation.slope < 0:
            return "leaky ReLU with a negative slope: its output does not show its side"
        return None

    @staticmethod
    def settings(parameters: Mapping[str, Any]) -> dense.Settings:
        activation: Activation = parameters["activation"]
        step_size = parameters["step_size"]
        return {
            "kind": dense.KINDS[activation.kind],
            "slope": activation.slope,
            "epsilon": activation.epsilon,
            "euler": step_size is not None,
            "step_size": step_size or 0.0,
        }

    @staticmethod
    def bias(parameters: Mapping[str, Any]) -> Tensor | None:
        """Return the bias of every real column; the two columns of a complex unit share one entry."""
        bias: Tensor | None = parameters["bias"]
        return bias if bias is None or not parameters["activation"].is_complex else bias.repeat_interleave(2)

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        settings, bias = Recurrence.settings(arguments.parameters), Recurrence.bias(arguments.parameters)
        h = runtime.take(*x.shape[:2], arguments.weight.shape[0])
        # The complex kinds' input and the Euler form's update cannot be recovered from h.
        needs_more = arguments.parameters["activation"].is_complex or settings["euler"]
        saved = dense.saved(h, 1) if keep and needs_more else None
        fields = dense.inputs(x, arguments.parameters)
        fields |= {"bias": bias, "h0": arguments.state[0], "h": h, "saved": saved}
        y = []
        if (output_weight := arguments.parameters.get("output_weight")) is not None:
            y = [runtime.take(*h.shape[:2], output_weight.shape[0])]
            fields |= {"outputs": output_weight.shape[0], "packed_outputs": native.pack(output_weight), "y": y[0]}
            fields |= {"output_bias": arguments.parameters["output_bias"]}
        native.loop("recurrence_forward", settings, packed=native.pack(arguments.weight), **fields)
        return (h,), (saved, fields.get("u")), *y

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (saved, u) = arguments.weight, arguments.state, tape.saved
        bias = Recurrence.bias(arguments.parameters)
        fields = dense.fields(tape, None, Recurrence.settings(arguments.parameters)) | dense.sum_fields(
            tape, arguments, u
        )
        fields |= {"bias": bias, "saved": saved, "packed": native.pack_transposed(weight)}
        if (dy := tape.output_gradient) is not None:
            packed = native.pack_transposed(arguments.parameters["output_weight"])
            fields |= {"outputs": dy.shape[-1], "grad_y": dy, "packed_outputs": packed}
        if bias is not None:
            fields["dbias"] = dense.row_sums(h0)
        native.loop("recurrence_backward", **fields)
        dweight, by_name = dense.weight_gradients(tape, arguments, fields)
        dbias = None if bias is None else dense.total(fields["dbias"], h0)
        if dbias is not None and arguments.parameters["activation"].is_complex:
            dbias = dbias[::2].contiguous()
        dx = fields["dx"] if u is None else None
        return Gradients(dx, dweight, (fields["dh0"],), {"bias": dbias, **by_name})


@kernel(gated_recurrence, "cpu")
class Gated(Kernel):
    @staticmethod
    def settings(parameters: Mapping[str, Any]) -> dense.Settings:
        return {"euler": True, "step_size": parameters["step_size"]}

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (h0,) = arguments.state
        h = runtime.take(*x.shape[:2], h0.shape[-1])
        saved = dense.saved(h, 2) if keep else None
        settings = Gated.settings(arguments.parameters)
        native.loop("gated_forward", settings, x=x, packed=native.pack(arguments.weight), h0=h0, h=h, saved=saved)
        return (h,), (saved,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h0,), (h,), (saved,) = arguments.state, tape.states, tape.saved
        dmixed = runtime.take(*h.shape)
        fields = dense.fields(tape, 2 * h.shape[-1], Gated.settings(arguments.parameters))
        fields |= {"saved": saved, "dmixed": dmixed, "packed": native.pack_transposed(arguments.weight)}
        native.loop("gated_backward", **fields)
        dweight = dense.product(dmixed, h, h0) if tape.needs_weight else None
        return Gradients(fields["dx"], dweight, (fields["dh0"],))


@kernel(lipschitz, "cpu")
class Lipschitz(Kernel):
    @staticmethod
    def settings(parameters: Mapping[str, Any]) -> dense.Settings:
        return {"euler": True, "step_size": parameters["step_size"]}

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h = runtime.take(*x.shape)
        saved = dense.saved(h, 1) if keep else None
        packed = native.pack(arguments.weight, gates=2)
        settings = Lipschitz.settings(arguments.parameters)
        native.loop("lipschitz_forward", settings, x=x, packed=packed, h0=arguments.state[0], h=h, saved=saved)
        return (h,), (saved,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (h,), (saved,) = arguments.weight, arguments.state, tape.states, tape.saved
        n = h.shape[-1]
        dlinear = runtime.take(*h.shape)
        fields = dense.fields(tape, n, Lipschitz.settings(arguments.parameters)) | {"saved": saved, "dmixed": dlinear}
        native.loop(
            "lipschitz_backward",
            packed=native.pack_transposed(weight[:n]),
            packed_inner=native.pack_transposed(weight[n:]),
            **fields,
        )
        dweight = None
        if tape.needs_weight:
            dweight = torch.empty_like(weight)
            dense.product(dlinear, h, h0, dweight[:n])
            dense.product(fields["dx"], h, h0, dweight[n:])
        return Gradients(fields["dx"], dweight, (fields["dh0"],))
