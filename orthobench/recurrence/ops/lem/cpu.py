"""The C kernel of `lem`: calls of `lem.c`, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.cpu import dense, native
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.lem import lem


@kernel(lem, "cpu")
class LEM(Kernel):
    makes = staticmethod(dense.makes)

    @staticmethod
    def settings(parameters: Mapping[str, Any]) -> dense.Settings:
        return {"step_size": parameters["step_size"]}

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        weight, (y0, z0) = arguments.weight, arguments.state
        n = y0.shape[-1]
        y, z = (runtime.take(*x.shape[:2], n) for _ in range(2))
        saved, inputs = dense.saved(y, 4) if keep else None, dense.inputs(x, arguments.parameters, gates=3, more=1)
        native.loop(
            "lem_forward",
            LEM.settings(arguments.parameters),
            **{"h0": y0, "c0": z0, "h": y, "c": z, "saved": saved, **inputs},
            packed=native.pack(weight[: 3 * n], gates=3),
            packed_candidate=native.pack(weight[3 * n :]),
        )
        return (y, z), (saved, inputs.get("u"))

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (y0, z0), (y, z), (saved, u) = arguments.weight, arguments.state, tape.states, tape.saved
        n = y0.shape[-1]
        fields = dense.fields(tape, None, LEM.settings(arguments.parameters)) | dense.sum_fields(tape, arguments, u)
        fields |= {"saved": saved, "h0": y0, "c": z, "c0": z0, "dc0": torch.empty_like(z0)}
        native.loop(
            "lem_backward",
            packed=native.pack_transposed(weight[: 3 * n]),
            packed_candidate=native.pack_transposed(weight[3 * n :]),
            **fields,
        )
        sums = None
        if "dweights" in fields:
            sums = native.joined_sums(fields["dweights"])
        elif tape.needs_weight or u is not None:
            dz, last = fields["dx"][..., : 3 * n], fields["dx"][..., 3 * n :]
            sums = torch.cat((dense.outer_sums(dz, y, y0, u), dense.outer_sums(last, z, None, u)))
        dweight, by_name = dense.named(tape, arguments, sums, sums if sums is None else sums[:, n:])
        return Gradients(fields["dx"] if u is None else None, dweight, (fields["dh0"], fields["dc0"]), by_name)
