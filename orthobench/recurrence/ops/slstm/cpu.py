"""The CPU kernel of the sLSTM: calls of `slstm.c`, in float32.

Forward keeps the states and four numbers per unit and step. Backward sums dL/dR and dL/dU during its loop. Each head
has its own weight matrix, so that no product includes the zeros between heads.
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
from orthobench.recurrence.ops.slstm import slstm

_SMALL = 1 << 16  # numbers of all states; below, starting a thread costs more than it saves
_ROWS = 25  # batch rows whose states of a few steps stay in a core's cache


@kernel(slstm, "cpu")
class SLSTM(Kernel):
    """The kernel of `slstm`."""

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        return isinstance(x, Projection)

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h0, c0, n0, m0 = arguments.state
        steps, shape, heads = len(x), h0.shape, arguments.parameters["heads"]
        h = workspace.take(steps, *shape)
        c, n = (workspace.take(steps if keep else 1, *shape) for _ in range(2))
        m = m0.clone()
        saved = workspace.take(steps, shape[0], 4 * shape[1]) if keep else None
        inputs = {"x": x}
        if "input_weight" in arguments.parameters:
            x, weight = matrix_products.with_bias(
                x, *(arguments.parameters[name] for name in ("input_weight", "input_bias"))
            )
            inputs = {"u": x, "packed_inputs": _packed(_by_head(weight, heads))}
        states = {"h0": h0, "c0": c0, "n0": n0, "h": h, "c": c, "n": n, "m": m, "saved": saved}
        packed = _packed(_by_head(arguments.weight, heads))
        _run("slstm_forward", arguments, packed=packed, **inputs, **states)
        return (h, c, n, m[None]), (saved, inputs.get("u"))

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h, c, n, _), (saved, u), (h0, c0, n0, _) = tape.states, tape.saved, arguments.state
        weight, parameters, (_, batch, features) = arguments.weight, arguments.parameters, h.shape
        heads = parameters["heads"]
        rows = _by_head(weight, heads)
        inputs, groups, size = 0 if u is None else u.shape[-1], call_c.row_groups(batch), weight.shape[1]
        dweights = None
        if tape.needs_weight or u is not None:
            dweights = workspace.take(groups, heads, 4 * size, matrix_products.padded(size + inputs)).zero_()
        dx = workspace.take(len(h), batch, 4 * features) if u is None else None
        dh0, *others = torch.empty_like(h0), *(tape.last(i).clone() for i in (1, 2, 3))
        tensors = {"u": u, "h0": h0, "c0": c0, "n0": n0, "h": h, "c": c, "n": n, "saved": saved}
        tensors |= {"grad_h": tape.gradient, "grad_last": tape.final[0]}
        results = {"dx": dx, "dweights": dweights, "dh0": dh0, **dict(zip(("dc0", "dn0", "dm0"), others, strict=True))}
        results |= dict(zip(("norms", "c_norms", "n_norms"), tape.norms, strict=False))
        packed, du = torch.stack([matrix_products.pack_transposed(each) for each in rows]), None
        if tape.needs_inputs and u is not None:
            input_rows = _by_head(parameters["input_weight"], heads).flatten(0, 1)
            du = workspace.take(*h.shape[:2], input_rows.shape[1])
            tensors |= {"du": du, "packed_transposed": matrix_products.pack_transposed(input_rows)}
        dx = dx if u is None else du
        _run("slstm_backward", arguments, packed=packed, **tensors, **results)
        if dweights is None:
            return Gradients(dx, None, (dh0, *others))
        sums = matrix_products.joined_sums(dweights).view(heads, 4, size, -1).transpose(0, 1)  # [4, heads, d, d + m]
        dweight = sums[..., :size].reshape(weight.shape) if tape.needs_weight else None
        by_name: dict[str, Tensor | None] = {}
        if u is not None:
            m = parameters["input_weight"].shape[1]
            by_name["input_weight"] = sums[..., size : size + m].reshape(4 * features, m)
            has_bias = parameters["input_bias"] is not None
            by_name["input_bias"] = sums[..., size + m].reshape(4 * features) if has_bias else None
        return Gradients(dx, dweight, (dh0, *others), by_name)


def _by_head(weight: Tensor, heads: int) -> Tensor:
    """Return each head's rows of all gates `[heads, 4d, columns]`."""
    return weight.view(4, heads, -1, weight.shape[1]).transpose(0, 1).flatten(1, 2).contiguous()


def _packed(rows: Tensor) -> Tensor:
    """Return the matrices of all heads, packed by `native.pack`, `[heads, size]`."""
    return torch.stack([matrix_products.pack(each, gates=4) for each in rows])


def _run(function: str, arguments: Arguments, **tensors: Any) -> None:
    """Run one direction over all steps, with the batch rows split over the threads and into blocks."""
    h, c, u = tensors["h"], tensors["c"], tensors.get("u")
    steps, batch, features = h.shape
    stride = batch * features if len(c) == steps else 0
    parameters, groups = arguments.parameters, call_c.row_groups(batch)
    inputs, du = 0 if u is None else u.shape[-1], tensors.get("du")
    sizes = {"steps": steps, "batch": batch, "features": features, "heads": parameters["heads"], "inputs": inputs}
    sizes |= {"groups": groups, "exponential": parameters["exponential_forget"], "stride": stride}
    sizes["differentiated"] = 0 if du is None else du.shape[-1]
    count = torch.get_num_threads() if h.numel() > _SMALL else 1
    count *= max(1, batch // (count * _ROWS))
    ranges = call_c.ranges_of_groups(batch, groups, count)
    call_c.run_ranges(function, ranges, **sizes, **tensors)
