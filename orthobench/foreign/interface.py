"""How a layer is called.

| interface | call |
| --- | --- |
| `cell` | `state = layer(x, state)` or `output, state = layer(x, state)` for a step `[batch, features]` |
| `rnn` | `outputs, state = layer(x, state)` for sequences, as `torch.nn.RNN` |
| `sequence` | `outputs = layer(x)` for sequences |

Sequences are `[time, batch, features]` or `[batch, time, features]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from orthobench.foreign.constructor import ADAPTER


class Unfit(Exception):
    """A layer does not work as a model; the message is one line and says what is missing."""


LayerValue = Any
"""What a layer takes and returns: a tensor, or tuples of tensors."""


def tensors_of(value: LayerValue) -> list[Tensor]:
    """Return the tensors of a value in order."""
    return [each for each in tree_leaves(value) if isinstance(each, Tensor)]


@dataclass(frozen=True)
class Way:
    """How a layer is called.

    Attributes:
        interface: "cell", "rnn" or "sequence".
        batch_first: whether sequences are `[batch, time, features]`, else `[time, batch, features]`.
        needs_state: whether the first call has a state, too: zeros for a cell, and None for sequences.
        is_pair: whether the state of a cell is all that it returns, as in `torch.nn.LSTMCell`, or a tuple after the
            output; else a tensor after the output. It starts with two tensors `[batch, units]`, or with one.
    """

    interface: str
    batch_first: bool = False
    needs_state: bool = False
    is_pair: bool = False

    @property
    def is_cell(self) -> bool:
        return self.interface == "cell"

    def call(self, layer: nn.Module, x: Tensor, state: LayerValue, units: int) -> tuple[Tensor, LayerValue]:
        """Run a layer over x `[T, B, m]` from a state, or from its start if this is None.

        Returns:
            The outputs `[T, B, features]`, and the state that continues the sequence, or else None.
        """
        if self.is_cell:
            steps = []
            for each in x.unbind(0):
                output, state = self.step(layer, each, state, units)
                steps.append(output)
            return torch.stack(steps), state
        x = x.transpose(0, 1) if self.batch_first else x
        output, state = self._split(layer(x, *self._given(x, state, units)), x)
        return (output.transpose(0, 1) if self.batch_first else output), state

    def step(self, layer: nn.Module, x: Tensor, state: LayerValue, units: int) -> tuple[Tensor, LayerValue]:
        """Run a cell for a step x `[B, m]`; see `call`."""
        return self._split(layer(x, *self._given(x, state, units)), x)

    def _given(self, x: Tensor, state: LayerValue, units: int) -> tuple[LayerValue, ...]:
        """Return the arguments of a call other than the inputs."""
        if state is not None:
            return (state,)
        if not self.needs_state:
            return ()
        if not self.is_cell:
            return (None,)
        zeros = x.new_zeros(x.shape[0], units)
        return ((zeros, zeros.clone()),) if self.is_pair else (zeros,)

    def _split(self, value: LayerValue, x: Tensor) -> tuple[Tensor, LayerValue]:
        """Return the outputs in what the layer returns for x, and the part of it that continues the sequence.

        Raises:
            Unfit: no tensor has the shape of outputs.
        """
        value = tuple(value.values()) if isinstance(value, Mapping) else value
        output = next((each for each in tensors_of(value) if each.shape[:-1] == x.shape[:-1]), None)
        if output is None:
            shapes = ", ".join(str(list(each.shape)) for each in tensors_of(value)) or type(value).__name__
            raise Unfit(
                f"returns {shapes} for {'a step' if self.is_cell else 'sequences'} {list(x.shape)}, and nothing of "
                f"shape {[*x.shape[:-1], 'features']}; {ADAPTER}"
            )
        if isinstance(value, Tensor):
            return output, value if self.is_cell else None
        second = value[1] if self.interface != "sequence" and len(value) > 1 else None
        return output, value if self.is_pair and not isinstance(second, (tuple, list)) else second

    def in_words(self, x: Tensor, units: int) -> str:
        """Say with what the first call for x `[T, B, m]` is."""
        state = f"a state{' of two tensors' if self.is_pair else ''} {[x.shape[1], units]}"
        more = f" and {state if self.is_cell else 'the state None'}" if self.needs_state else ""
        return f"for inputs {list(x.shape[1:] if self.is_cell else x.shape)}{more}"


@dataclass(frozen=True)
class Interface:
    """What the trials of a layer have found.

    Attributes:
        features: the number of outputs at two hidden sizes.
        has_width: whether the layer needs as many inputs as it has units.
        device: where the layer was tried: on the CPU, unless it runs only on a GPU.
        axes: the batch axis of each tensor of the state that continues a sequence; empty if there is none.
        from_zero: whether a state of zeros is the start of a sequence.
        traced: the tensor of the state that has the outputs of the last step, and which of its blocks of this
            width; None if there is none.
    """

    way: Way
    features: tuple[tuple[int, int], ...]
    has_width: bool = False
    device: str = "cpu"
    axes: tuple[int, ...] = ()
    from_zero: bool = False
    traced: tuple[int, int] | None = None

    @property
    def scales(self) -> bool:
        """Whether the number of outputs is the same at all hidden sizes, or proportional to the size."""
        (first, low), (second, high) = self.features
        return first != second and (low == high or low * second == high * first)

    def outputs(self, units: int) -> int:
        """Return the number of outputs at a hidden size: one of the trials', or any if it scales."""
        (first, low), (_, high) = self.features
        return low if low == high or units == first else low * units // first
