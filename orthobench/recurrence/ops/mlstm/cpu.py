"""The CPU kernels of the mLSTM: calls of `mlstm.c`, or of `mlstm_final.c` without readings, in float32.

Forward keeps the memories before each chunk of steps. Backward recomputes the memories of a chunk, which stay in a
core's cache, and sums dL/dU during its loop. Without readings, the final state is one sum over the steps, and no
memories are kept. The batch rows are split over the threads, which does not change results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from orthobench.recurrence import workspace
from orthobench.recurrence.call import Convolution, Projection
from orthobench.recurrence.cpu import call_c, matrix_products
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.mlstm import mlstm
from orthobench.recurrence.ops.mlstm.layout import memory_blocks, memory_size

_SMALL = 1 << 16  # numbers of the memories that all steps write; below, starting a thread costs more than it saves


@kernel(mlstm, "cpu")
class MLSTM(Kernel):
    """The kernels of `mlstm`."""

    forgets_states = True

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        return isinstance(x, Projection)

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (start,), parameters = arguments.state, arguments.parameters
        (steps, batch), (heads, size, _) = x.shape[:2], _sizes(arguments)
        inputs = {"x": x}
        if (weight := parameters.get("input_weight")) is not None:
            u, weight = matrix_products.with_bias(x, weight, parameters["input_bias"])
            inputs = {"u": u, "packed_inputs": _packed(weight, heads, size)}
        reads = parameters["reads"]
        y, end = workspace.take(steps, batch, heads * size * reads), torch.empty_like(start)
        results: dict[str, Tensor | None] = {"end": end}
        totals = starts = None
        if reads:
            library = call_c.kernels()
            chunks = -(-steps // library.mlstm_chunk())
            totals = workspace.take(steps, batch, heads) if keep else None
            starts = workspace.take(chunks, batch, heads, library.mlstm_memory(size)) if keep else None
            results |= {"y": y, "totals": totals, "starts": starts}
        _run("forward", arguments, y, inputs | results)
        return (y,), (end, inputs.get("x"), inputs.get("u"), inputs.get("packed_inputs"), totals, starts)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (y,), (_, x, u, packed, totals, starts) = tape.states, tape.saved
        (start,), parameters, (heads, size, parts) = arguments.state, arguments.parameters, _sizes(arguments)
        steps, batch, _ = y.shape
        dgates = torch.empty_like(arguments.weight)
        # A clone, because the kernel changes it in place, and other nodes of the graph may hold it.
        dstart = torch.zeros_like(start) if tape.final[0] is None else tape.final[0].clone()
        norms = y.new_zeros(steps, batch) if tape.norms else None
        dx = workspace.take(steps, batch, parts * heads * size) if u is None else None
        tensors = {"x": x, "u": u, "packed_inputs": packed, "dx": dx, "dgates": dgates, "dstart": dstart}
        tensors["norms"] = norms
        if parameters["reads"]:
            tensors |= {"y": y, "totals": totals, "starts": starts, "grad_y": tape.gradient}
        du = dweights = None
        if u is not None:
            rows = parts * matrix_products.padded(size)
            dweights = workspace.take(call_c.row_groups(batch), heads, u.shape[-1], rows).zero_()
            tensors["dweights"] = dweights
        if tape.needs_inputs and u is not None:
            weight = parameters["input_weight"]
            du = workspace.take(steps, batch, weight.shape[1])
            tensors |= {"du": du, "packed_transposed": _packed_transposed(weight, heads, size)}
        _run("backward", arguments, y, tensors)
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms, out=out)
        by_name: dict[str, Tensor | None] = {}
        if dweights is not None:
            m = parameters["input_weight"].shape[1]
            sums = matrix_products.joined_sums(dweights).unflatten(-1, (parts, -1))[..., :size]
            sums = sums.permute(2, 0, 3, 1)  # [parts, heads, d, inputs]
            by_name["input_weight"] = sums[..., :m].reshape(-1, m)
            by_name["input_bias"] = None if parameters["input_bias"] is None else sums[..., m].flatten()
        return Gradients(dx if u is None else du, dgates, (dstart,), by_name)


def _sizes(arguments: Arguments) -> tuple[int, int, int]:
    """Return the number of heads, the size d of a head, and the number of blocks `[heads, d]` in x."""
    heads, reads = arguments.parameters["heads"], arguments.parameters["reads"]
    return heads, memory_size(arguments.state[0].shape[-1], heads), memory_blocks(reads)


def _packed(weight: Tensor, heads: int, size: int) -> Tensor:
    """Return the packed blocks `[d, m]` of U, head by head, for all parts of x."""
    blocks = weight.view(-1, heads, size, weight.shape[1]).transpose(0, 1).flatten(0, 1)
    return torch.stack([matrix_products.pack(block) for block in blocks])


def _packed_transposed(weight: Tensor, heads: int, size: int) -> Tensor:
    """Return each head's rows of U, with zeros up to whole vectors between the parts of x, packed for dz U."""
    rows = weight.view(-1, heads, size, weight.shape[1]).transpose(0, 1)
    missing = matrix_products.padded(size) - size
    return torch.stack([matrix_products.pack_transposed(each) for each in pad(rows, (0, 0, 0, missing)).flatten(1, 2)])


def _run(direction: str, arguments: Arguments, y: Tensor, tensors: Mapping[str, Tensor | None]) -> None:
    """Run one direction over all steps, the batch rows split over the threads."""
    tensors = {**tensors, "gates": arguments.weight, "start": arguments.state[0]}
    (steps, batch, _), (heads, size, blocks) = y.shape, _sizes(arguments)
    u, du, groups = tensors.get("u"), tensors.get("du"), call_c.row_groups(batch)
    sizes = {"steps": steps, "batch": batch, "heads": heads, "size": size, "parts": blocks, "groups": groups}
    sizes |= {"inputs": 0 if u is None else u.shape[-1], "differentiated": 0 if du is None else du.shape[-1]}
    sizes["exponential"] = arguments.parameters["exponential_forget"]
    count = torch.get_num_threads() if steps * batch * heads * size**2 > _SMALL else 1
    ranges = call_c.ranges_of_groups(batch, groups, count)
    kernel = "mlstm" if arguments.parameters["reads"] else "mlstm_final"
    call_c.run_ranges(f"{kernel}_{direction}", ranges, **sizes, **tensors)
