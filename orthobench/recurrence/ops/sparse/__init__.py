"""The recurrence whose matrix is a product of sparse layers, such as rotations of pairs of units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from orthobench.recurrence.call import TANH, Activation, Form, Kind, State, Step
from orthobench.recurrence.operation import operation
from orthobench.recurrence.ops.plain import check_activation


@dataclass(frozen=True, eq=False)
class SparseLayers:
    """The places of the numbers in a product of sparse layers, W = L_K ... L_1.

    A layer maps units h to y_i = sum_j w_ji h_(index_ji). It reads every unit equally often, so that its transpose has
    as many taps j.

    Attributes:
        index: the index of each layer, integers `[taps, units]`, in the order in which the layers act.
        is_complex: whether the units and the numbers w are complex. A state then has two features for each unit.
    """

    index: tuple[Tensor, ...]
    is_complex: bool = False

    def __post_init__(self) -> None:
        units = self.index[0].shape[1]
        for each in self.index:
            if each.shape[1] != units or (each.flatten().bincount(minlength=units) != len(each)).any():
                raise ValueError("a sparse layer should read each unit as often as it has taps")

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the weight: the numbers of the taps of all layers, two for each tap of a complex unit."""
        return sum(map(len, self.index)), self.index[0].shape[1] * (2 if self.is_complex else 1)

    def apply(self, weight: Tensor, rows: Tensor) -> Tensor:
        """Return h W^T for rows h `[B, n]`."""
        if not self.is_complex:
            return self._apply(weight, rows)
        result = self._apply(_complex(weight), _complex(rows))
        return torch.view_as_real(result).flatten(-2)

    def _apply(self, weight: Tensor, rows: Tensor) -> Tensor:
        for index, numbers in zip(self.index, weight.split([*map(len, self.index)]), strict=True):
            rows = (numbers * rows[:, index.to(rows.device)]).sum(1)
        return rows


def _complex(features: Tensor) -> Tensor:
    # Not `view_as_complex`, because a state may begin at an odd place of its storage.
    return torch.complex(features[..., ::2], features[..., 1::2])


def _check_layers(n: int, layers: SparseLayers, activation: Activation, bias: Tensor | None) -> str | None:
    if n != layers.shape[1]:
        return f"the layers are for a state of {layers.shape[1]} features, not {n}"
    return check_activation(n, activation, bias)


def _forms(n: int) -> Iterator[Form]:
    for is_complex in (False, True):
        units = n // 2 if is_complex else n
        order = torch.arange(units)
        pairs, waves = torch.stack((order, order.flip(0))), torch.stack([order.roll(s) for s in (-1, 0, 7, 3, 5)])
        for kind in Kind:
            activation = Activation(kind, epsilon=0.01)
            index = (pairs, waves) if activation.is_complex or kind is Kind.TANH else (waves,)
            for vectors in ({}, {"bias": activation.bias_size(n)}):
                yield Form({"layers": SparseLayers(index, is_complex), "activation": activation}, vectors)


@operation(check=_check_layers, shape=lambda n, layers, **_: layers.shape, forms=_forms)
def sparse_recurrence(
    weight: Tensor, layers: SparseLayers, activation: Activation = TANH, bias: Tensor | None = None
) -> Step:
    """h_t = act(x_t + W h_{t-1}; b) with W = L_K ... L_1, a product of sparse layers.

    The weight has the numbers of the layers one above the other, `[taps of all layers, n]`; those of complex units are
    pairs of columns. `bias` is the activation's vector b, `[activation.bias_size(n)]`.
    """

    def step(x: Tensor, h: Tensor) -> State:
        return (activation(x + layers.apply(weight, h), bias),)

    return step
