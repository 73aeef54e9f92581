"""The CPU kernel of the mLSTM: calls of `mlstm.c`, in float32.

Forward keeps the memories before each chunk of steps. Backward makes those of a chunk again, which stay in a core's
cache, and adds up dL/dU beside its loop. The batch rows are split over the threads, which changes no number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from orthobench.recurrence import stopwatch
from orthobench.recurrence.cpu import native, threads, workspace
from orthobench.recurrence.kernels import Arguments, Gradients, Tape

_SMALL = 1 << 16  # numbers of the memories that all steps write; below, starting a thread costs more than it saves


class Problem(ctypes.Structure):
    """`struct mlstm` of mlstm.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "batch", "heads", "size", "inputs", "groups", "exponential")),
        ("differentiated", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("x", "u", "packed_inputs", "packed_transposed", "gates", "start", "y")),
        *((name, ctypes.c_void_p) for name in ("totals", "starts", "end", "grad_y", "dx", "du", "dgates")),
        *((name, ctypes.c_void_p) for name in ("dweights", "dstart", "norms")),
    )


class MLSTM:
    """The kernel of `mlstm`."""

    forgets_states = True

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (start,), heads = arguments.state, arguments.parameters["heads"]
        weight = arguments.parameters.get("input_weight")
        size = (x.shape[-1] if weight is None else len(weight)) // (4 * heads)
        inputs = {"x": x}
        if weight is not None:
            u, weight = native.with_bias(x, weight, arguments.parameters["input_bias"])
            inputs = {"u": u, "packed_inputs": _packed(weight, heads)}
        steps, batch = x.shape[:2]
        y, end = workspace.take(steps, batch, heads * size), torch.empty_like(start)
        library = native.kernels()
        chunks = -(-steps // library.mlstm_chunk())
        totals = workspace.take(steps, batch, heads) if keep else None
        starts = workspace.take(chunks, batch, heads, library.mlstm_memory(size)) if keep else None
        results = {"y": y, "end": end, "totals": totals, "starts": starts}
        _run("mlstm_forward", arguments, y, inputs | results | {"start": start})
        return (y,), (end, inputs.get("x"), inputs.get("u"), inputs.get("packed_inputs"), totals, starts)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (y,), (_, x, u, packed, totals, starts) = tape.states, tape.saved
        (start,), heads = arguments.state, arguments.parameters["heads"]
        steps, batch, features = y.shape
        size = features // heads
        dgates = torch.empty_like(arguments.weight)
        dstart = torch.zeros_like(start) if tape.final[0] is None else tape.final[0].clone()
        norms = y.new_zeros(steps, batch) if tape.norms else None
        dx = workspace.take(steps, batch, 4 * features) if u is None else None
        dweights = None
        if u is not None:
            rows, columns = native.padded(size), native.padded(u.shape[-1])
            dweights = workspace.take(native.row_groups(batch), heads, 4, rows, columns).zero_()
        tensors = {"x": x, "u": u, "packed_inputs": packed, "y": y, "totals": totals, "starts": starts}
        du = None
        if tape.needs_inputs and u is not None:
            weight = arguments.parameters["input_weight"]
            du = workspace.take(steps, batch, weight.shape[1])
            tensors |= {"du": du, "packed_transposed": _packed_transposed(weight, heads)}
        tensors |= {"grad_y": tape.gradient, "dgates": dgates, "dstart": dstart, "norms": norms}
        _run("mlstm_backward", arguments, y, {**tensors, "dx": dx, "dweights": dweights})
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms, out=out)
        by_name: dict[str, Tensor | None] = {}
        if dweights is not None:
            m = arguments.parameters["input_weight"].shape[1]
            sums = native.joined_sums(dweights)[:, :, :size].transpose(0, 1)  # [4, heads, d, m + 1]
            has_bias = arguments.parameters["input_bias"] is not None
            by_name["input_weight"] = sums[..., :m].reshape(-1, m)
            by_name["input_bias"] = sums[..., m].flatten() if has_bias else None
        return Gradients(dx if u is None else du, dgates, (dstart,), by_name)


def _packed(weight: Tensor, heads: int) -> Tensor:
    """Return the packed blocks `[d, m]` of U, each head's for q, k, v and o."""
    blocks = weight.view(4, heads, -1, weight.shape[1]).transpose(0, 1).flatten(0, 1)
    return torch.stack([native.pack(block) for block in blocks])


def _packed_transposed(weight: Tensor, heads: int) -> Tensor:
    """Return each head's rows of U, with zeros up to whole vectors between q, k, v and o, packed for dz U."""
    rows = weight.view(4, heads, -1, weight.shape[1]).transpose(0, 1)
    missing = native.padded(rows.shape[2]) - rows.shape[2]
    return torch.stack([native.pack_transposed(each) for each in pad(rows, (0, 0, 0, missing)).flatten(1, 2)])


def _run(function: str, arguments: Arguments, y: Tensor, tensors: Mapping[str, Tensor | None]) -> None:
    """Run one direction over all steps, the batch rows split over the threads."""
    pointers = {name: tensor.data_ptr() for name, tensor in tensors.items() if tensor is not None}
    (steps, batch, features), u, parameters = y.shape, tensors.get("u"), arguments.parameters
    du = tensors.get("du")
    heads, groups = parameters["heads"], native.row_groups(batch)
    problem = Problem(
        *(steps, batch, heads, features // heads, 0 if u is None else u.shape[-1], groups),
        parameters["exponential_forget"],
        differentiated=0 if du is None else du.shape[-1],
        gates=arguments.weight.data_ptr(),
        **pointers,
    )
    count = torch.get_num_threads() if y.numel() * features // heads > _SMALL else 1
    parts = [(batch * first // groups, batch * last // groups) for first, last in threads.ranges(groups, count)]
    with stopwatch.part(stopwatch.FORWARD if function == "mlstm_forward" else stopwatch.BACKWARD):
        native.run_parts(function, problem, parts)
