"""The bindings of the dense cells (`cell.h`): a class that runs them, and one whose parts follow from a declaration.

Forward keeps the states and what cannot be recovered from them ("saved" in these files). Backward runs the loop in
reverse. It computes dL/dW during the loop if the sum fits the cache, or else as one product over all steps.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from orthobench.recurrence import timing, workspace
from orthobench.recurrence.call import Activation, Convolution, Declaration, Kind, Projection
from orthobench.recurrence.cpu import call_c, matrix_products, signatures
from orthobench.recurrence.cpu.signatures import Phase
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel

_PROJECTED_BEFORE = frozenset({"cornn", "gated_recurrence", "lipschitz"})
"""Operations whose inputs are projected, and whose weight's gradients are summed, outside of the loop, because stored
results were computed so."""

KINDS = {kind: number for number, kind in enumerate(Kind)}  # the order of `enum kind` in activations.h


def unsupported_activation(parameters: Mapping[str, Any]) -> str | None:
    """Return why `activations.h` cannot differentiate the parameter `activation`, or None."""
    activation = parameters["activation"]
    if activation.kind is Kind.LEAKY_RELU and activation.slope < 0:
        return "leaky ReLU with a negative slope: its output does not show its side"
    return None


def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
    """Return whether the loops compute these inputs, which must be a projection whose inputs need no gradient."""
    return isinstance(x, Projection) and not x.inputs.requires_grad


class DenseKernel(Kernel):
    """The kernel of a dense cell. Its C functions are called `{functions}_forward` and `{functions}_backward`.

    Attributes:
        name: the name of the functions and of the `struct cell`, unless these methods return another.
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
    def functions(cls, parameters: Mapping[str, Any]) -> str:
        """Return the name with which the C functions begin."""
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
        vectors = [cls.vector(parameters, name) for name in cls.vectors]
        if given := [each for each in vectors if each is not None]:
            fields["vectors"] = sum(1 << k for k, each in enumerate(vectors) if each is not None)
            fields["vector"] = torch.stack([given[0] if each is None else each for each in vectors])
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
        if means := sum(phase.means for phase in phases):
            fields["means"] = workspace.take(*x.shape[:2], means)
        fields |= _inputs(x, parameters, phases) | _operands(arguments.weight, phases)
        y = []
        if (output_weight := parameters.get("output_weight")) is not None:
            y = [workspace.take(*x.shape[:2], len(output_weight))]
            fields |= {"outputs": len(output_weight), "packed_outputs": matrix_products.pack(output_weight), "y": y[0]}
            fields |= {"output_bias": parameters["output_bias"]}
        call_c.loop(f"{cls.functions(parameters)}_forward", **fields)
        return states, (saved, fields.get("u"), fields.get("means")), *y

    @classmethod
    def backward(cls, arguments: Arguments, tape: Tape) -> Gradients:
        parameters, (h0, *_), (saved, u, means) = arguments.parameters, arguments.state, tape.saved
        phases = signatures.phases(cls.cell(parameters))
        fields = cls._shared(arguments) | dict(zip(("h", "h_2"), tape.states, strict=False))
        given = {"saved": saved, "u": u, "means": means, "grad_h": tape.gradient}
        given |= zip(("grad_last", "grad_last_2"), tape.final, strict=False)
        fields |= {name: value for name, value in given.items() if value is not None}
        fields |= zip(("norms", "norms_2"), tape.norms, strict=False)
        fields |= _transposed(arguments.weight, phases)
        if (dy := tape.output_gradient) is not None:
            packed = matrix_products.pack_transposed(parameters["output_weight"])
            fields |= {"outputs": dy.shape[-1], "grad_y": dy, "packed_outputs": packed}
        results = dict(zip(("dh0", "dh0_2"), map(torch.empty_like, arguments.state), strict=False))
        sums = {}
        if "vector" in fields:
            fields["sum"] = _row_sums(h0, len(cls.vectors))
            sums = {name: each for k, (name, each) in enumerate(zip(cls.vectors, fields["sum"], strict=True))
                    if fields["vectors"] >> k & 1}  # fmt: skip
        fields |= results | _gradient_memory(tape, u, phases, cls.sums_in_loop)
        call_c.loop(f"{cls.functions(parameters)}_backward", **fields)
        dweight, by_name = _weight_gradients(tape, arguments, fields, phases)
        by_name |= {name: call_c.total(each)[: h0.shape[1]] for name, each in sums.items()}
        return Gradients(fields["dx"] if u is None else None, dweight, tuple(results.values()), by_name)


class OperationKernel(DenseKernel):
    """The kernel of an operation's dense cells, one for each choice among its parameters; all follows from its step.

    Attributes:
        operation: the operation.
    """

    operation: ClassVar[Declaration]

    @classmethod
    def unsupported(cls, parameters: Mapping[str, Any]) -> str | None:
        tensors = [name for name, each in cls.operation.annotations.items() if "Tensor" in each]
        for name in tensors:
            if parameters[name] is not None and name not in cls.vectors:
                return f"the C kernel of {cls.operation.name} has no {name}"
        cell = cls.cell(parameters)
        return None if signatures.has_cell(cell) else f"there is no C kernel {cell}"

    @classmethod
    def cell(cls, parameters: Mapping[str, Any]) -> str:
        return cell_name(cls.operation, parameters)

    functions = cell

    @classmethod
    def constants(cls, parameters: Mapping[str, Any]) -> tuple[float, ...]:
        values = [parameters[name] for name in numbers(cls.operation)]
        return tuple(getattr(each, each.number) if isinstance(each, Activation) else each or 0.0 for each in values)


def register(operation: Declaration) -> None:
    """Register the kernel of an operation if a C file has a cell for one of its forms."""
    forms = operation.forms(2) if operation.forms is not None else ()
    if any(signatures.has_cell(cell_name(operation, operation.bind(None, **form.parameters))) for form in forms):
        is_before = operation.name in _PROJECTED_BEFORE
        members = {"operation": operation, "vectors": vectors(operation)}
        members["sums_in_loop"] = operation.sources == 1 and not is_before
        members |= {} if is_before else {"makes": staticmethod(makes)}
        kernel(operation, "cpu")(type(operation.name, (OperationKernel,), members))


def cell_name(operation: Declaration, parameters: Mapping[str, Any]) -> str:
    """Return the name of the cell of an operation with these parameters.

    After the operation's name it has the kind of an activation, each switch that is on, and each optional number given.
    """
    words = [operation.name]
    for name, annotation in operation.annotations.items():
        value = parameters[name]
        if isinstance(value, Activation):
            words.append(value.kind)
        elif value is True or ("float" in annotation and "None" in annotation and value is not None):
            words.append(name)
    return "_".join(words)


@functools.cache
def vectors(operation: Declaration) -> tuple[str, ...]:
    """Return the names of the parameters that are vectors of numbers of the units, in the order of the cell."""
    names = {name for form in operation.forms(2) for name in form.vectors} if operation.forms is not None else set()
    return tuple(name for name in operation.annotations if name in names)


@functools.cache
def numbers(operation: Declaration) -> tuple[str, ...]:
    """Return the names of the parameters that are numbers, or activations with one, in the order of the cell."""
    return tuple(name for name, each in operation.annotations.items() if "float" in each or "Activation" in each)


def _parts(weight: Tensor, phases: Sequence[Phase]) -> list[tuple[Tensor, Tensor]]:
    """Return, for each phase, the rows of W whose products are its own, and those of its other products."""
    n = len(weight) // max(1, sum(phase.products for phase in phases))
    rows = [n * count for phase in phases for count in (phase.own, phase.shared)]
    parts = weight.split(rows)
    return list(zip(parts[::2], parts[1::2], strict=True))


def _numbered(field: str, values: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return values as a field and those numbered after it: `packed`, `packed_2` and so on."""
    return {field if number == 1 else f"{field}_{number}": value for number, value in enumerate(values, 1)}


def _operands(weight: Tensor, phases: Sequence[Phase]) -> dict[str, Tensor]:
    """Return the parts of W that multiply a state each, packed."""
    packed = []
    for phase, (own, shared) in zip(phases, _parts(weight, phases), strict=True):
        if phase.products:
            rows = _joined([part for part in (own, shared) if len(part)])
            n = len(rows) // phase.products
            states = rows.split(n, dim=1) if phase.reads == "BOTH_BEFORE" else [rows[:, :n]]
            packed += [matrix_products.pack(part, phase.products) for part in states]
    return _numbered("packed", packed)


def _transposed(weight: Tensor, phases: Sequence[Phase]) -> dict[str, Tensor]:
    """Return the parts of W that multiply a gradient each, packed."""
    packed = []
    for phase, parts in zip(phases, _parts(weight, phases), strict=True):
        gates = 2 if phase.reads == "BOTH_BEFORE" else 1
        n = weight.shape[1] // 2 if any(each.reads == "BOTH_BEFORE" for each in phases) else weight.shape[1]
        packed += [matrix_products.pack_transposed(part[:, : gates * n], gates) for part in parts if len(part)]
    return _numbered("packed", packed)


def _inputs(x: Tensor, parameters: Mapping[str, Any], phases: Sequence[Phase]) -> dict[str, Any]:
    """Return the fields for the inputs of a forward pass; if the kernel computes the projection, x holds its inputs u.

    The bias is the weight of an additional input 1. A phase's inputs are those of its products, then the others.
    """
    if "input_weight" not in parameters:
        return {"x": x}
    x, weight = matrix_products.with_bias(x, parameters["input_weight"], parameters["input_bias"])
    n = len(weight) // sum(phase.inputs for phase in phases)
    rows = iter(weight.split([n * count for phase in phases for count in (phase.shared, phase.alone)]))
    fields = {"u": x}
    for suffix, phase in zip(("", "_2"), phases, strict=False):
        shared, alone = next(rows), next(rows)
        if phase.shared:
            # The driver adds nothing to a phase's own products, whose sums have the rows before.
            shared = torch.cat((shared.new_zeros(n * phase.own, x.shape[-1]), shared)) if phase.own else shared
            fields[f"packed_inputs{suffix}"] = matrix_products.pack(shared, phase.products)
        if phase.alone:
            gates = 1 if phase.alone == 1 and phase.products < 2 else -(-phase.alone // 2) * 2  # see `is_single`
            missing = alone.new_zeros(n * (gates - phase.alone), x.shape[-1])
            fields[f"packed_alone{suffix}"] = matrix_products.pack(_joined([alone, missing]), gates)
    return fields


def _gradient_memory(tape: Tape, u: Tensor | None, phases: Sequence[Phase], sums_in_loop: bool) -> dict[str, Any]:
    """Return the fields for dL/dx `[T, B, inputs * n]`, and for the sums dL/d[W, U].

    If the sums fit the cache, they are computed during the loop, and dL/dx is kept only if x is not a projection.
    """
    h, dy = tape.states[0], tape.output_gradient
    n, inputs = h.shape[-1], sum(phase.inputs for phase in phases)
    own = sum(phase.own for phase in phases)
    width = (inputs + own) * n + (0 if dy is None else dy.shape[-1])
    columns = n if u is None else n + u.shape[-1]
    fields: dict[str, Any] = {}
    if sums_in_loop and matrix_products.fits_cache(width, columns) and (tape.needs_weight or u is not None):
        groups = call_c.row_groups(h.shape[1])
        fields = {"groups": groups, "dweights": workspace.take(groups, width, matrix_products.padded(columns)).zero_()}
        if u is not None:
            return fields
    elif values := own + any(phase.reads == "VALUE" for phase in phases):
        fields["values"] = workspace.take(*h.shape[:2], values * n)
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
        if len(weight) > width or any(phase.alone for phase in phases):
            weight = torch.cat([weight[first:last] for first, last in _columns(phases, n)])
        inputs = None if inputs is None else inputs[:width]
    elif tape.needs_weight or u is not None:
        weight, inputs = _products(arguments, fields, phases)
    dweight, by_name = _named(tape, arguments, weight, inputs)
    return dweight, by_name if dy is None else {**by_name, **_output_map(dy, fields["h"], output_weight)}


def _columns(phases: Sequence[Phase], n: int) -> Iterator[tuple[int, int]]:
    """Yield the columns [first, last) of the gradients of each phase's own products, and then of its others.

    The columns of the own products are behind those of dL/dx.
    """
    x, own = 0, n * sum(phase.inputs for phase in phases)
    for phase in phases:
        yield own, own + n * phase.own
        yield x, x + n * phase.shared
        x, own = x + n * phase.inputs, own + n * phase.own


def _products(arguments: Arguments, fields: Mapping[str, Any], phases: Sequence[Phase]) -> tuple[Tensor, Tensor | None]:
    """Return dL/dW and dL/d[U, b] as products over all steps."""
    u, h, dx, n = fields.get("u"), fields["h"], fields["dx"], fields["h"].shape[-1]
    m, width = 0 if u is None else u.shape[-1], dx.shape[-1]
    weight, inputs, columns = [], [], _columns(phases, n)
    for phase in phases:
        value = fields["values"][..., -n:].contiguous() if phase.reads == "VALUE" else None
        now = {"SECOND_NOW": fields.get("h_2"), "VALUE": value}.get(phase.reads)
        sources = [(now, None)] if now is not None else list(zip((h, fields.get("h_2")), arguments.state, strict=False))
        sources = sources if phase.reads == "BOTH_BEFORE" else sources[:1]
        own, (first, last) = next(columns), next(columns)
        if phase.own:
            gradients = fields["values"][..., own[0] - width : own[1] - width]
            weight.append(torch.cat([_outer_sums(gradients, *source)[:, :n] for source in sources], dim=1))
        if phase.shared:
            sums = [_outer_sums(dx[..., first:last], *source, with_u)
                    for source, with_u in zip(sources, (u, None), strict=False)]  # fmt: skip
            weight.append(torch.cat([each[:, :n] for each in sums], dim=1))
            inputs += [] if u is None else [sums[0][:, n : n + m]]
        if phase.alone and u is not None:
            alone = dx[..., last : last + phase.alone * n]
            inputs.append(_outer_sums(alone, u, None)[:, :m])
    return _joined(weight) if weight else arguments.weight.new_zeros(0, n), _joined(inputs) if inputs else None


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


def _row_sums(h0: Tensor, vectors: int) -> Tensor:
    """Return zeroed memory `[vectors, B, padded(n)]` for a sum over time of each row of h0 `[B, n]`."""
    return h0.new_zeros(vectors, len(h0), matrix_products.padded(h0.shape[1]))


def _outer_sums(*arguments: Any) -> Tensor:
    """Return dL/d[W, U]; see `native.outer_sums`."""
    with timing.timed(timing.WEIGHT_GRADIENT):
        return matrix_products.outer_sums(*arguments)
