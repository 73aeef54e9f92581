"""The kernel of a recorded step: its weights and inputs, gathered from what the step reads, and the loops over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import kernels
from orthobench.recurrence.call import Call, Declaration, GradientTrace, Projection, Result
from orthobench.recurrence.compiler import build, cuda_text, text
from orthobench.recurrence.compiler.expressions import Term, UnfitError, ordered
from orthobench.recurrence.compiler.plan import VECTORS, Plan, plan
from orthobench.recurrence.compiler.trace import Rows, Step
from orthobench.recurrence.cpu import dense
from orthobench.recurrence.cpu.signatures import Phase
from orthobench.recurrence.cuda import dense as cuda_dense
from orthobench.recurrence.cuda import persistent
from orthobench.recurrence.operation import operation, resolved

_VECTORS = tuple(f"vector_{k}" for k in range(VECTORS))


class StepKernel:
    """The compiled form of a step.

    Args:
        step: the recorded step.
        device: the device of the tensors.

    Attributes:
        text: the cell in C, called CELL, or on a GPU in CUDA C++.

    Raises:
        UnfitError: the step cannot be compiled.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        planned = plan(step)
        self.units, self._planned = step.units, planned
        inputs = [term for node in planned.inputs for term in node.terms("input")]
        self._sources = list(dict.fromkeys(term.factor for term in inputs))
        self._products = [node for phase in planned.phases for node in phase.products]
        terms = [term for node in (*planned.inputs, *planned.vectors, *self._products) for term in node.args[0]]
        names = {term.name for term in terms if term.name} | {name for name, _, _ in self._sources}
        self._program = step.program.needed_for(names)
        self._operation = _declaration(len(planned.states), len(planned.inputs))
        written = _for_cuda(planned, step.units, device) if device.type == "cuda" else _for_cpu(planned)
        self.text, base, members = written
        members["vectors"] = _VECTORS[: len(planned.vectors)]
        self._kernel: type[kernels.Kernel] = type("CompiledKernel", (base,), members)

    @property
    def description(self) -> str:
        """What the compiler made of the step, in words."""
        products = " and then ".join(str(len(phase.products)) for phase in self._planned.phases)
        inputs, vectors = len(self._planned.inputs), len(self._planned.vectors)
        means = sum(node.op == "mean" for node in ordered(self._planned.roots))
        of_row = f"; means over the units: {means}" if means else ""
        return f"products with a state: {products}; inputs: {inputs}; vectors: {vectors}{of_row}"

    def run(
        self, arguments: Mapping[str, Tensor], x: Tensor, states: Sequence[Tensor], trace: GradientTrace | None = None
    ) -> Result:
        """Run all steps.

        Args:
            arguments: what the step reads, by name.
            x: the inputs `[T, B, m]`.
            states: the initial states `[B, n]`.
        """
        steps, batch, _ = x.shape
        values = self._program.run({**arguments, "x": x.flatten(0, 1)}, steps * batch)
        parts = [_columns(values, source) for source in self._sources]
        u = x if len(parts) == 1 and parts[0] is values["x"] else torch.cat(parts, dim=1).unflatten(0, (steps, batch))
        inputs = Projection(u, self._input_weight(values), self._input_bias(values))
        vectors = {
            name: self._vector(node.terms("vector"), values)
            for name, node in zip(_VECTORS, self._planned.vectors, strict=False)
        }
        given = inputs if self._kernel.makes(inputs, vectors) else resolved(inputs)
        call = Call(self._operation, given, self._weight(values, x), tuple(states), vectors, trace)
        return kernels.run(self._kernel, call)

    def _weight(self, values: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Return the matrices of all products, one above the other `[rows, n]`, or `[rows, 2n]` with two states."""
        if not self._products:
            return like.new_zeros(0, self.units)
        if not self._planned.reads_both:
            return self._joined([node.terms("product") for node in self._products], self.units, values, like)
        parts = []
        for number in range(2):
            blocks = [[t for t in node.terms("product") if t.factor.args[0] == number] for node in self._products]
            parts.append(self._joined(blocks, self.units, values, like))
        return torch.cat(parts, dim=1)

    def _input_weight(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return U `[inputs * n, columns of the sources]`."""
        parts = []
        for source in self._sources:
            blocks = [[t for t in node.terms("input") if t.factor == source] for node in self._planned.inputs]
            parts.append(self._joined(blocks, source[2], values, values[source[0]]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _input_bias(self, values: Mapping[str, Tensor]) -> Tensor | None:
        """Return the vectors that are added to the inputs `[inputs * n]`, or None without any."""
        terms = [node.terms("vector") for node in self._planned.inputs]
        if not any(terms):
            return None
        parts, like = [], next(iter(values.values()))
        for own, count in self._neighbours(terms):
            parts.append(self._vector(own, values, count) if own else like.new_zeros(self.units * count))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _vector(self, terms: Sequence[Term], values: Mapping[str, Tensor], count: int = 1) -> Tensor:
        """Return a sum of parts of vectors, `[count * n]`."""
        total, size = None, count * self.units
        for term in terms:
            value = values[term.name or ""].to(torch.float32).reshape(-1)  # a mask, or whole numbers
            total = _plus(total, term.sign, value if term.column < 0 else value[term.column : term.column + size])
        assert total is not None
        return total.expand(size)

    def _neighbours(self, parts: Sequence[list[Term]]) -> Iterator[tuple[list[Term], int]]:
        """Yield the terms of blocks, and how many blocks from there are the next columns of the same tensors."""
        at = 0
        while at < len(parts):
            own, count = parts[at], 1
            while own and all(term.name and term.column >= 0 for term in own) and at + count < len(parts):
                if parts[at + count] != [term._replace(column=term.column + count * self.units) for term in own]:
                    break
                count += 1
            yield own, count
            at += count

    def _joined(self, blocks: Sequence[list[Term]], width: int, values: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Return sums of transposed blocks `[n, width]`, one above the other; neighbours are cut at once."""
        n, parts = self.units, []
        for own, count in self._neighbours(blocks):
            total = None
            for term in own:
                if term.name:
                    columns = slice(term.column, term.column + count * n)
                    block = values[term.name][term.row : term.row + width, columns].t()
                else:  # rows that are added as they are, to each unit its own or one to all
                    block = torch.eye(n, dtype=like.dtype, device=like.device) if width == n else like.new_ones(n, 1)
                total = _plus(total, term.sign, block)
            parts.append(like.new_zeros(count * n, width) if total is None else total)
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _for_cpu(planned: Plan) -> tuple[str, type[kernels.Kernel], dict[str, Any]]:
    """Return the text of a cell, and the class that its kernel derives from with the members of the kernel.

    Raises:
        UnfitError: it cannot be compiled.
    """
    written = '#include "compiled.h"\n\n' + text.written(planned, "CELL")
    members = {"name": build.load(written), "sums_in_loop": not planned.reads_both, "makes": staticmethod(dense.makes)}
    return written, dense.DenseKernel, members


def _for_cuda(planned: Plan, units: int, device: torch.device) -> tuple[str, type[kernels.Kernel], dict[str, Any]]:
    """Return the same of a cell for a GPU; NVRTC compiles it for each division of a batch."""
    written = cuda_text.HEAD + cuda_text.written(planned, "Own")
    cells = persistent.Cells.of(written, "Own")
    if reason := persistent.problem(device) or persistent.misfit(cells, units, 1, 1, device):
        raise UnfitError(reason)
    phases = [Phase(each.reads, len(each.products), len(each.inputs), len(each.own), 0, 0) for each in planned.phases]
    members = {"cells": staticmethod(lambda parameters: cells), "phases": staticmethod(lambda parameters: phases)}
    return written, cuda_dense.DenseKernel, {**members, "states": len(planned.states)}


def _plus(total: Tensor | None, sign: int, value: Tensor) -> Tensor:
    """Return a sum with one more term, which is subtracted with the sign -1."""
    if total is None:
        return value if sign > 0 else -value
    return total + value if sign > 0 else total - value


def _columns(values: Mapping[str, Tensor], rows: Rows) -> Tensor:
    name, first, width = rows
    value = values[name].to(torch.float32)
    return value if width == value.shape[1] else value[:, first : first + width]


def _declaration(states: int, inputs: int) -> Declaration:
    def compiled_cell(weight: Tensor) -> Any:
        raise NotImplementedError("the cell itself is the reference of its kernel")

    return operation(("h", "c")[:states], gates=inputs, traced=1, forms=None)(compiled_cell)
