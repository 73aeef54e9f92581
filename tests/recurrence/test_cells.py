"""The texts of built-in dense cells: those of the steps, and what the kernel of a new operation computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from orthobench.recurrence import kernel_case, kernels, reference
from orthobench.recurrence.call import RELU, Activation, Form, Kind, State, Step
from orthobench.recurrence.compiler import build, text
from orthobench.recurrence.compiler.expressions import UnfitError
from orthobench.recurrence.cpu import call_c, dense
from orthobench.recurrence.operation import Operation, operation
from workshop import cells


def test_files_are_those_of_the_steps() -> None:
    refused: dict[str, str] = {}
    files = [file for suffix, folder in cells.FOLDERS.items() for file in folder.glob(f"*{suffix}")]
    assert {file.name: file.read_text("utf-8") for file in files} == cells.texts(refused), (
        "run `make cells` and `make kernels`"
    )
    assert not refused


@operation(
    states=("h", "c"),
    gates=3,
    rows=2,
    forms=lambda n: [Form({"activation": Activation(Kind.LEAKY_RELU), "rate": 0.3}, {"bias": n, "decay": n})],
)
def unheard_of(
    weight: Tensor,
    decay: Tensor | None,
    activation: Activation,
    rate: float,
    is_slow: bool = False,
    bias: Tensor | None = None,
    gain: float | None = None,
) -> Step:
    def step(x: Tensor, h: Tensor, c: Tensor) -> State:
        gate, mixed = torch.addmm(x[:, : x.shape[1] // 3 * 2], h, weight.T).chunk(2, dim=-1)
        c = gate.sigmoid() * c + rate * activation(mixed, bias) * x.chunk(3, dim=-1)[2]
        return c.tanh() * (1 if decay is None else decay), c

    return step


def kernel_of(declared: Operation[...], parameters: dict[str, Any]) -> type[dense.OperationKernel]:
    """Compile the cell of an operation as users' cells are, because it is not in the library."""
    members = {"operation": declared, "vectors": dense.vectors(declared)}
    template = '#include "compiled.h"\n' + text.written(cells.planned(declared, parameters), "CELL")
    name = build.load(template)
    own = classmethod(lambda cls, parameters: name)
    return type("Made", (dense.OperationKernel,), {**members, "cell": own, "functions": own})


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
def test_kernel_of_a_new_operation_follows_from_its_step() -> None:
    """Its numbers and vectors are in another order than its step reads them."""
    parameters = {"activation": Activation(Kind.LEAKY_RELU, slope=0.4), "rate": 0.7}
    vectors = {"decay": torch.zeros(20), "bias": torch.zeros(20)}
    made = kernel_of(unheard_of, unheard_of.bind(None, **parameters, **vectors))
    problem = kernel_case.problem(unheard_of, {**parameters, **vectors}, 20, 3, 7)
    names = list(vectors)

    def run(call: Any) -> Any:
        return kernels.run(made, call)

    actual = kernel_case.evaluate(run, unheard_of, parameters, names, problem, torch.float32)
    expected = kernel_case.evaluate(reference.run, unheard_of, parameters, names, problem, torch.float64)
    for name, value in expected.items():
        assert kernel_case.distance(actual[name], value) < 1e-6, name


def test_name_of_a_cell_has_what_its_parameters_choose() -> None:
    chosen = unheard_of.bind(None, decay=None, activation=RELU, rate=0.5)
    assert dense.cell_name(unheard_of, chosen) == "unheard_of_relu"
    assert dense.cell_name(unheard_of, chosen | {"is_slow": True, "gain": 0.0}) == "unheard_of_relu_is_slow_gain"
    assert dense.numbers(unheard_of) == ("activation", "rate", "gain")
    assert dense.vectors(unheard_of) == ("decay", "bias")


@operation()
def doubled(weight: Tensor) -> Step:
    return lambda x, h: ((x + h @ (2 * weight).T).tanh(),)


@operation(gates=2)
def swapped(weight: Tensor) -> Step:
    n = weight.shape[1]
    return lambda x, h: ((x[:, :n] + h @ weight[n:].T).tanh() * (x[:, n:] + h @ weight[:n].T).sigmoid(),)


@operation(sources=2)
def summed(weight: Tensor) -> Step:
    n = weight.shape[0]
    return lambda x, h: ((x + h @ weight[:, :n].T + h @ weight[:, n:].T).tanh(),)


@pytest.mark.parametrize(
    ("declared", "reason"),
    [(doubled, "before it multiplies"), (swapped, "not in the order"), (summed, "before it multiplies")],
)
def test_step_whose_blocks_are_not_those_of_its_weight_has_no_cell(declared: Operation[...], reason: str) -> None:
    with pytest.raises(UnfitError, match=reason):
        cells.planned(declared, {})


def test_operation_of_another_program_does_not_get_the_kernel_of_its_namesake() -> None:
    @operation(gates=4)
    def lstm(weight: Tensor) -> Step:
        return lambda x, h: (x[:, : h.shape[1]] + h,)

    assert kernels.find(lstm, "cpu") is None
