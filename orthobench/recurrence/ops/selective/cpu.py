"""The CPU kernel of the selective scan: calls of `selective.c`, in float32.

Forward keeps the state at the start of each chunk of steps. Backward recomputes the states of a chunk, which stay in a
core's cache. If x is a short convolution (`call.Convolution`), it is computed in the cache as well, and so are the
weights of the steps if the weight is a matrix. Groups of batch rows are split over the threads, which does not change
results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import threads, workspace
from orthobench.recurrence.call import Convolution, Projection
from orthobench.recurrence.cpu import call_c, matrix_products
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.selective import selective_scan
from orthobench.recurrence.passes import convolution

_SMALL = 1 << 16  # numbers of all states; below, starting a thread costs more than it saves


@kernel(selective_scan, "cpu")
class Selective(Kernel):
    """The kernel of `selective_scan`."""

    forgets_states = True
    makes_weights = True
    gates_outputs = True

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        """Return whether these inputs are a convolution of a few taps, of x or of a small projection."""
        if not isinstance(x, Convolution) or not convolution.has_few_taps(x.weight):
            return False
        return isinstance(x.source, Tensor) or convolution.has_few_inputs(x.source)

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (start,), parameters = arguments.state, arguments.parameters
        (steps, batch, _), width = x.shape, len(parameters["step_bias"])
        y, end = workspace.take(steps, batch, width * parameters["reads"]), torch.empty_like(start)
        length = call_c.kernels().selective_starts(steps, batch, width, parameters["state_size"])
        starts = workspace.take(length) if keep else None
        mapped = workspace.take(steps, batch, len(arguments.weight)) if arguments.weight.dim() == 2 else None
        _run(
            "selective_forward",
            x,
            arguments,
            mapped,
            {"start": start, "y": _unless_empty(y), "end": end, "starts": starts},
        )
        return (y,), (end, x, starts, mapped)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        _, x, starts, mapped = tape.saved
        assert x is not None
        (start,), parameters, weight = arguments.state, arguments.parameters, arguments.weight
        groups, width = call_c.row_groups(x.shape[1]), len(parameters["step_bias"])
        before, gate = parameters.get("before"), parameters.get("gate")
        gradient = _unless_empty(tape.gradient)
        single = {
            "dx": None if "input_weight" in parameters else workspace.take(*x.shape),
            "dweight": workspace.take(*weight.shape) if mapped is None else None,
            "dstart": torch.zeros_like(start) if tape.final[0] is None else tape.final[0].clone(),
            "dbefore": None if before is None else torch.empty_like(before),
            "dgate": None if gate is None or gradient is None else workspace.take(*gate.shape),
        }
        dmap = None if mapped is None else x.new_zeros(groups, len(weight), matrix_products.padded(width))
        sums = {
            name: x.new_empty(groups, *tensor.shape)
            for name, tensor in _vectors(parameters).items()
            if tensor is not None and (gradient is not None or name not in ("skip", "gate_weight"))
        }
        norms = x.new_empty(x.shape[:2]) if tape.norms else None
        tensors = {"starts": starts, "grad_y": gradient, "norms": norms, "dmap": dmap, **single}
        tensors |= {f"d{name}": tensor for name, tensor in sums.items()}
        _run("selective_backward", x, arguments, mapped, tensors)
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms, out=out)
        totals = {name: call_c.total(tensor) for name, tensor in sums.items()}
        by_name: dict[str, Tensor | None] = {"step_weight": totals.pop("step").T, "step_bias": totals.pop("bias")}
        for name in ("input_weight", "gate_weight"):
            if name in totals:
                by_name[name] = totals.pop(name).T
        dweight = single["dweight"] if dmap is None else call_c.total(dmap)[:, :width]
        assert single["dstart"] is not None
        by_name |= {"before": single["dbefore"], "gate": single["dgate"]}
        return Gradients(single["dx"], dweight, (single["dstart"],), totals | by_name)


def _unless_empty(tensor: Tensor | None) -> Tensor | None:
    """Return the tensor, or None for one of 0 features."""
    return tensor if tensor is not None and tensor.numel() else None


def _vectors(parameters: Mapping[str, Any]) -> dict[str, Tensor | None]:
    """Return the parameters whose gradients are sums over the rows, by their names in chunk.h."""
    transposed = {
        name: parameters[name].T.contiguous() for name in ("input_weight", "gate_weight") if name in parameters
    }
    return {
        "rates": parameters["rates"],
        "step": parameters["step_weight"].T.contiguous(),
        "bias": parameters["step_bias"],
        **{name: parameters.get(name) for name in ("convolution", "convolution_bias", "skip")},
        **transposed,
    }


def _run(
    function: str, x: Tensor, arguments: Arguments, mapped: Tensor | None, tensors: Mapping[str, Tensor | None]
) -> None:
    """Run one direction over all steps, with the groups of batch rows split over the threads.

    `mapped` has the weights of all steps, `[T, B, rank + 2N]`, if the weight argument is the map that computes them.
    """
    parameters, (steps, batch, inputs) = arguments.parameters, x.shape
    weight = {"weight": arguments.weight} if mapped is None else {"weight": mapped, "map": arguments.weight}
    by_name = {**tensors, **_vectors(parameters), **weight, "x": x}
    by_name |= {name: parameters.get(name) for name in ("before", "gate")}
    width, rank = parameters["step_weight"].shape
    size, groups, taps = parameters["state_size"], call_c.row_groups(batch), by_name["convolution"]
    sizes = {"steps": steps, "batch": batch, "width": width, "size": size, "rank": rank, "groups": groups}
    sizes |= {"negative": parameters["negative"], "taps": 0 if taps is None else len(taps)}
    sizes["inputs"] = inputs if "input_weight" in parameters else 0
    ranges = threads.ranges(groups, torch.get_num_threads() if steps * batch * width * size > _SMALL else 1)
    call_c.run_ranges(function, ranges, **sizes, **by_name)
