"""The C kernel of `cornn`: calls of `cornn.c`, in float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.cpu import dense, native
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.cornn import cornn


@kernel(cornn, "cpu")
class CoRNN(Kernel):
    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        weight, (y0, z0) = arguments.weight, arguments.state
        n = y0.shape[-1]
        y, z = runtime.take(*x.shape), runtime.take(*x.shape)
        saved = dense.saved(y, 1) if keep else None
        native.loop(
            "cornn_forward",
            arguments.parameters,
            **{"x": x, "h0": y0, "c0": z0, "h": y, "c": z, "saved": saved},
            packed=native.pack(weight[:, :n]),
            packed_z=native.pack(weight[:, n:]),
        )
        return (y, z), (saved,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (y0, z0), (y, z), (saved,) = arguments.state, tape.states, tape.saved
        fields = dense.fields(tape, y.shape[-1], arguments.parameters)
        fields |= {"saved": saved, "dc0": torch.empty_like(z0)}
        native.loop("cornn_backward", packed=native.pack_transposed(arguments.weight, gates=2), **fields)
        dweight = None
        if tape.needs_weight:
            sources = ((y, y0), (z, z0))
            dweight = torch.cat([dense.product(fields["dx"], *source) for source in sources], dim=1)
        return Gradients(fields["dx"], dweight, (fields["dh0"], fields["dc0"]))
