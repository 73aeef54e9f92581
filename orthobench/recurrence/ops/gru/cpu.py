"""The C kernel of `gru`: the cells of `gru.c`, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orthobench.recurrence.call import Kind
from orthobench.recurrence.cpu import dense
from orthobench.recurrence.kernels import kernel
from orthobench.recurrence.ops.gru import gru


@kernel(gru, "cpu")
class GRU(dense.DenseKernel):
    name = "gru"
    vectors = ("activation_bias", "candidate_bias")
    makes = staticmethod(dense.makes)

    @classmethod
    def cell(cls, parameters: Mapping[str, Any]) -> str:
        return "gru_after" if parameters["reset_after"] else "gru_before"

    @classmethod
    def constants(cls, parameters: Mapping[str, Any]) -> tuple[float, ...]:
        return 0.0, parameters["activation"].epsilon

    @classmethod
    def variant(cls, parameters: Mapping[str, Any]) -> int:
        return 2 * bool(parameters["reset_after"]) + (parameters["activation"].kind is Kind.MODRELU)
