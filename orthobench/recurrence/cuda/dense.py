"""The CUDA kernels of dense cells whose structs are derived from a step, as their C for the CPU is."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from orthobench.recurrence import kernels
from orthobench.recurrence.call import Declaration
from orthobench.recurrence.cpu import dense, signatures
from orthobench.recurrence.cpu.signatures import Phase
from orthobench.recurrence.cuda import launch, plans
from orthobench.recurrence.cuda.persistent import Cells, PersistentKernel
from orthobench.recurrence.kernels import Arguments, kernel

FOLDER = plans.CODE / "cuda" / "generated"


class DenseKernel(PersistentKernel):
    """The kernel of a derived cell."""

    @classmethod
    def phases(cls, parameters: Mapping[str, Any]) -> Sequence[Phase]:
        """Return the phases of the cell."""
        raise NotImplementedError

    @classmethod
    def weight_gradient(cls, dx: Tensor, more: Tensor | None, h: Tensor, arguments: Arguments, saved: Tensor) -> Tensor:
        """Return dL/dW; `compiler/cuda_text.py` says what the tensors hold."""
        n, first, own, rows = h.shape[-1], 0, 0, []
        for phase in cls.phases(arguments.parameters):
            parts = [] if more is None else [more[..., own * n : (own + phase.own) * n]]
            for part in (*parts, dx[..., first * n : (first + phase.shared) * n]):
                if phase.reads == "BOTH_BEFORE":
                    sources = zip((h, saved[..., -n:]), arguments.state, strict=True)
                    rows.append(torch.cat([launch.weight_gradient(part, *each) for each in sources], dim=1))
                elif phase.reads == "BEFORE":
                    rows.append(launch.weight_gradient(part, h, arguments.state[0]))
                else:
                    now = saved if phase.reads == "SECOND_NOW" else more
                    assert now is not None
                    rows.append(part.flatten(0, 1).T @ now[..., -n:].flatten(0, 1))
            first, own = first + phase.inputs, own + phase.own
        return torch.cat(rows)


class OperationKernel(DenseKernel):
    """The kernel of an operation's dense cells.

    Attributes:
        on_cpu: the kernel that has the same cells on the CPU.
    """

    on_cpu: ClassVar[type[dense.OperationKernel]]

    @classmethod
    def cells(cls, parameters: Mapping[str, Any]) -> Cells:
        return _cells(cls.on_cpu.operation.name, cls.on_cpu.cell(parameters), cls.on_cpu.constants(parameters))

    @classmethod
    def phases(cls, parameters: Mapping[str, Any]) -> Sequence[Phase]:
        return signatures.phases(cls.on_cpu.cell(parameters))


@functools.cache
def _cells(operation: str, cell: str, constants: tuple[float, ...]) -> Cells:
    return Cells.of(f"cuda/generated/{operation}.cuh", struct_name(cell), constants)


def struct_name(cell: str) -> str:
    """Return the name with which the structs of a cell begin: LstmForward and LstmBackward are those of lstm."""
    return cell.title().replace("_", "")


def register(operation: Declaration) -> None:
    """Register the kernel of an operation if its cells have structs; one in Triton runs what does not fit."""
    on_cpu = kernels.find(operation, "cpu")
    if on_cpu is not None and issubclass(on_cpu, dense.OperationKernel) and (FOLDER / f"{operation.name}.cuh").exists():
        members = {"on_cpu": on_cpu, "vectors": on_cpu.vectors, "states": len(operation.states)}
        members |= {"unsupported": on_cpu.unsupported, "other": kernels.find(operation, "triton")}
        kernel(operation, "cuda")(type(operation.name, (OperationKernel,), members))
