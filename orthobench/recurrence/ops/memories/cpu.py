"""The CPU kernels of the decaying memories: calls of `memories.c`, and for RWKV-7 of `rwkv7.c`, in float32.

Forward keeps the memory at the start of each group of steps, from which backward computes the group again. The heads of
all batch rows are split over the threads, which does not change results.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.cpu import native
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.memories import decaying_memory, rwkv7

_SMALL = 1 << 19  # multiplications; below, starting a thread costs more than it saves


@kernel(rwkv7, "cpu")
@kernel(decaying_memory, "cpu")
class Memories(Kernel):
    """The kernel of `decaying_memory` and of `rwkv7`."""

    forgets_states = True

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (start,), sizes, name = arguments.state, _sizes(x, arguments), _name(arguments)
        steps, batch, heads, values = (sizes[each] for each in ("steps", "batch", "heads", "values"))
        y, end = runtime.take(steps, batch, sizes["reads"] * heads * values), torch.empty_like(start)
        library, starts = native.kernels(), None
        if keep:
            groups, size = getattr(library, f"{name}_groups"), getattr(library, f"{name}_size")
            starts = runtime.take(batch * heads, groups(steps) * size(sizes["keys"], values))
        _run(f"{name}_forward", sizes, x=x, start=start, y=y, end=end, starts=starts, **_weights(arguments))
        return (y,), (end, x, starts)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        end, x, starts = tape.saved
        assert x is not None
        (start,), sizes = arguments.state, _sizes(x, arguments)
        dx, dweight, dstart = runtime.take(*x.shape), torch.empty_like(arguments.weight), torch.empty_like(start)
        norms = x.new_empty(*x.shape[:2], sizes["heads"]) if tape.norms else None
        weights = _weights(arguments)
        by_row = {name: x.new_zeros(x.shape[1], *weights[name].shape) for name in weights if name != "weight"}
        tensors = {"grad_y": tape.gradient if sizes["reads"] else None, "grad_end": tape.final[0], "norms": norms}
        tensors |= {"dx": dx, "dweight": dweight, "dstart": dstart, "start": start, "end": end, "starts": starts}
        tensors |= {f"d{name}": tensor for name, tensor in by_row.items()}
        _run(f"{_name(arguments)}_backward", sizes, x=x, **weights, **tensors)
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms.sum(-1), out=out)
        return Gradients(dx, dweight, (dstart,), {name: native.total(tensor) for name, tensor in by_row.items()})


def _name(arguments: Arguments) -> str:
    """Return the beginning of the names of the C functions."""
    return "rwkv7" if "key_rate" in arguments.parameters else "memories"


def _sizes(x: Tensor, arguments: Arguments) -> dict[str, Any]:
    """Return the numbers of the problem."""
    heads, keys, reads = (arguments.parameters[name] for name in ("heads", "key_size", "reads"))
    epsilon = {name: value for name, value in arguments.parameters.items() if name == "epsilon"}
    return {
        **{"steps": x.shape[0], "batch": x.shape[1], "heads": heads, "keys": keys, "reads": int(reads)},
        **{"values": arguments.state[0].shape[1] // (heads * keys)},
        **epsilon,
    }


def _weights(arguments: Arguments) -> dict[str, Tensor]:
    vectors = {name: value for name, value in arguments.parameters.items() if isinstance(value, Tensor)}
    return {"weight": arguments.weight, **vectors}


def _run(function: str, sizes: dict[str, Any], **tensors: Tensor | None) -> None:
    """Run one direction over all steps, with the heads of all rows split over the threads."""
    units = sizes["batch"] * sizes["heads"]
    work = sizes["steps"] * units * sizes["keys"] * sizes["values"]
    parts = runtime.ranges(units, torch.get_num_threads() if work > _SMALL else 1)
    native.run_parts(function, parts, **sizes, **tensors)
