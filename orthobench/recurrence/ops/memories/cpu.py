"""The CPU kernels of the memories: calls of this folder's C files, in float32.

Forward keeps the memory at the start of each group of steps, from which backward computes the group again. Without
readings, the final memory of `decaying_memory` is one sum over the steps, and no memories are kept. The batch rows or
their heads are split over the threads, which does not change results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

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


class MemoryKernel(Kernel):
    """A kernel of memories. Its C functions are called `{functions}_forward` and `{functions}_backward`.

    Attributes:
        splits_heads: whether the heads of all rows are split over the threads, and not groups of rows.
    """

    forgets_states = True
    functions: ClassVar[str]
    splits_heads: ClassVar[bool] = False

    @classmethod
    def sizes(cls, x: Tensor, arguments: Arguments) -> dict[str, Any]:
        """Return the numbers of the problem."""
        heads, keys = (arguments.parameters[name] for name in ("heads", "key_size"))
        values = arguments.state[0].shape[1] // (heads * keys)
        return {"steps": x.shape[0], "batch": x.shape[1], "heads": heads, "keys": keys, "values": values}

    @classmethod
    def columns(cls, sizes: Mapping[str, int]) -> int:
        """Return the number of multiplications that a step takes for a row of a memory."""
        return sizes["values"]

    @classmethod
    def forward(cls, x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (start,), sizes = arguments.state, cls.sizes(x, arguments)
        steps, batch, heads, values = (sizes[each] for each in ("steps", "batch", "heads", "values"))
        y, end = workspace.take(steps, batch, arguments.parameters["reads"] * heads * values), torch.empty_like(start)
        starts = None
        if keep:
            groups, size = (getattr(call_c.kernels(), f"{cls.functions}_{each}") for each in ("groups", "size"))
            starts = workspace.take(batch * heads, groups(steps) * size(sizes["keys"], values))
        fields = {**_vectors(arguments), "start": start, "y": y, "end": end, "starts": starts}
        cls._run("forward", x, arguments, sizes, fields)
        return (y,), (end, x, starts)

    @classmethod
    def _backward(
        cls, x: Tensor, arguments: Arguments, tape: Tape, sizes: dict[str, Any], fields: dict[str, Any]
    ) -> Tensor:
        """Run the backward pass, fill the tape's norms, and return the gradient of the state."""
        (start,) = arguments.state
        dstart = torch.empty_like(start)
        norms = x.new_empty(*x.shape[:2], sizes["heads"]) if tape.norms else None
        tensors = {"start": start, "grad_end": tape.final[0], "dstart": dstart, "norms": norms}
        cls._run("backward", x, arguments, sizes, fields | tensors)
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms.sum(-1), out=out)
        return dstart

    @classmethod
    def _run(
        cls, direction: str, x: Tensor, arguments: Arguments, sizes: dict[str, Any], fields: dict[str, Any]
    ) -> None:
        """Run one direction over all steps, with groups of rows, or the heads of all rows, split over the threads."""
        batch, units = sizes["batch"], sizes["batch"] * sizes["heads"]
        products = sizes["steps"] * units * sizes["keys"] * cls.columns(sizes)
        threads, groups = torch.get_num_threads() if products > _SMALL else 1, call_c.row_groups(batch)
        shares = ranges(units, threads) if cls.splits_heads else call_c.ranges_of_groups(batch, groups, threads)
        call_c.run_ranges(f"{cls.functions}_{direction}", shares, x=x, weight=arguments.weight, **sizes, **fields)


@kernel(decaying_memory, "cpu")
class Memories(MemoryKernel):
    """The kernels of `decaying_memory`."""

    functions = "memories"
    splits_heads = True

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        """Return whether these inputs are a projection of few inputs, which need no gradient, and no output is read."""
        return not parameters["reads"] and isinstance(x, Projection) and has_few_inputs(x)

    @classmethod
    def forward(cls, x: Tensor, arguments: Arguments, keep: bool) -> Any:
        if not arguments.parameters["reads"]:
            return FinalMemories.forward(x, arguments, keep)
        return super().forward(x, arguments, keep)

    @classmethod
    def backward(cls, arguments: Arguments, tape: Tape) -> Gradients:
        if not arguments.parameters["reads"]:
            return FinalMemories.backward(arguments, tape)
        _, x, starts = tape.saved
        assert x is not None
        dx, dweight = workspace.take(*x.shape), torch.empty_like(arguments.weight)
        fields = {"dx": dx, "dweight": dweight, "starts": starts, "grad_y": tape.gradient}
        return Gradients(dx, dweight, (cls._backward(x, arguments, tape, cls.sizes(x, arguments), fields),))


class FinalMemories(MemoryKernel):
    """The kernel of `decaying_memory` without readings."""

    functions = "final_memories"

    @classmethod
    def sizes(cls, x: Tensor, arguments: Arguments) -> dict[str, Any]:
        inputs = 0 if arguments.parameters.get("input_weight") is None else x.shape[2]
        return super().sizes(x, arguments) | {"inputs": inputs, "groups": call_c.row_groups(x.shape[1])}

    @classmethod
    def columns(cls, sizes: Mapping[str, int]) -> int:
        return sizes["inputs"] or sizes["values"]

    @classmethod
    def forward(cls, x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (start,), sizes = arguments.state, cls.sizes(x, arguments)
        end, sums, inputs = torch.empty_like(start), None, sizes["inputs"]
        if keep and inputs:
            sums = workspace.take(len(start), sizes["heads"], inputs, matrix_products.padded(sizes["keys"]))
        fields = {**_vectors(arguments), "start": start, "end": end, "sums": sums}
        cls._run("forward", x, arguments, sizes, fields)
        return (x.new_empty(*x.shape[:2], 0),), (end, x, sums)

    @classmethod
    def backward(cls, arguments: Arguments, tape: Tape) -> Gradients:
        _, x, kept = tape.saved
        assert x is not None
        weight, dweight, sizes = (
            arguments.parameters.get("input_weight"),
            torch.empty_like(arguments.weight),
            cls.sizes(x, arguments),
        )
        dx = workspace.take(*x.shape) if weight is None else None
        heads, inputs, values, groups = (sizes[each] for each in ("heads", "inputs", "values", "groups"))
        dinput = x.new_zeros(groups, heads, inputs, matrix_products.padded(values))
        fields = {"dx": dx, "dweight": dweight, "sums": kept, "input_weight": weight, "dinput_weight": dinput}
        dstart = cls._backward(x, arguments, tape, sizes, fields)
        if weight is None:
            return Gradients(dx, dweight, (dstart,))
        by_input = call_c.total(dinput)[..., :values].transpose(1, 2).reshape(weight.shape)
        return Gradients(None, dweight, (dstart,), {"input_weight": by_input})


@kernel(nonlinear_memory, "cpu")
class NonlinearMemories(MemoryKernel):
    """The kernel of `nonlinear_memory`."""

    functions = "nonlinear_memories"

    @classmethod
    def sizes(cls, x: Tensor, arguments: Arguments) -> dict[str, Any]:
        numbers = {"reads": int(arguments.parameters["reads"]), "groups": call_c.row_groups(x.shape[1])}
        return super().sizes(x, arguments) | numbers

    @classmethod
    def columns(cls, sizes: Mapping[str, int]) -> int:
        return sizes["values"] ** 2

    @classmethod
    def backward(cls, arguments: Arguments, tape: Tape) -> Gradients:
        _, x, starts = tape.saved
        assert x is not None
        transition, sizes = arguments.parameters["transition"], cls.sizes(x, arguments)
        columns = matrix_products.padded(sizes["values"])
        sums = x.new_zeros(sizes["groups"], *transition.shape[:2], columns)
        gradients = {"dx": workspace.take(*x.shape), "dweight": torch.empty_like(arguments.weight), "dtransition": sums}
        fields = {**gradients, "transition": transition, "starts": starts}
        fields["grad_y"] = tape.gradient if sizes["reads"] else None
        dstart = cls._backward(x, arguments, tape, sizes, fields)
        summed = call_c.total(sums)[..., : sizes["values"]]
        return Gradients(gradients["dx"], gradients["dweight"], (dstart,), {"transition": summed})


@kernel(rwkv7, "cpu")
class RWKV7(MemoryKernel):
    """The kernel of `rwkv7`."""

    functions = "rwkv7"
    adds_first = True

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        """Return whether these inputs are a projection of few inputs, which need no gradient."""
        return isinstance(x, Projection) and has_few_inputs(x)

    @classmethod
    def sizes(cls, x: Tensor, arguments: Arguments) -> dict[str, Any]:
        parameters = arguments.parameters
        numbers = {
            "reads": int(parameters["reads"]),
            "low": parameters["rate_weight"].shape[1],
            "epsilon": parameters["epsilon"],
            "inputs": 0 if parameters.get("input_weight") is None else x.shape[2],
            "groups": call_c.row_groups(x.shape[1]),
        }
        return super().sizes(x, arguments) | numbers

    @classmethod
    def backward(cls, arguments: Arguments, tape: Tape) -> Gradients:
        end, x, starts = tape.saved
        assert x is not None
        vectors, problem = _vectors(arguments), cls.sizes(x, arguments)
        first = vectors.get("input_first")
        dx, dfirst = (None if "input_weight" in vectors else workspace.take(*x.shape)), None
        if first is not None:
            dfirst = torch.empty_like(first)
        sums, summed = {}, {"weight": arguments.weight, **vectors}
        for name in summed.keys() - {"input_first"}:
            *rows, columns = summed[name].shape
            sums[name] = x.new_zeros(
                problem["groups"],
                *rows,
                matrix_products.padded(columns) if name in ("weight", "rate_weight") else columns,
            )
        gradients = {"dx": dx, "dinput_first": dfirst, **{f"d{name}": each for name, each in sums.items()}}
        fields = {**vectors, **gradients, "end": end, "starts": starts}
        fields["grad_y"] = tape.gradient if problem["reads"] else None
        dstart = cls._backward(x, arguments, tape, problem, fields)
        totals = {name: call_c.total(each)[..., : summed[name].shape[-1]] for name, each in sums.items()}
        return Gradients(dx, totals.pop("weight"), (dstart,), totals | {"input_first": dfirst})


def _vectors(arguments: Arguments) -> dict[str, Tensor]:
    return {name: value for name, value in arguments.parameters.items() if isinstance(value, Tensor)}
