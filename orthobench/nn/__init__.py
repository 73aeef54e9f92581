"""Every cell of the harness as a layer for other programs, used like `torch.nn.RNN`.

    from orthobench.nn import ScoRNN

    layer = ScoRNN(input_size=28, hidden_size=170, batch_first=True)
    output, state = layer(x)

`ScoRNNCell` and its like run one step at a time, like `torch.nn.RNNCell`.

`constrain(module, "weight_hh_l0", "cayley")` keeps a weight of any module orthogonal.

`compile(cell)` runs a cell of your own, a module for one step, over sequences, by a kernel where it can.

A model of your own becomes a layer by a subclass of `RecurrentLayer` that names it:

    class MyLayer(RecurrentLayer):
        model = MyModel
"""

from __future__ import annotations

from orthobench.matrices.constrain import constrain, rebase
from orthobench.nn import cells
from orthobench.nn.cell import RecurrentCell
from orthobench.nn.cells import *  # noqa: F403
from orthobench.nn.layer import RecurrentLayer
from orthobench.nn.own_cell import CompiledLayer, compile

__all__ = ["CompiledLayer", "RecurrentCell", "RecurrentLayer", "compile", "constrain", "rebase"]
__all__ += cells.LAYERS
