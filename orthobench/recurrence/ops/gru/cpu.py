"""The C kernel of `gru`: calls of `gru.c`, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.call import Activation
from orthobench.recurrence.cpu import dense, native
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.gru import gru


@kernel(gru, "cpu")
class GRU(Kernel):
    makes = staticmethod(dense.makes)

    @staticmethod
    def settings(parameters: Mapping[str, Any]) -> dense.Settings:
        activation: Activation = parameters["activation"]
        return {
            "kind": dense.KINDS[activation.kind],
            "epsilon": activation.epsilon,
            "reset_after": parameters["reset_after"],
        }

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        weight, (h0,), parameters = arguments.weight, arguments.state, arguments.parameters
        n = h0.shape[-1]
        h = runtime.take(*x.shape[:2], n)
        saved = dense.saved(h, 4 if parameters["reset_after"] else 3) if keep else None
        inputs = dense.inputs(x, parameters, gates=2, more=1)
        native.loop(
            "gru_forward",
            GRU.settings(parameters),
            **{"h0": h0, "h": h, "saved": saved, **inputs},
            **{"candidate_bias": parameters["candidate_bias"], "bias": parameters["activation_bias"]},
            packed=native.pack(weight[: 2 * n], gates=2),
            packed_candidate=native.pack(weight[2 * n :]),
        )
        return (h,), (saved, inputs.get("u"))

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (h,), parameters = arguments.weight, arguments.state, tape.states, arguments.parameters
        saved, u = tape.saved
        n, reset_after = h0.shape[-1], parameters["reset_after"]
        fields = dense.fields(tape, None, GRU.settings(parameters))
        # With r after the product, the sums during the loop also include dL/d(W_g h + b).
        fields |= dense.sum_fields(tape, arguments, u, (4 if reset_after else 3) * n)
        fields |= {"saved": saved, "h0": h0}
        if "dweights" not in fields:  # then the backward loop keeps one more factor of dL/dW
            fields["dmixed"] = runtime.take(*h.shape)
        vectors = {"candidate_bias": "dcandidate_bias", "activation_bias": "dbias"}
        vectors = {name: sums for name, sums in vectors.items() if parameters[name] is not None}
        fields |= {sums: dense.row_sums(h0) for sums in vectors.values()}
        native.loop(
            "gru_backward",
            packed=native.pack_transposed(weight[: 2 * n]),
            packed_candidate=native.pack_transposed(weight[2 * n :]),
            **fields,
        )
        dweight, by_name = dense.named(tape, arguments, *GRU.sums(tape, arguments, fields))
        by_name |= {name: dense.total(fields[sums], h0) for name, sums in vectors.items()}
        return Gradients(fields["dx"] if u is None else None, dweight, (fields["dh0"],), by_name)

    @staticmethod
    def sums(tape: Tape, arguments: Arguments, fields: Mapping[str, Any]) -> tuple[Tensor | None, Tensor | None]:
        """Return the sums of dL/dW and of dL/d[U, b]."""
        (h0,), h, u = arguments.state, fields["h"], fields.get("u")
        n, reset_after = h0.shape[-1], arguments.parameters["reset_after"]
        if "dweights" in fields:
            sums = native.joined_sums(fields["dweights"])
            return torch.cat((sums[: 2 * n], sums[-n:])), sums[: 3 * n, n:]
        if not tape.needs_weight and u is None:
            return None, None
        gates, candidate = fields["dx"][..., : 2 * n], fields["dx"][..., 2 * n :]
        sums = dense.outer_sums(gates, h, h0, u)
        if not reset_after:
            sums = torch.cat((sums, dense.outer_sums(candidate, fields["dmixed"], None, u)))
            return sums, sums[:, n:]
        dweight = torch.cat((sums[:, :n], dense.outer_sums(fields["dmixed"], h, h0)[:, :n]))
        if u is None:
            return dweight, None
        m = u.shape[-1]
        return dweight, torch.cat((sums[:, n : n + m], dense.outer_sums(candidate, u, None)[:, :m]))
