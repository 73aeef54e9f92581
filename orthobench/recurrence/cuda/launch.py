"""Code shared by the CUDA back end's autograd functions: choice of kernel and tile, launches, weight gradients."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.kernels import Kernel, Tape

MAX_ROW_FEATURES = 256
REGISTER_FILE, MAX_REGISTERS = 65536, 255  # per multiprocessor, and per thread
_FUSED = {"enable_fp_fusion": True}  # without it newer Tritons do not fuse multiply-adds


@dataclass(frozen=True)
class RowPlan:
    """How a row kernel holds n features: in one tile of `size`, or in 3 x 3 tiles of 64."""

    size: int
    three: bool
    warps: int

    def constants(self) -> dict[str, int]:
        # Without the limit, ptxas may use 40 registers and spill all of W if W does not fit anyway.
        registers = min(MAX_REGISTERS, REGISTER_FILE // (32 * self.warps))
        options = {"num_warps": self.warps, "num_stages": 1, "maxnreg": registers, **_FUSED}
        return {"N": self.size, "THREE": self.three, **options}


@dataclass(frozen=True)
class StepPlan:
    """Tile of a step kernel: rows, columns, depth of a slice of the product."""

    rows: int
    columns: int
    depth: int = 64
    warps: int = 4
    stages: int = 3

    def constants(self) -> dict[str, int]:
        tile = {"BM": self.rows, "BN": self.columns, "BK": self.depth}
        return {**tile, "num_warps": self.warps, "num_stages": self.stages, **_FUSED}


def row_plan(features: int) -> RowPlan | None:
    """Choose the row kernel for this many features, if there is one.

    It uses as few warps as the registers allow, because a thread then owns a whole column of W and the sum needs no
    exchange. With Triton 3.6 and 3.8, all of these but the last compile for sm_90 without a spill.
    """
    if features > MAX_ROW_FEATURES:
        return None
    if features <= 64:
        return RowPlan(64, False, warps=2)
    if features <= 128:
        return RowPlan(128, False, warps=4)
    if features <= 192:
        return RowPlan(256, True, warps=8)
    return RowPlan(256, False, warps=8)


def step_plan(batch: int, columns: int, processors: int, gates: int = 1) -> StepPlan:
    """Choose the smallest tile whose grid runs in one wave, because a step is bound by latency, not by throughput."""
    tiles = ((16, 32), (32, 32), (32, 64), (64, 64)) if gates == 1 else ((16, 64), (32, 64), (64, 64))
    for rows, width in tiles:
        if -(-batch // rows) * -(-columns * gates // width) <= processors:
            return StepPlan(rows, width)
    return StepPlan(*tiles[-1])


class TestedKernel(Kernel):
    """A kernel that is compiled for the device, and tested before its first use."""

    @staticmethod
    def problem(parameters: Mapping[str, Any], n: int, batch: int, steps: int) -> list[Tensor] | None:
        """Return the tensors of the self-test in float64: x, the weight, the state and the parameters that are tensors.

        None stands for those of an operation with a matrix and vectors, `kernel_case.problem`.
        """
        return None


class TritonKernel(TestedKernel):
    """A kernel that needs Triton."""


@functools.cache
def kernels() -> Any:
    """Import the kernels' modules, and with them Triton."""
    from orthobench.recurrence.cuda import triton_one_hot, triton_row, triton_step

    return SimpleNamespace(row=triton_row, step=triton_step, one_hot=triton_one_hot)


@functools.cache
def triton_problem() -> str | None:
    """Return why Triton cannot launch kernels here, or None.

    Its driver is compiled with the machine's C compiler, when it is first used.
    """
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    try:
        importlib.import_module("triton.runtime").driver.active.get_current_target()
    except Exception as error:  # of the compiler, the linker, the loader or CUDA
        return f"Triton's driver does not start: {_first_line(error)}; it needs a C compiler and Python's headers"
    return None


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def processors(device: torch.device) -> int:
    """Return the number of multiprocessors, which is an H100's if Triton's interpreter replaces the device."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132


def step_launch(name: str, like: Tensor, batch: int, n: int, gates: int = 1) -> tuple[Any, dict[str, Any]]:
    """Return a step kernel on its grid, and its compile-time constants; `like` is a tensor through time."""
    plan = step_plan(batch, n, processors(like.device), gates)
    grid = (-(-batch // plan.rows), -(-n * gates // plan.columns))
    return getattr(kernels().step, name)[grid], {"n": n, **plan.constants()}


def loss_gradient(tape: Tape) -> tuple[bool, Tensor]:
    """Return whether the loss uses only the last step of the first state, and its gradient `[B, n]` or `[T, B, n]`."""
    return (True, tape.last()) if tape.gradient is None else (False, tape.gradient)


def weight_gradient(d_mixed: Tensor, states: Tensor, h0: Tensor) -> Tensor:
    """dL/dW = sum_t d_mixed_t^T h_{t-1}, from `[T, B, k]`, `[T, B, n]` and `[B, n]`."""
    batch, d_rows, rows = h0.shape[0], d_mixed.flatten(0, 1), states.flatten(0, 1)
    gradient = torch.mm(d_rows.narrow(0, 0, batch).t(), h0)
    if (others := rows.shape[0] - batch) > 0:  # `narrow` costs the host less than a slice
        torch.addmm(gradient, d_rows.narrow(0, batch, others).t(), rows.narrow(0, 0, others), out=gradient)
    return gradient


def record(norms: Tensor | None, total: Tensor) -> None:
    """Fill norms `[T, B]`, if any, from the total derivatives `[T, B, n]`."""
    if norms is not None:
        torch.linalg.vector_norm(total, dim=-1, out=norms)
