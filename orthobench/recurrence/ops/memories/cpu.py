"""The CPU kernels of the memories: calls of this folder's C files, in float32.

Forward keeps the memory at the start of each group of steps, from which backward computes the group again. Without
readings, the final memory of `decaying_memory` is one sum over the steps, and no memories are kept. The batch rows or
their heads are split over the threads, which does not change results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import workspace
from orthobench.recurrence.call import Convolution, Projection
from orthobench.recurrence.cpu import call_c, matrix_products
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.memories import decaying_memory, nonlinear_memory, rwkv7
from orthobench.recurrence.passes.convolution import has_few_inputs
from orthobench.recurrence.threads import ranges

_SMALL = 1 << 19  # multiplications; below, starting a thread costs more than it saves


@kernel(decaying_memory, "cpu")
class Memories(Kernel):
    """The kernels of `decaying_memory`."""

    forgets_states = True

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        """Return whether these inputs are a projection of few inputs, which need no gradient, and no output is read."""
        return not parameters["reads"] and isinstance(x, Projection) and has_few_inputs(x)

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        if arguments.parameters["reads"]:
            return _forward("memories", x, arguments, {}, keep)
        (start,), sizes = arguments.state, _sizes(x, arguments)
        end, sums, inputs = torch.empty_like(start), None, sizes["inputs"]
        if keep and inputs:
            sums = workspace.take(len(start), sizes["heads"], inputs, matrix_products.padded(sizes["keys"]))
        tensors = {"start": start, "end": end, "sums": sums, "input_weight": arguments.parameters.get("input_weight")}
        _run("final_memories_forward", x, arguments, tensors)
        return (x.new_empty(*x.shape[:2], 0),), (end, x, sums)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        _, x, kept = tape.saved
        assert x is not None
        weight, dweight = arguments.parameters.get("input_weight"), torch.empty_like(arguments.weight)
        dx = workspace.take(*x.shape) if weight is None else None
        gradients = {"dx": dx, "dweight": dweight}
        if arguments.parameters["reads"]:
            fields = gradients | {"starts": kept, "grad_y": tape.gradient}
            return Gradients(dx, dweight, (_backward("memories", x, arguments, tape, fields),))
        sizes = _sizes(x, arguments)
        heads, inputs, values, groups = (sizes[each] for each in ("heads", "inputs", "values", "groups"))
        dinput = x.new_zeros(groups, heads, inputs, matrix_products.padded(values))
        fields = gradients | {"sums": kept, "input_weight": weight, "dinput_weight": dinput}
        dstart = _backward("final_memories", x, arguments, tape, fields)
        if weight is None:
            return Gradients(dx, dweight, (dstart,))
        by_input = call_c.total(dinput)[..., :values].transpose(1, 2).reshape(weight.shape)
        return Gradients(None, dweight, (dstart,), {"input_weight": by_input})


@kernel(nonlinear_memory, "cpu")
class NonlinearMemories(Kernel):
    """The kernel of `nonlinear_memory`."""

    forgets_states = True

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        return _forward("nonlinear_memories", x, arguments, _vectors(arguments), keep)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        _, x, starts = tape.saved
        assert x is not None
        transition, sizes = arguments.parameters["transition"], _sizes(x, arguments)
        columns = matrix_products.padded(sizes["values"])
        sums = x.new_zeros(sizes["groups"], *transition.shape[:2], columns)
        gradients = {"dx": workspace.take(*x.shape), "dweight": torch.empty_like(arguments.weight), "dtransition": sums}
        fields = {**gradients, "transition": transition, "starts": starts}
        fields["grad_y"] = tape.gradient if sizes["reads"] else None
        dstart = _backward("nonlinear_memories", x, arguments, tape, fields)
        summed = call_c.total(sums)[..., : sizes["values"]]
        return Gradients(gradients["dx"], gradients["dweight"], (dstart,), {"transition": summed})


@kernel(rwkv7, "cpu")
class RWKV7(Kernel):
    """The kernel of `rwkv7`."""

    forgets_states = True
    adds_first = True

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        """Return whether these inputs are a projection of few inputs, which need no gradient."""
        return isinstance(x, Projection) and has_few_inputs(x)

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        return _forward("rwkv7", x, arguments, _vectors(arguments), keep)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        end, x, starts = tape.saved
        assert x is not None
        vectors, groups = _vectors(arguments), call_c.row_groups(x.shape[1])
        first = vectors.get("input_first")
        dx, dfirst = (None if "input_weight" in vectors else workspace.take(*x.shape)), None
        if first is not None:
            dfirst = torch.empty_like(first)
        sums, summed = {}, {"weight": arguments.weight, **vectors}
        for name in summed.keys() - {"input_first"}:
            *rows, columns = summed[name].shape
            sums[name] = x.new_zeros(
                groups, *rows, matrix_products.padded(columns) if name in ("weight", "rate_weight") else columns
            )
        gradients = {"dx": dx, "dinput_first": dfirst, **{f"d{name}": each for name, each in sums.items()}}
        fields = {**vectors, **gradients, "end": end, "starts": starts, "groups": groups}
        fields["grad_y"] = tape.gradient if arguments.parameters["reads"] else None
        dstart = _backward("rwkv7", x, arguments, tape, fields)
        totals = {name: call_c.total(each)[..., : summed[name].shape[-1]] for name, each in sums.items()}
        return Gradients(dx, totals.pop("weight"), (dstart,), totals | {"input_first": dfirst})


def _vectors(arguments: Arguments) -> dict[str, Tensor]:
    return {name: value for name, value in arguments.parameters.items() if isinstance(value, Tensor)}


def _forward(name: str, x: Tensor, arguments: Arguments, fields: dict[str, Any], keep: bool) -> Any:
    (start,), sizes = arguments.state, _sizes(x, arguments)
    steps, batch, heads, values = (sizes[each] for each in ("steps", "batch", "heads", "values"))
    y, end = workspace.take(steps, batch, arguments.parameters["reads"] * heads * values), torch.empty_like(start)
    starts = None
    if keep:
        groups, size = (getattr(call_c.kernels(), f"{name}_{each}") for each in ("groups", "size"))
        starts = workspace.take(batch * heads, groups(steps) * size(sizes["keys"], values))
    _run(f"{name}_forward", x, arguments, {**fields, "start": start, "y": y, "end": end, "starts": starts})
    return (y,), (end, x, starts)


def _backward(name: str, x: Tensor, arguments: Arguments, tape: Tape, fields: dict[str, Any]) -> Tensor:
    """Fill the tape's norms, and return the gradient of the state."""
    (start,) = arguments.state
    dstart = torch.empty_like(start)
    norms = x.new_empty(*x.shape[:2], arguments.parameters["heads"]) if tape.norms else None
    tensors = {"start": start, "grad_end": tape.final[0], "dstart": dstart, "norms": norms}
    _run(f"{name}_backward", x, arguments, fields | tensors)
    for out in tape.norms:
        assert norms is not None
        torch.sqrt(norms.sum(-1), out=out)
    return dstart


def _sizes(x: Tensor, arguments: Arguments) -> dict[str, Any]:
    """Return the numbers of the problem."""
    parameters = arguments.parameters
    heads, keys, reads = (parameters[name] for name in ("heads", "key_size", "reads"))
    sizes = {"steps": x.shape[0], "batch": x.shape[1], "heads": heads, "keys": keys}
    sizes |= {"values": arguments.state[0].shape[1] // (heads * keys)}
    inputs = 0 if parameters.get("input_weight") is None else x.shape[2]
    if "key_rate" in parameters:
        low, epsilon = parameters["rate_weight"].shape[1], parameters["epsilon"]
        sizes |= {"reads": int(reads), "low": low, "epsilon": epsilon, "inputs": inputs}
    elif "transition" in parameters:
        sizes |= {"reads": int(reads), "groups": call_c.row_groups(x.shape[1])}
    elif not reads:
        sizes |= {"inputs": inputs, "groups": call_c.row_groups(x.shape[1])}
    return sizes


def _run(function: str, x: Tensor, arguments: Arguments, fields: dict[str, Any]) -> None:
    """Run one direction over all steps, with groups of rows, or the heads of all rows, split over the threads."""
    sizes = _sizes(x, arguments)
    batch, units = sizes["batch"], sizes["batch"] * sizes["heads"]
    columns = sizes["values"]
    if function.startswith("final_memories"):
        columns = sizes["inputs"] or columns
    elif function.startswith("nonlinear"):
        columns *= columns
    threads = torch.get_num_threads() if sizes["steps"] * units * sizes["keys"] * columns > _SMALL else 1
    if function.startswith("memories"):
        shares = ranges(units, threads)
    else:
        shares = call_c.ranges_of_groups(batch, call_c.row_groups(batch), threads)
    call_c.run_ranges(function, shares, x=x, weight=arguments.weight, **sizes, **fields)
