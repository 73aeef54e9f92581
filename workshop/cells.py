"""Write the dense cells of the operations from their steps, in C and in CUDA C++: `make cells`.

setup.py compiles the texts in `orthobench/recurrence/cpu/generated`, and NVRTC those in `cuda/generated` next to it, so
neither an installation nor a run derives them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import kernels
from orthobench.recurrence.call import Activation, Declaration
from orthobench.recurrence.compiler import cuda_text, text
from orthobench.recurrence.compiler.expressions import Node, Term, UnfitError, replaced, total
from orthobench.recurrence.compiler.plan import Plan, plan
from orthobench.recurrence.compiler.trace import Step, batch_size, record
from orthobench.recurrence.cpu import dense
from orthobench.recurrence.cuda import dense as cuda_dense
from orthobench.recurrence.ops import operations

FOLDERS = {".c": Path(dense.__file__).parent / "generated", ".cuh": cuda_dense.FOLDER}
_HEAD = "/* The cells of the operation {}, written by `make cells` from its step. */\n"
_LETTERS = "abc"
"""The names of the driver's numbers."""
_UNITS = 12
"""Of the recorded step; any number will do."""


def texts(refused: dict[str, str]) -> dict[str, str]:
    """Return the content of each file by its name, for the operations of this checkout.

    Args:
        refused: receives why a cell has no text, by its name.
    """
    result = {}
    for operation in operations():
        kernel = kernels.find(operation, "cpu")
        is_derived = kernel is None or issubclass(kernel, dense.OperationKernel)
        cells: dict[str, tuple[str, str]] = {}
        for form in operation.forms(_UNITS) if operation.forms is not None and is_derived else ():
            parameters = operation.bind(None, **form.parameters)
            name = dense.cell_name(operation, parameters)
            try:
                plan_ = planned(operation, parameters)
                struct = cuda_dense.struct_name(name)
                cells[name] = text.written(plan_, name), cuda_text.written(plan_, struct)
            except UnfitError as error:
                refused[name] = str(error)
        for at, (suffix, head) in enumerate(zip(FOLDERS, (text.HEAD, cuda_text.HEAD), strict=True)):
            if cells:
                parts = [_HEAD.format(operation.name) + head, *(own[at] for own in cells.values())]
                result[operation.name + suffix] = "\n".join(parts)
    return result


def planned(operation: Declaration, parameters: Mapping[str, Any]) -> Plan:
    """Return the plan of an operation's step.

    Args:
        parameters: those that are not tensors have the values of a form.

    Raises:
        UnfitError: the driver cannot run it.
    """
    n, vectors, numbers = _UNITS, dense.vectors(operation), dense.numbers(operation)
    if len(numbers) > len(_LETTERS):
        raise UnfitError(f"{len(numbers)} numbers, and the loops take {len(_LETTERS)}")
    rows, columns, width = operation.rows * n, operation.sources * n, operation.gates * n
    batch = batch_size([(rows, columns, width)])
    weight, x = torch.randn(rows, columns), torch.randn(batch, width)
    # Vectors and numbers are given as states are, because they, too, are numbers of a unit.
    states = [Node("state", k) for k in range(len(operation.states))]
    own = {name: Node("vector", (Term("vector", 1, None, name, 0, 0),)) for name in vectors}
    leaves = [*states, *own.values(), *(Node("constant", letter) for letter in _LETTERS[: len(numbers)])]
    given = [torch.randn(batch, n) for _ in leaves]
    named = dict(zip((*vectors, *numbers), given[len(states) :], strict=True))
    chosen = {name: named[name] for name in vectors} | {
        name: _with(parameters[name], named[name]) for name in numbers if parameters[name] is not None
    }

    def step() -> tuple[Tensor, ...]:
        return operation.step(weight, **{**parameters, **chosen})(x, *given[: len(states)])

    recorded = record(step, {"weight": weight}, x, given)
    result = plan(replace(recorded, states=_placed(recorded, leaves, weight.shape, x.shape)), in_order=True)
    for phase in result.phases:
        for node in phase.products:
            if len(node.args[0]) != (columns // n if node in phase.own else columns // n + 1):
                raise UnfitError("a product of several blocks of the weight")
    blocks = [node.args[0][0].column for phase in result.phases for node in phase.products]
    inputs = [term.factor[1] for node in result.inputs for term in node.terms("input")]
    if blocks != [*range(0, rows, n)] or inputs != [*range(0, width, n)]:
        raise UnfitError("the blocks of the weight or of the inputs are not in the order of the phases")
    result.vectors = [*own.values()]
    return result


def _with(value: Any, given: Tensor) -> Any:
    """Return a number, or an activation with its number, as the tensor that stands for it."""
    if not isinstance(value, Activation):
        return given
    if value.is_complex:
        raise UnfitError("an activation of pairs of columns")
    number: dict[str, Any] = {value.number: given}
    return replace(value, **number)


def _placed(recorded: Step, leaves: Sequence[Node], weight: Sequence[int], x: Sequence[int]) -> list[Node]:
    """Return the next states with the blocks of the weight and of the inputs that their terms are.

    A run of the program on numbered tensors shows them, whatever way the step cuts them.
    """
    n = recorded.units
    numbered = torch.arange(weight[0] * weight[1], dtype=torch.float32).view(*weight)
    columns = torch.arange(x[1], dtype=torch.float32).expand(*x)
    values = recorded.program.run({"weight": numbered, "x": columns}, x[0])

    def block(term: Term) -> Term:
        if term.kind == "input" and term.name is None and term.sign > 0:
            name, first, _ = term.factor
            part = values[name][:, first : first + n]
            at = int(part[0, 0])
            if torch.equal(part, columns[:, at : at + n]):
                return term._replace(factor=("x", at, n))
        if term.kind == "product" and term.sign > 0:
            part = values[term.name or ""][term.row : term.row + n, term.column : term.column + n].t()
            row, column = divmod(int(part[0, 0]), weight[1])
            source = term.factor.args[0] if term.factor.op == "state" and weight[1] > n else 0
            if column == source * n and torch.equal(part, numbered[row : row + n, column : column + n]):
                (factor,) = replaced([term.factor], leaf)
                return term._replace(factor=factor, name="weight", row=column, column=row)
        raise UnfitError("the step computes something from the weight or the inputs before it multiplies")

    def leaf(node: Node) -> Node | None:
        if node.op == "state":
            return leaves[node.args[0]]
        return total(*map(block, node.args[0])) if node.op == "sum" else None

    return replaced(recorded.states, leaf)


if __name__ == "__main__":
    reasons: dict[str, str] = {}
    files = texts(reasons)
    for suffix, folder in FOLDERS.items():
        for file in folder.glob(f"*{suffix}"):
            file.unlink()
    for file_name, content in files.items():
        (FOLDERS[Path(file_name).suffix] / file_name).write_text(content, "utf-8")
    for cell, reason in reasons.items():
        print(f"{cell} has no text: {reason}", file=sys.stderr)
