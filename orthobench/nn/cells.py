"""The layers and cells of the built-in models. `make layers` writes this file from the classes in models/."""

from __future__ import annotations

from orthobench.models import (
    ablation,
    antisymmetric,
    antisymmetric_gated,
    aussm,
    cornn,
    deltanet,
    deltaproduct,
    dtriv,
    enrnn,
    eurnn,
    exprnn,
    full_urnn,
    gated_deltanet,
    gated_deltaproduct,
    goru,
    gru,
    ind_rnn,
    irnn,
    kru,
    lem,
    linoss,
    lipschitz_rnn,
    lru,
    lstm,
    m2rnn,
    mamba,
    mamba3,
    min_gru,
    min_lstm,
    mlstm,
    nnrnn,
    ornn,
    pd_ssm,
    rnn,
    rwkv7,
    scornn,
    scurnn,
    slstm,
    soft_orthogonal,
    spectral_rnn,
    stack_lstm,
    urnn,
    wrnn,
)
from orthobench.nn.cell import RecurrentCell
from orthobench.nn.layer import RecurrentLayer

__all__ = [
    "AUSSM",
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
    "M2RNN",
    "MLSTM",
    "NNRNN",
    "ORNN",
    "PDSSM",
    "RNN",
    "RWKV7",
    "SLSTM",
    "URNN",
    "WRNN",
    "AUSSMCell",
    "Ablation",
    "AblationCell",
    "Antisymmetric",
    "AntisymmetricCell",
    "AntisymmetricGated",
    "AntisymmetricGatedCell",
    "CoRNN",
    "CoRNNCell",
    "DTRIVCell",
    "DeltaNet",
    "DeltaNetCell",
    "DeltaProduct",
    "DeltaProductCell",
    "ENRNNCell",
    "EURNNCell",
    "EXPRNNCell",
    "FullURNN",
    "FullURNNCell",
    "GORUCell",
    "GRUCell",
    "GatedDeltaNet",
    "GatedDeltaNetCell",
    "GatedDeltaProduct",
    "GatedDeltaProductCell",
    "IRNNCell",
    "IndRNN",
    "IndRNNCell",
    "KRUCell",
    "LEMCell",
    "LRUCell",
    "LSTMCell",
    "LinOSS",
    "LinOSSCell",
    "LipschitzRNN",
    "LipschitzRNNCell",
    "M2RNNCell",
    "MLSTMCell",
    "Mamba",
    "Mamba3",
    "Mamba3Cell",
    "MambaCell",
    "MinGRU",
    "MinGRUCell",
    "MinLSTM",
    "MinLSTMCell",
    "NNRNNCell",
    "ORNNCell",
    "PDSSMCell",
    "RNNCell",
    "RWKV7Cell",
    "SLSTMCell",
    "ScoRNN",
    "ScoRNNCell",
    "ScuRNN",
    "ScuRNNCell",
    "SoftOrthogonal",
    "SoftOrthogonalCell",
    "SpectralRNN",
    "SpectralRNNCell",
    "StackLSTM",
    "StackLSTMCell",
    "URNNCell",
    "WRNNCell",
]


class Ablation(RecurrentLayer):
    model = ablation.Ablation


class AblationCell(RecurrentCell):
    model = ablation.Ablation


class Antisymmetric(RecurrentLayer):
    model = antisymmetric.Antisymmetric


class AntisymmetricCell(RecurrentCell):
    model = antisymmetric.Antisymmetric


class AntisymmetricGated(RecurrentLayer):
    model = antisymmetric_gated.AntisymmetricGated


class AntisymmetricGatedCell(RecurrentCell):
    model = antisymmetric_gated.AntisymmetricGated


class AUSSM(RecurrentLayer):
    model = aussm.AUSSM


class AUSSMCell(RecurrentCell):
    model = aussm.AUSSM


class CoRNN(RecurrentLayer):
    model = cornn.CoRNN


class CoRNNCell(RecurrentCell):
    model = cornn.CoRNN


class DeltaNet(RecurrentLayer):
    model = deltanet.DeltaNet


class DeltaNetCell(RecurrentCell):
    model = deltanet.DeltaNet


class DeltaProduct(RecurrentLayer):
    model = deltaproduct.DeltaProduct


class DeltaProductCell(RecurrentCell):
    model = deltaproduct.DeltaProduct


class DTRIV(RecurrentLayer):
    model = dtriv.DTRIV


class DTRIVCell(RecurrentCell):
    model = dtriv.DTRIV


class ENRNN(RecurrentLayer):
    model = enrnn.ENRNN


class ENRNNCell(RecurrentCell):
    model = enrnn.ENRNN


class EURNN(RecurrentLayer):
    model = eurnn.EURNN


class EURNNCell(RecurrentCell):
    model = eurnn.EURNN


class EXPRNN(RecurrentLayer):
    model = exprnn.EXPRNN


class EXPRNNCell(RecurrentCell):
    model = exprnn.EXPRNN


class FullURNN(RecurrentLayer):
    model = full_urnn.FullURNN


class FullURNNCell(RecurrentCell):
    model = full_urnn.FullURNN


class GatedDeltaNet(RecurrentLayer):
    model = gated_deltanet.GatedDeltaNet


class GatedDeltaNetCell(RecurrentCell):
    model = gated_deltanet.GatedDeltaNet


class GatedDeltaProduct(RecurrentLayer):
    model = gated_deltaproduct.GatedDeltaProduct


class GatedDeltaProductCell(RecurrentCell):
    model = gated_deltaproduct.GatedDeltaProduct


class GORU(RecurrentLayer):
    model = goru.GORU


class GORUCell(RecurrentCell):
    model = goru.GORU


class GRU(RecurrentLayer):
    model = gru.GRU


class GRUCell(RecurrentCell):
    model = gru.GRU


class IndRNN(RecurrentLayer):
    model = ind_rnn.IndRNN


class IndRNNCell(RecurrentCell):
    model = ind_rnn.IndRNN


class IRNN(RecurrentLayer):
    model = irnn.IRNN


class IRNNCell(RecurrentCell):
    model = irnn.IRNN


class KRU(RecurrentLayer):
    model = kru.KRU


class KRUCell(RecurrentCell):
    model = kru.KRU


class LEM(RecurrentLayer):
    model = lem.LEM


class LEMCell(RecurrentCell):
    model = lem.LEM


class LinOSS(RecurrentLayer):
    model = linoss.LinOSS


class LinOSSCell(RecurrentCell):
    model = linoss.LinOSS


class LipschitzRNN(RecurrentLayer):
    model = lipschitz_rnn.LipschitzRNN


class LipschitzRNNCell(RecurrentCell):
    model = lipschitz_rnn.LipschitzRNN


class LRU(RecurrentLayer):
    model = lru.LRU


class LRUCell(RecurrentCell):
    model = lru.LRU


class LSTM(RecurrentLayer):
    model = lstm.LSTM


class LSTMCell(RecurrentCell):
    model = lstm.LSTM


class M2RNN(RecurrentLayer):
    model = m2rnn.M2RNN


class M2RNNCell(RecurrentCell):
    model = m2rnn.M2RNN


class Mamba(RecurrentLayer):
    model = mamba.Mamba


class MambaCell(RecurrentCell):
    model = mamba.Mamba


class Mamba3(RecurrentLayer):
    model = mamba3.Mamba3


class Mamba3Cell(RecurrentCell):
    model = mamba3.Mamba3


class MinGRU(RecurrentLayer):
    model = min_gru.MinGRU


class MinGRUCell(RecurrentCell):
    model = min_gru.MinGRU


class MinLSTM(RecurrentLayer):
    model = min_lstm.MinLSTM


class MinLSTMCell(RecurrentCell):
    model = min_lstm.MinLSTM


class MLSTM(RecurrentLayer):
    model = mlstm.MLSTM


class MLSTMCell(RecurrentCell):
    model = mlstm.MLSTM


class NNRNN(RecurrentLayer):
    model = nnrnn.NNRNN


class NNRNNCell(RecurrentCell):
    model = nnrnn.NNRNN


class ORNN(RecurrentLayer):
    model = ornn.ORNN


class ORNNCell(RecurrentCell):
    model = ornn.ORNN


class PDSSM(RecurrentLayer):
    model = pd_ssm.PDSSM


class PDSSMCell(RecurrentCell):
    model = pd_ssm.PDSSM


class RNN(RecurrentLayer):
    model = rnn.RNN


class RNNCell(RecurrentCell):
    model = rnn.RNN


class RWKV7(RecurrentLayer):
    model = rwkv7.RWKV7


class RWKV7Cell(RecurrentCell):
    model = rwkv7.RWKV7


class ScoRNN(RecurrentLayer):
    model = scornn.ScoRNN


class ScoRNNCell(RecurrentCell):
    model = scornn.ScoRNN


class ScuRNN(RecurrentLayer):
    model = scurnn.ScuRNN


class ScuRNNCell(RecurrentCell):
    model = scurnn.ScuRNN


class SLSTM(RecurrentLayer):
    model = slstm.SLSTM


class SLSTMCell(RecurrentCell):
    model = slstm.SLSTM


class SoftOrthogonal(RecurrentLayer):
    model = soft_orthogonal.SoftOrthogonal


class SoftOrthogonalCell(RecurrentCell):
    model = soft_orthogonal.SoftOrthogonal


class SpectralRNN(RecurrentLayer):
    model = spectral_rnn.SpectralRNN


class SpectralRNNCell(RecurrentCell):
    model = spectral_rnn.SpectralRNN


class StackLSTM(RecurrentLayer):
    model = stack_lstm.StackLSTM


class StackLSTMCell(RecurrentCell):
    model = stack_lstm.StackLSTM


class URNN(RecurrentLayer):
    model = urnn.URNN


class URNNCell(RecurrentCell):
    model = urnn.URNN


class WRNN(RecurrentLayer):
    model = wrnn.WRNN


class WRNNCell(RecurrentCell):
    model = wrnn.WRNN
