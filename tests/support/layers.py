"""The layers of orthobench.nn, and the cells that run a step at a time, by the name of their model's class."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from orthobench.nn import GRU, LSTM, RNN, RecurrentCell, RecurrentLayer, cells

CELLS: dict[str, Any] = {
    layer.model.__name__: layer for layer in cells.LAYERS.values() if issubclass(layer, RecurrentCell)
}
LAYERS = {name: cells.LAYERS[name] for name in CELLS}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tensors(state: Any) -> tuple[torch.Tensor, ...]:
    """Return the tensors of a layer's state, which may be a single one."""
    return state if isinstance(state, tuple) else (state,)


def small_layer(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """Return a layer for two inputs with four units, whose every parameter has a part in its outputs."""
    settings: dict[str, Any] = {"block_size": 3} if name == "LRU" else {}
    layer: Any = LAYERS[name](2, 4, generator=generator(), dtype=dtype, **settings)
    if name == "ENRNN":
        layer.cells[0].normalised.fill_(True)  # so that the spectral radius has a part in it
    return layer


def torch_copy(layer: RecurrentLayer, **options: object) -> nn.RNNBase:
    """torch's layer of the same kind and weights."""
    kind = {LSTM: nn.LSTM, GRU: nn.GRU, RNN: nn.RNN}[type(layer)]
    torch_layer = kind(
        layer.input_size, layer.hidden_size, layer.num_layers, bidirectional=layer.bidirectional, **options
    )
    with torch.no_grad():
        for index, cell in enumerate(layer.cells):
            suffix = f"_l{index // layer.directions}" + "_reverse" * (index % layer.directions)
            getattr(torch_layer, f"weight_ih{suffix}").copy_(cell.input_weight)
            getattr(torch_layer, f"weight_hh{suffix}").copy_(cell.recurrent_weight)
            getattr(torch_layer, f"bias_ih{suffix}").copy_(cell.bias)
            getattr(torch_layer, f"bias_hh{suffix}").zero_()
            if isinstance(torch_layer, nn.GRU):
                getattr(torch_layer, f"bias_hh{suffix}")[2 * layer.hidden_size :] = cell.candidate_bias
    return torch_layer
