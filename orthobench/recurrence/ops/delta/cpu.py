"""The CPU kernel of the delta rule: calls of `delta.c`, in float32.

Forward keeps the errors by which the memory was corrected, and the memory at the start of each group of steps. Backward
recomputes the memories of a group, which stay in a core's cache. If the inputs are a short convolution
(`call.Convolution`), the queries, keys and values are computed in the cache as well. The heads of all batch rows are
split over the threads, which does not change results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import threads, workspace
from orthobench.recurrence.call import Convolution, Projection
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.delta import delta_rule
from orthobench.recurrence.passes import convolution

_SMALL = 1 << 20  # multiplications; below, starting a thread costs more than it saves


@kernel(delta_rule, "cpu")
class Delta(Kernel):
    """The kernel of `delta_rule`."""

    forgets_states = True

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        """Return whether these inputs are a convolution of a few taps without a bias, of x or of a small projection."""
        if not isinstance(x, Convolution) or x.bias is not None or not convolution.has_few_taps(x.weight):
            return False
        return isinstance(x.source, Tensor) or convolution.has_few_inputs(x.source)

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (start,), sizes = arguments.state, _sizes(x, arguments)
        steps, batch, heads, keys, values = (sizes[name] for name in ("steps", "batch", "heads", "keys", "values"))
        units, factors = batch * heads, sizes["factors"]
        y, end = workspace.take(steps, batch, sizes["reads"] * heads * values), torch.empty_like(start)
        errors = workspace.take(units, steps * factors * values) if keep else None
        memory = call_c.kernels().delta_memory(keys, values)
        starts = workspace.take(units, -(-steps // sizes["group"]) * memory) if keep else None
        tensors = _inputs(x, arguments) | {"start": start, "y": y, "end": end, "errors": errors, "starts": starts}
        _run("delta_forward", sizes, tensors)
        return (y,), (end, x, errors, starts)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        _, x, errors, starts = tape.saved
        assert x is not None
        (start,), sizes = arguments.state, _sizes(x, arguments)
        tensors = _inputs(x, arguments)
        dweight, dstart = torch.empty_like(arguments.weight), torch.empty_like(start)
        norms = x.new_empty(*x.shape[:2], sizes["heads"]) if tape.norms else None
        dx, by_row = None if sizes["inputs"] else workspace.take(*x.shape), {}
        for name in ("input_weight", "convolution"):
            if (weight := tensors[name]) is not None:
                by_row[name] = weight.new_zeros(x.shape[1], *weight.shape)
        before = arguments.parameters.get("before")
        dbefore = None if before is None else torch.empty_like(before)
        tensors |= {"errors": errors, "starts": starts, "grad_y": tape.gradient if sizes["reads"] else None}
        tensors |= {"grad_end": tape.final[0], "dx": dx, "dweight": dweight, "dstart": dstart}
        tensors |= {"norms": norms, "dbefore": dbefore, **{f"d{name}": tensor for name, tensor in by_row.items()}}
        _run("delta_backward", sizes, tensors)
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms.sum(-1), out=out)
        gradients: dict[str, Tensor | None] = {name: call_c.total(tensor) for name, tensor in by_row.items()}
        if (by_input := gradients.get("input_weight")) is not None:
            gradients["input_weight"] = by_input.T.contiguous()
        return Gradients(dx, dweight, (dstart,), gradients | {"before": dbefore})


def _sizes(x: Tensor, arguments: Arguments) -> dict[str, Any]:
    """Return the numbers of the problem."""
    parameters, features = arguments.parameters, arguments.state[0].shape[1]
    heads, keys, factors = (parameters[name] for name in ("heads", "key_size", "factors"))
    taps, epsilon = parameters.get("convolution"), parameters["epsilon"]
    return {
        **{"steps": x.shape[0], "batch": x.shape[1], "heads": heads, "keys": keys, "factors": factors},
        **{"values": features // (heads * keys), "reads": int(parameters["reads"])},
        **{"group": call_c.kernels().delta_group(factors), "taps": 0 if taps is None else len(taps)},
        **{"inputs": x.shape[-1] if "input_weight" in parameters else 0},
        **{"gated": int(parameters["gated"]), "normalized": epsilon is not None, "epsilon": epsilon or 0.0},
    }


def _inputs(x: Tensor, arguments: Arguments) -> dict[str, Tensor | None]:
    """Return x or what it is computed from, and the betas and log decays."""
    parameters = arguments.parameters
    input_weight = parameters.get("input_weight")
    return {
        "x": x,
        "weight": arguments.weight,
        "input_weight": None if input_weight is None else input_weight.T.contiguous(),
        **{name: parameters.get(name) for name in ("convolution", "before")},
    }


def _run(function: str, sizes: dict[str, Any], tensors: dict[str, Tensor | None]) -> None:
    """Run one direction over all steps, with the heads of all rows split over the threads."""
    units = sizes["batch"] * sizes["heads"]
    work = sizes["steps"] * units * sizes["keys"] * sizes["values"] * sizes["factors"]
    ranges = threads.ranges(units, torch.get_num_threads() if work > _SMALL else 1)
    call_c.run_ranges(function, ranges, **sizes, **tensors)
