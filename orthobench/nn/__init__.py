"""Every cell of the harness as a layer for other programs, used like `torch.nn.RNN`.

    from orthobench.nn import ScoRNN

    layer = ScoRNN(input_size=28, hidden_size=170, batch_first=True)
    output, state = layer(x)

A model of your own becomes a layer by a subclass of `RecurrentLayer` that names it:

    class MyLayer(RecurrentLayer):
        model = MyModel
"""

from __future__ import annotations

from orthobench.nn.cells import (
    DTRIV,
    ENRNN,
    EURNN,
    EXPRNN,
    GORU,
    GRU,
    IRNN,
    KRU,
    LEM,
    LRU,
    LSTM,
    MLSTM,
    NNRNN,
    ORNN,
    RNN,
    SLSTM,
    URNN,
    WRNN,
    Ablation,
    Antisymmetric,
    AntisymmetricGated,
    CoRNN,
    DeltaNet,
    DeltaProduct,
    FullURNN,
    GatedDeltaNet,
    IndRNN,
    LinOSS,
    LipschitzRNN,
    Mamba,
    MinGRU,
    MinLSTM,
    ScoRNN,
    ScuRNN,
    SoftOrthogonal,
    SpectralRNN,
)
from orthobench.nn.layer import RecurrentLayer

__all__ = [
    "DTRIV",
    "ENRNN",
    "EURNN",
    "EXPRNN",
    "GORU",
    "GRU",
    "IRNN",
    "KRU",
    "LEM",
    "LRU",
    "LSTM",
    "MLSTM",
    "NNRNN",
    "ORNN",
    "RNN",
    "SLSTM",
    "URNN",
    "WRNN",
    "Ablation",
    "Antisymmetric",
    "AntisymmetricGated",
    "CoRNN",
    "DeltaNet",
    "DeltaProduct",
    "FullURNN",
    "GatedDeltaNet",
    "IndRNN",
    "LinOSS",
    "LipschitzRNN",
    "Mamba",
    "MinGRU",
    "MinLSTM",
    "RecurrentLayer",
    "ScoRNN",
    "ScuRNN",
    "SoftOrthogonal",
    "SpectralRNN",
]
