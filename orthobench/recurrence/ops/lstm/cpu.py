"""The C kernel of `lstm`: calls of `lstm.c`, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.cpu import dense, native
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.lstm import lstm


@kernel(lstm, "cpu")
class LSTM(Kernel):
    makes = staticmethod(dense.makes)

    @staticmethod
    def unsupported(parameters: Mapping[str, Any]) -> str | None:
        return None if parameters["cell_weight"] is None else "the LSTM's C kernel has no cell_weight"

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h0, c0 = arguments.state
        h, c = (runtime.take(*x.shape[:2], h0.shape[-1]) for _ in range(2))
        saved = dense.saved(h, 4) if keep else None
        packed, inputs = native.pack(arguments.weight, gates=4), dense.inputs(x, arguments.parameters, gates=4)
        native.loop("lstm_forward", packed=packed, h0=h0, c0=c0, h=h, c=c, saved=saved, **inputs)
        return (h, c), (saved, inputs.get("u"))

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (_, c0), (_, c), (saved, u) = arguments.state, tape.states, tape.saved
        fields = dense.fields(tape, None, {}) | dense.sum_fields(tape, arguments, u)
        fields |= {"saved": saved, "c": c, "c0": c0, "dc0": torch.empty_like(c0)}
        native.loop("lstm_backward", packed=native.pack_transposed(arguments.weight), **fields)
        dweight, by_name = dense.weight_gradients(tape, arguments, fields)
        return Gradients(fields["dx"] if u is None else None, dweight, (fields["dh0"], fields["dc0"]), by_name)
