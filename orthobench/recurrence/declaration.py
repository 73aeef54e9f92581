"""The declaration of a recurrence: one step in PyTorch, its shapes, and the variants in which kernels are tested."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

State = tuple[Tensor, ...]
"""The state that a recurrence carries from step to step: h, or h and c, each `[B, n]`."""

Step = Callable[..., State]
"""A function of x_t `[B, gates * n]` and the state's tensors `[B, n]` that returns the next state."""


@dataclass(frozen=True)
class Form:
    """A choice of an operation's parameters for which its kernels are compared with the reference.

    Attributes:
        parameters: the parameters that are not vectors, by name.
        vectors: the lengths of the parameters that are vectors, by name.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    vectors: Mapping[str, int] = field(default_factory=dict)


class Declaration:
    """A recurrence s_t = step(x_t, s_{t-1}); n is the number of features of each tensor of its state.

    Attributes:
        name: the name of the function that returns the step.
        folder: the package that declares the operation. Its modules `cpu` and `cuda`, if any, contain its kernels.
        step: returns the step for a weight and the parameters.
        states: names of the state's tensors.
        gates: number of blocks of n features in x.
        rows: number of blocks of n rows in the weight.
        sources: number of blocks of n columns in the weight. With a parameter `heads` a block has n / heads columns.
        diagonal: whether the units are independent, so that the weight has numbers for each unit instead,
            `[rows * n]`. With one row it is the diagonal of a matrix, or one diagonal for each step and batch row,
            `[T, B, n]`. The step then takes `[rows * n]`, or one step's `[B, n]`.
        traced_states: the names of the states in a `GradientTrace`: "h" for the first, whatever the paper calls it.
            Only the first `traced` states are traced; a stabiliser, on which no output depends, has no gradient.
        check: returns the reason why n and the parameters do not fit, or None.
        widths: returns the number of features of x and of the weight, from n and the parameters, if they do not follow
            from the blocks. There is then one weight for each step and batch row, `[T, B, width]`, or a matrix that
            maps x_t to these weights, `[width, features of x]`.
        output: returns the output of a step `[B, outputs]` from x_t, the step's weight, the state and the parameters;
            if None, the output is the first state.
        forms: returns the variants to test at n features; if None, the folder's module `comparison` compares its
            kernels.
        kernels: the kernels by the names of their back ends; see `kernels.kernel`, which registers them.
    """

    def __init__(
        self,
        step: Callable[..., Step],
        states: tuple[str, ...],
        gates: int,
        rows: int,
        sources: int,
        diagonal: bool,
        traced: int | None,
        check: Callable[..., str | None],
        widths: Callable[..., tuple[int, int]] | None,
        output: Callable[..., Tensor] | None,
        forms: Callable[[int], Iterable[Form]] | None,
    ) -> None:
        self.name, self.folder, self.__doc__ = step.__name__, step.__module__, step.__doc__
        self.step, self.states, self.check = step, states, check
        self.gates, self.rows, self.sources, self.diagonal = gates, rows, sources, diagonal
        self.traced_states = ("h", *states[1:traced])
        self.widths, self.output, self.forms = widths, output, forms
        self.kernels: dict[str, Any] = {}
        self._signature = inspect.signature(step)

    def matrix_shape(self, n: int, parameters: Mapping[str, Any]) -> tuple[int, int]:
        """Return the shape of a weight that is a matrix for all steps, neither diagonal nor one per step."""
        return self.rows * n, self.sources * n // max(1, parameters.get("heads", 1))

    def bind(self, weight: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return every parameter by name, including defaults.

        Raises:
            TypeError: a parameter is missing or unknown.
        """
        bound = self._signature.bind(weight, *args, **kwargs)
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[1:])
