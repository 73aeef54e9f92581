"""Code that the bindings of the dense recurrences share: the fields of their problems, and their weight gradients.

Forward keeps the states and what cannot be recovered from them ("saved" in these files). Backward runs the loop in
reverse. It computes dL/dW during the loop if the sum fits the cache, or else as one product over all steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.call import Convolution, Kind, Projection
from orthobench.recurrence.cpu import native
from orthobench.recurrence.kernels import Arguments, Tape

KINDS = {kind: number for number, kind in enumerate(Kind)}  # the order of `enum kind` in activations.h
Settings = dict[str, int | float]


def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
    """Return whether the loops compute these inputs, which must be a projection whose inputs need no gradient."""
    return isinstance(x, Projection) and not x.inputs.requires_grad


def fields(tape: Tape, width: int | None, settings: Mapping[str, int | float]) -> dict[str, Any]:
    """Fill in the fields of a backward problem that all operations have; dx is `[T, B, width]`, if there is a width."""
    h = tape.states[0]
    gradients = {"grad_h": tape.gradient, **dict(zip(("grad_last", "grad_c_last"), tape.final, strict=False))}
    return {
        **settings,
        **{name: gradient for name, gradient in gradients.items() if gradient is not None},
        **dict(zip(("norms", "c_norms"), tape.norms, strict=False)),
        "h": h,
        "dh0": h.new_empty(h.shape[1:]),
        **({} if width is None else {"dx": runtime.take(*h.shape[:2], width)}),
    }


def saved(h: Tensor, parts: int) -> Tensor:
    """Return memory for the parts `[T, B, n]` that a forward pass keeps in addition to its states h."""
    return runtime.take(*h.shape[:2], native.kernels().saved_row(h.shape[2], parts))


def inputs(x: Tensor, parameters: Mapping[str, Any], gates: int = 1, more: int = 0) -> dict[str, Any]:
    """Fill in the input fields of a forward problem; if the kernel computes the projection, x holds its inputs u.

    U is packed as blocks of `gates` gates and, for a second product, of `more`. The bias is the weight of an additional
    input 1.
    """
    if "input_weight" not in parameters:
        return {"x": x}
    x, weight = native.with_bias(x, parameters["input_weight"], parameters["input_bias"])
    rows = weight.shape[0] // (gates + more) * gates
    fields = {"u": x, "packed_inputs": native.pack(weight[:rows], gates)}
    return {**fields, "packed_candidate_inputs": native.pack(weight[rows:], more)} if more else fields


def sum_fields(tape: Tape, arguments: Arguments, u: Tensor | None, width: int | None = None) -> dict[str, Any]:
    """Fill in the fields of a backward problem that concern dL/dx, dL/dW and dL/dU, from dz `[T, B, width]`.

    By default dz is dL/dx `[T, B, gates * n]`. If the sums fit the cache, they are computed during the loop, and dL/dx
    is kept only if x is not a projection.
    """
    (rows, n), h, (h0, *_) = arguments.weight.shape, tape.states[0], arguments.state
    width = width or rows
    width += 0 if tape.output_gradient is None else tape.output_gradient.shape[-1]
    columns = n if u is None else n + u.shape[-1]
    is_fused = native.fits_cache(width, columns) and (tape.needs_weight or u is not None)
    fields: dict[str, Any] = {"h0": h0, "groups": native.row_groups(h.shape[1])} if is_fused else {}
    if is_fused:
        fields["dweights"] = runtime.take(fields["groups"], width, native.padded(columns)).zero_()
    fields |= {"u": u} if u is not None else {}
    if u is not None and is_fused:
        return fields
    return {**fields, "dx": runtime.take(*h.shape[:2], rows)}


def weight_gradients(
    tape: Tape, arguments: Arguments, fields: Mapping[str, Any]
) -> tuple[Tensor | None, dict[str, Tensor | None]]:
    """Return dL/dW, and by name the gradients of a projection and an output map, after the loop of one product."""
    sums, u, (rows, n), dy = fields.get("dweights"), fields.get("u"), arguments.weight.shape, tape.output_gradient
    weight = inputs = output_weight = None
    if sums is not None:
        weight = native.joined_sums(sums, 0, n)
        inputs = None if u is None else native.joined_sums(sums, n, u.shape[-1])
        if dy is not None:
            weight, output_weight = weight[:rows], weight[rows:].clone()
            inputs = None if inputs is None else inputs[:rows]
    elif tape.needs_weight or u is not None:
        weight = outer_sums(fields["dx"], fields["h"], arguments.state[0], u)
        inputs = weight[:, n:]
    dweight, by_name = named(tape, arguments, weight, inputs)
    return dweight, by_name if dy is None else {**by_name, **_output_map(dy, fields["h"], output_weight)}


def _output_map(dy: Tensor, h: Tensor, weight: Tensor | None) -> dict[str, Tensor | None]:
    """Return dL/dV, which is `weight` if the loop has computed it, and dL/dc, from dL/dy `[T, B, p]`."""
    with runtime.part(runtime.READOUT):
        constant, n = dy.new_ones(*dy.shape[:2], 1), h.shape[-1]
        if weight is not None:
            sums = native.outer_sums(dy, constant, None)
            return {"output_weight": weight, "output_bias": sums[:, 0].contiguous()}
        sums = native.outer_sums(dy, h, None, constant)
        return {"output_weight": sums[:, :n].contiguous(), "output_bias": sums[:, n].contiguous()}


def named(
    tape: Tape, arguments: Arguments, weight: Tensor | None, inputs: Tensor | None
) -> tuple[Tensor | None, dict[str, Tensor | None]]:
    """Return dL/dW from the first n columns of `weight`, and dL/dU and dL/db from the first columns of `inputs`."""
    n = arguments.weight.shape[1]
    dweight = weight[:, :n].contiguous() if weight is not None and tape.needs_weight else None
    if inputs is None or "input_weight" not in arguments.parameters:
        return dweight, {}
    m = arguments.parameters["input_weight"].shape[1]
    bias = inputs[:, m].contiguous() if arguments.parameters["input_bias"] is not None else None
    return dweight, {"input_weight": inputs[:, :m].contiguous(), "input_bias": bias}


def row_sums(h0: Tensor) -> Tensor:
    """Return zeroed memory `[B, padded(n)]` for a sum over time of each row of h0 `[B, n]`."""
    return h0.new_zeros(len(h0), native.padded(h0.shape[1]))


def total(row_sums: Tensor, h0: Tensor) -> Tensor:
    """Return the sum over the batch `[n]` of `row_sums`."""
    return native.total(row_sums)[: h0.shape[1]]


def outer_sums(*arguments: Any) -> Tensor:
    """Return dL/d[W, U]; see `native.outer_sums`."""
    with runtime.part(runtime.WEIGHT_GRADIENT):
        return native.outer_sums(*arguments)


def product(*arguments: Any) -> Tensor:
    """Return dL/dW; see `native.weight_gradient`."""
    with runtime.part(runtime.WEIGHT_GRADIENT):
        return native.weight_gradient(*arguments)
