"""Every cell of the harness as a layer for other programs, used like `torch.nn.RNN`.

    from orthobench.nn import ScoRNN

    layer = ScoRNN(input_size=28, hidden_size=170, batch_first=True)
    output, state = layer(x)

`ScoRNNCell` and its like run one step at a time, like `torch.nn.RNNCell`.

`constrain(module, "weight_hh_l0", "cayley")` keeps a weight of any module orthogonal.

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

__all__ = ["RecurrentCell", "RecurrentLayer", "constrain", "rebase"]
__all__ += cells.__all__
