"""A cell of the user as a layer: by a kernel that is compiled for its first use, or in a loop of its steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from orthobench.errors import UsageError
from orthobench.nn.compiled import register, run_opaque
from orthobench.nn.layer import LOW_TYPES, autocast_dtype
from orthobench.recurrence import GradientTrace
from orthobench.recurrence.backends import outside_autocast
from orthobench.recurrence.call import State
from orthobench.recurrence.compiler.cell import CompiledCell

CellState = Tensor | tuple[Tensor, ...] | list[Tensor]
"""The state of a cell: a tensor `[B, n]`, or several."""


def compile(cell: nn.Module, batch_first: bool = False) -> CompiledLayer:
    """Return a layer that runs a cell over sequences, at the speed of a kernel where it can.

    Args:
        cell: called as `cell(x, state)` with x `[B, m]` and a state, a tensor `[B, n]` or a tuple of such tensors. It
            returns the next state, the first of whose tensors is its output, or the output and the next state.
        batch_first: whether inputs and outputs are `[B, T, features]`.

    Raises:
        UsageError: it is not a module.
    """
    if not isinstance(cell, nn.Module):
        raise UsageError(f"compile takes a cell, an object derived from torch.nn.Module, not {type(cell).__name__}")
    return CompiledLayer(cell, batch_first)


class _Loop(nn.Module):
    """A cell's loop over time, as the programs that `torch.compile` makes run it."""

    def __init__(self, cell: nn.Module, is_single: bool) -> None:
        super().__init__()
        self.cell = cell
        self.is_single = is_single
        self.number = register(self)
        self.compiled = CompiledCell(cell, self.step)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        value = self.cell(x, state[0] if self.is_single else state)
        if isinstance(value, Tensor):
            return value, (value,)
        first, *others = value
        if not self.is_single and isinstance(first, Tensor) and len(value) == len(state) and all(
            isinstance(each, Tensor) for each in others
        ):  # fmt: skip
            return first, tuple(value)
        (after,) = others
        return first, (after,) if isinstance(after, Tensor) else tuple(after)

    def states(self, x: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        return self.compiled.run(x, state, trace)

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs


class CompiledLayer(nn.Module):
    """A cell over sequences; see `compile`.

    `output, state = layer(x, state)` with x `[T, B, m]` or `[B, T, m]` and the state of the cell. Without a state the
    cell's first step runs without one, so the cell has to allow that. The parameters are the cell's.

    In float32 a kernel runs it, which a C compiler, or NVRTC on a GPU, makes at the first use. It can be differentiated
    once. The kernel is compared with the cell's own steps, in value and in all gradients. A cell that cannot be
    compiled runs as a loop in PyTorch, and a line of the logger `orthobench.recurrence` says why. So do other types and
    devices, exported programs, transforms, and everything under `use_backend("reference")`.
    """

    def __init__(self, cell: nn.Module, batch_first: bool = False) -> None:
        super().__init__()
        self.cell, self.batch_first = cell, batch_first
        self._make()

    def _make(self) -> None:
        # In a dictionary, because they are no modules of this layer: its parameters are the cell's alone.
        self._loops = {is_single: _Loop(self.cell, is_single) for is_single in (True, False)}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_loops"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._make()

    def forward(self, x: Tensor, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """Run all steps; see the class.

        Raises:
            UsageError: the inputs are not a batch of sequences.
        """
        if x.dim() != 3 or 0 in x.shape:
            raise UsageError(
                f"x {list(x.shape)} should be [time, batch, features] or, with batch_first, [batch, time, features]"
            )
        x = x.transpose(0, 1) if self.batch_first else x
        outputs, final = self._run(x, state)
        return outputs.transpose(0, 1) if self.batch_first else outputs, final

    def explain(self, inputs: int, state: CellState) -> str:
        """Return what the compiler makes of the cell for this number of inputs and a state, or why it is a loop."""
        given = (state,) if isinstance(state, Tensor) else tuple(state)
        return self._loops[isinstance(state, Tensor)].compiled.explain(inputs, given)

    def _run(self, x: Tensor, state: CellState | None) -> tuple[Tensor, CellState]:
        if state is None and isinstance(self.cell, nn.RNNCellBase):
            zeros = x.new_zeros(x.shape[1], self.cell.hidden_size, dtype=self.cell.weight_hh.dtype)
            state = (zeros, zeros) if isinstance(self.cell, nn.LSTMCell) else zeros
        if state is None:
            return self._from_first_step(x)
        is_single = isinstance(state, Tensor)
        given = (state,) if isinstance(state, Tensor) else tuple(state)
        low = autocast_dtype(x.device)
        if low is None or any(each.dtype in LOW_TYPES for each in self.cell.parameters()):
            outputs, final = self._through(is_single, x, given)
        else:
            x, *others = (each.float() if each.dtype in LOW_TYPES else each for each in (x, *given))
            with outside_autocast(x.device):
                outputs, final = self._through(is_single, x, tuple(others))
            if outputs.dtype == torch.float32:
                outputs, final = outputs.to(low), tuple(each.to(low) for each in final)
        return outputs, final[0] if is_single else final

    def _through(self, is_single: bool, x: Tensor, state: State) -> tuple[Tensor, State]:
        if self._loops[is_single].cell is not self.cell:
            self._make()
        loop = self._loops[is_single]
        if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
            # A step that is traced for its size alone, because an output may have another one than the state.
            features = loop.step(x[0], state)[0].shape[-1]
            return run_opaque(loop, loop.number, x, state, None, False, features)
        return loop.states(x, state, None)

    def _from_first_step(self, x: Tensor) -> tuple[Tensor, CellState]:
        """Run the first step without a state, and the others from the state that it returns."""
        value = self.cell(x[0])
        first, state = (value, value) if isinstance(value, Tensor) else (value[0], value)
        if not isinstance(state, Tensor) and len(state) == 2 and not isinstance(state[1], Tensor):
            state = state[1]
        if len(x) == 1:
            return first[None], state
        outputs, final = self._run(x[1:], state)
        return torch.cat((first[None].to(outputs.dtype), outputs)), final
