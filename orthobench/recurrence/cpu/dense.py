"""The bindings of the dense cells (`cell.h`): one class, and for each cell its name, constants and vectors.

Forward keeps the states and what cannot be recovered from them ("saved" in these files). Backward runs the loop in
reverse. It computes dL/dW during the loop if the sum fits the cache, or else as one product over all steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from orthobench.recurrence import timing, workspace
from orthobench.recurrence.call import Convolution, Kind, Projection
from orthobench.recurrence.cpu import call_c, matrix_products, signatures
from orthobench.recurrence.cpu.signatures import Phase
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape

KINDS = {kind: number for number, kind in enumerate(Kind)}  # the order of `enum kind` in activations.h


def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
    """Return whether the loops compute these inputs, which must be a projection whose inputs need no gradient."""
    return isinstance(x, Projection) and not x.inputs.requires_grad


class DenseKernel(Kernel):
    """The kernel of a dense cell. Its C functions are called `{name}_forward` and `{name}_backward`.

    Attributes:
        name: the name of the functions, and of the `struct cell` unless `cell` returns another.
        vectors: the parameters that are the cell's vectors, in C's order.
        sums_in_loop: whether the sums dL/d[W, U] that fit the cache are computed during the loop.
    """

    name: ClassVar[str]
    vectors: ClassVar[tuple[str, ...]] = ()
    sums_in_loop: ClassVar[bool] = True

    @classmethod
    def cell(cls, parameters: Mapping[str, Any]) -> str:
        """Return the name of the `struct cell`."""
        return cls.name

    @classmethod
    def constants(cls, parameters: Mapping[str, Any]) -> tuple[float, ...]:
        """Return the constants a, b and c of `cell.h`, as many as the cell has."""
        return ()

    @classmethod
    def variant(cls, parameters: Mapping[str, Any]) -> int:
        """Return the number of the cell's variant."""
        return 0

    @classmethod
    def vector(cls, parameters: Mapping[str, Any], name: str) -> Tensor | None:
        """Return one of the vectors, with an entry for each unit."""
        value: Tensor | None = parameters[name]
        return value

    @classmethod
    def _shared(cls, arguments: Arguments) -> dict[str, Any]:
        """Return the fields of both directions."""
        parameters = arguments.parameters
        fields: dict[str, Any] = dict(zip(("h0", "h0_2"), arguments.state, strict=False))
        fields |= zip("abc", cls.constants(parameters), strict=False)
        if variant := cls.variant(parameters):
            fields["variant"] = variant
        for name, field in zip(cls.vectors, ("vector", "vector_2"), strict=False):
            if (vector := cls.vector(parameters, name)) is not None:
                fields[field] = vector
        return fields

    @classmethod
    def forward(cls, x: Tensor, arguments: Arguments, keep: bool) -> Any:
        parameters, (h0, *_) = arguments.parameters, arguments.state
        phases = signatures.phases(cls.cell(parameters))
        states = tuple(workspace.take(*x.shape[:2], h0.shape[-1]) for _ in arguments.state)
        parts = sum(phase.saved for phase in phases) if keep else 0
        saved = workspace.take(*x.shape[:2], call_c.kernels().saved_row(h0.shape[-1], parts)) if parts else None
        fields = cls._shared(arguments) | dict(zip(("h", "h_2"), states, strict=False))
        if saved is not None:
            fields["saved"] = saved
        fields |= _inputs(x, parameters, phases) | _operands(arguments.weight, phases)
        y = []
        if (output_weight := parameters.get("output_weight")) is not None:
            y = [workspace.take(*x.shape[:2], len(output_weight))]
            fields |= {"outputs": len(output_weight), "packed_outputs": matrix_products.pack(output_weight), "y": y[0]}
            fields |= {"output_bias": parameters["output_bias"]}
        call_c.loop(f"{cls.name}_forward", **fields)
        return states, (saved, fields.get("u")), *y

    @classmethod
    def backward(cls, arguments: Arguments, tape: Tape) -> Gradients:
        parameters, (h0, *_), (saved, u) = arguments.parameters, arguments.state, tape.saved
        phases = signatures.phases(cls.cell(parameters))
        fields = cls._shared(arguments) | dict(zip(("h", "h_2"), tape.states, strict=False))
        given = {"saved": saved, "u": u, "grad_h": tape.gradient}
        given |= zip(("grad_last", "grad_last_2"), tape.final, strict=False)
        fields |= {name: value for name, value in given.items() if value is not None}
        fields |= zip(("norms", "norms_2"), tape.norms, strict=False)
        fields |= _transposed(arguments.weight, phases)
        if (dy := tape.output_gradient) is not None:
            packed = matrix_products.pack_transposed(parameters["output_weight"])
            fields |= {"outputs": dy.shape[-1], "grad_y": dy, "packed_outputs": packed}
        results = dict(zip(("dh0", "dh0_2"), map(torch.empty_like, arguments.state), strict=False))
        sums = {}
        for name, field, total in zip(cls.vectors, ("vector", "vector_2"), ("sum", "sum_2"), strict=False):
            if field in fields:
                sums[name] = fields[total] = _row_sums(h0)
        fields |= results | _gradient_memory(tape, u, phases, cls.sums_in_loop)
        call_c.loop(f"{cls.name}_backward", **fields)
        dweight, by_name = _weight_gradients(tape, arguments, fields, phases)
        by_name |= {name: call_c.total(each)[: h0.shape[1]] for name, each in sums.items()}
        return Gradients(fields["dx"] if u is None else None, dweight, tuple(results.values()), by_name)


def _operands(weight: Tensor, phases: Sequence[Phase]) -> dict[str, Tensor]:
    """Return the parts of W that multiply a state each, packed."""
    if phases[0].reads == "BOTH_BEFORE":
        n = len(weight)
        return {"packed": matrix_products.pack(weight[:, :n]), "packed_2": matrix_products.pack(weight[:, n:])}
    rows = len(weight) * phases[0].products // sum(phase.products for phase in phases)
    fields = {"packed": matrix_products.pack(weight[:rows], phases[0].products)}
    return (
        fields if len(phases) == 1 else fields | {"packed_2": matrix_products.pack(weight[rows:], phases[1].products)}
    )


def _transposed(weight: Tensor, phases: Sequence[Phase]) -> dict[str, Tensor]:
    """Return the parts of W that multiply a gradient each, packed."""
    first = phases[0]
    if first.reads == "BOTH_BEFORE":
        return {"packed": matrix_products.pack_transposed(weight, gates=2)}
    count = first.own if 0 < first.own < first.products else first.products
    rows = len(weight) * count // sum(phase.products for phase in phases)
    fields = {"packed": matrix_products.pack_transposed(weight[:rows])}
    return fields if rows == len(weight) else fields | {"packed_2": matrix_products.pack_transposed(weight[rows:])}


def _inputs(x: Tensor, parameters: Mapping[str, Any], phases: Sequence[Phase]) -> dict[str, Any]:
    """Return the fields for the inputs of a forward pass; if the kernel computes the projection, x holds its inputs u.

    The bias is the weight of an additional input 1.
    """
    if "input_weight" not in parameters:
        return {"x": x}
    x, weight = matrix_products.with_bias(x, parameters["input_weight"], parameters["input_bias"])
    rows = len(weight) * phases[0].inputs // sum(phase.inputs for phase in phases)
    fields = {"u": x, "packed_inputs": matrix_products.pack(weight[:rows], phases[0].inputs)}
    return (
        fields
        if len(phases) == 1
        else fields | {"packed_inputs_2": matrix_products.pack(weight[rows:], phases[1].inputs)}
    )


def _gradient_memory(tape: Tape, u: Tensor | None, phases: Sequence[Phase], sums_in_loop: bool) -> dict[str, Any]:
    """Return the fields for dL/dx `[T, B, inputs * n]`, and for the sums dL/d[W, U].

    If the sums fit the cache, they are computed during the loop, and dL/dx is kept only if x is not a projection.
    """
    h, dy = tape.states[0], tape.output_gradient
    n, inputs = h.shape[-1], sum(phase.inputs for phase in phases)
    own = any(phase.own for phase in phases)
    width = (inputs + own) * n + (0 if dy is None else dy.shape[-1])
    columns = n if u is None else n + u.shape[-1]
    fields: dict[str, Any] = {}
    if sums_in_loop and matrix_products.fits_cache(width, columns) and (tape.needs_weight or u is not None):
        groups = call_c.row_groups(h.shape[1])
        fields = {"groups": groups, "dweights": workspace.take(groups, width, matrix_products.padded(columns)).zero_()}
        if u is not None:
            return fields
    elif any(phase.values for phase in phases):
        fields["values"] = workspace.take(*h.shape)
    return {**fields, "dx": workspace.take(*h.shape[:2], inputs * n)}


def _weight_gradients(
    tape: Tape, arguments: Arguments, fields: Mapping[str, Any], phases: Sequence[Phase]
) -> tuple[Tensor | None, dict[str, Tensor | None]]:
    """Return dL/dW, and by name the gradients of a projection and an output map, after the loop."""
    sums, u, dy, n = fields.get("dweights"), fields.get("u"), tape.output_gradient, fields["h"].shape[-1]
    weight = inputs = output_weight = None
    if sums is not None:
        weight = matrix_products.joined_sums(sums, 0, n)
        inputs = None if u is None else matrix_products.joined_sums(sums, n, u.shape[-1])
        width = n * sum(phase.inputs for phase in phases)
        if dy is not None:
            weight, output_weight = weight[: -dy.shape[-1]], weight[-dy.shape[-1] :].clone()
        if len(weight) > width:  # a product of its own has its columns behind those of x
            shared = n * sum(phase.inputs for phase in phases if not phase.own)
            weight = torch.cat((weight[:shared], weight[width:]))
        inputs = None if inputs is None else inputs[:width]
    elif tape.needs_weight or u is not None:
        weight, inputs = _products(arguments, fields, phases)
    dweight, by_name = _named(tape, arguments, weight, inputs)
    return dweight, by_name if dy is None else {**by_name, **_output_map(dy, fields["h"], output_weight)}


def _products(arguments: Arguments, fields: Mapping[str, Any], phases: Sequence[Phase]) -> tuple[Tensor, Tensor | None]:
    """Return dL/dW and dL/d[U, b] as products over all steps."""
    u, h, dx, n = fields.get("u"), fields["h"], fields["dx"], fields["h"].shape[-1]
    if phases[0].reads == "BOTH_BEFORE":
        sources = zip((h, fields["h_2"]), arguments.state, strict=True)
        return torch.cat([_outer_sums(dx, *source)[:, :n] for source in sources], dim=1), None
    weight, inputs, column = [], [], 0
    for phase in phases:
        columns = dx[..., column : column + phase.inputs * n]
        column += phase.inputs * n
        state = {"SECOND_NOW": fields.get("h_2"), "VALUE": fields.get("values")}.get(phase.reads, h)
        initial = arguments.state[0] if phase.reads == "BEFORE" else None
        assert state is not None
        if phase.own:
            weight.append(_outer_sums(fields["values"], state, initial)[:, :n])
            inputs += [] if u is None else [_outer_sums(columns, u, None)[:, : u.shape[-1]]]
        if phase.own < phase.products:
            both = _outer_sums(columns, state, initial, u)
            weight.append(both[:, :n])
            inputs += [] if u is None else [both[:, n : n + u.shape[-1]]]
    return _joined(weight), _joined(inputs) if inputs else None


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _output_map(dy: Tensor, h: Tensor, weight: Tensor | None) -> dict[str, Tensor | None]:
    """Return dL/dV, which is `weight` if the loop has computed it, and dL/dv, from dL/dy `[T, B, p]`."""
    with timing.timed(timing.READOUT):
        constant, n = dy.new_ones(*dy.shape[:2], 1), h.shape[-1]
        if weight is not None:
            sums = matrix_products.outer_sums(dy, constant, None)
            return {"output_weight": weight, "output_bias": sums[:, 0].contiguous()}
        sums = matrix_products.outer_sums(dy, h, None, constant)
        return {"output_weight": sums[:, :n].contiguous(), "output_bias": sums[:, n].contiguous()}


def _named(
    tape: Tape, arguments: Arguments, weight: Tensor | None, inputs: Tensor | None
) -> tuple[Tensor | None, dict[str, Tensor | None]]:
    """Return dL/dW `[rows, n]`, and by name dL/dU and dL/db from the columns of `inputs`."""
    dweight = weight.contiguous() if weight is not None and tape.needs_weight else None
    if inputs is None or "input_weight" not in arguments.parameters:
        return dweight, {}
    m = arguments.parameters["input_weight"].shape[1]
    bias = inputs[:, m].contiguous() if arguments.parameters["input_bias"] is not None else None
    return dweight, {"input_weight": inputs[:, :m].contiguous(), "input_bias": bias}


def _row_sums(h0: Tensor) -> Tensor:
    """Return zeroed memory `[B, padded(n)]` for a sum over time of each row of h0 `[B, n]`."""
    return h0.new_zeros(len(h0), matrix_products.padded(h0.shape[1]))


def _outer_sums(*arguments: Any) -> Tensor:
    """Return dL/d[W, U]; see `native.outer_sums`."""
    with timing.timed(timing.WEIGHT_GRADIENT):
        return matrix_products.outer_sums(*arguments)
