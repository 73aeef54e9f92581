"""A cell that runs one step at a time, with the interface of `torch.nn.RNNCell`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.errors import UsageError, unknown
from orthobench.nn.layer import LayerState, RecurrentLayer, only_one

_SINGLE = {"num_layers": 1, "batch_first": False, "bidirectional": False, "proj_size": 0}
"""The arguments of a layer that a cell has no use for, at the values of a single step."""


class RecurrentCell(RecurrentLayer):
    """The base class of cells; a subclass names its `model`.

    `state = cell(inputs, state)` runs a step: inputs are `[B, input_size]` or `[input_size]`, and the state is
    `[B, cell.features]` or a tuple of such tensors, as for `torch.nn.LSTMCell`. Without a state the cell starts with
    its own. Each step computes the recurrent matrix anew, so layers run whole sequences faster.

    A cell is a layer for a single step: it has the same parameters by the same names, so `load_state_dict` moves them
    between the two, and the same methods. Its arguments are those of `RecurrentLayer`.

    Raises:
        UsageError: a size or a setting is invalid.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        nonlinearity: str | None = None,
        generator: torch.Generator | None = None,
        **settings: Any,
    ) -> None:
        known = self.model.Settings.model_fields
        settings = {name: value for name, value in settings.items() if _SINGLE.get(name, ...) != value}
        for name in settings:
            if name not in known:
                raise unknown("setting", name, known)
        super().__init__(
            input_size,
            hidden_size,
            bias=bias,
            device=device,
            dtype=dtype,
            nonlinearity=nonlinearity,
            generator=generator,
            **settings,
        )

    def forward(  # type: ignore[override]
        self,
        inputs: Tensor | None = None,
        state: LayerState | None = None,
        *,
        input: Tensor | None = None,
        hx: LayerState | None = None,
    ) -> LayerState:
        """Run a step and return the state after it; see the class. `input` and `hx` are the names in torch."""
        inputs, state = only_one("inputs", inputs, "input", input), only_one("state", state, "hx", hx)
        if inputs is None:
            raise TypeError(f"{type(self).__name__}.forward() needs inputs: give inputs, or input as in torch")
        return self.step(inputs, state)[1]

    def step(self, inputs: Tensor, state: LayerState | None = None) -> tuple[Tensor, LayerState]:
        """Run a step and return its output too, which differs from the state for LRU, Mamba and others.

        Raises:
            UsageError: the shapes or types do not fit.
        """
        if inputs.dim() not in (1, 2) or inputs.shape[-1] != self.input_size:
            raise UsageError(
                f"inputs {list(inputs.shape)} should be [batch, features] or [features], "
                f"with {self.input_size} features"
            )
        if state is not None:
            state = state[None] if isinstance(state, Tensor) else tuple(each[None] for each in state)
        outputs, final = super().forward(inputs[None], state)
        assert isinstance(outputs, Tensor)
        return outputs[0], final[0] if isinstance(final, Tensor) else tuple(each[0] for each in final)
