"""minLSTM: an LSTM whose gates and candidate read the input alone, so that the recurrence is linear in the state.

    f_t = sigmoid(W_f x_t + b_f),   i_t = sigmoid(W_i x_t + b_i),   c_t = W_c x_t + b_c
    f'_t = f_t / (f_t + i_t),   i'_t = i_t / (f_t + i_t)
    h_t = f'_t o h_{t-1} + i'_t o g(c_t)
    g(c) = c + 1/2 where c >= 0, sigmoid(c) elsewhere

L. Feng, F. Tung, M. O. Ahmed, Y. Bengio, H. Hajimirsadeghi, "Were RNNs All We Needed?", arXiv 2410.01201, 2024. The
normalised gates keep the scale of the state independent of the sequence length. As for minGRU, `candidate=positive`
uses the g of the paper's logarithmic version, and `candidate=identity` uses g(c) = c of its first version. Both are
computed directly, without logarithms. States start at 0.

The paper's language model surrounds the cell with a convolution, a residual block and a wider state. Here the model is
the cell alone.
"""

from __future__ import annotations

from orthobench.model import Learns
from orthobench.recurrence import min_lstm

from ._minimal import MinimalCell


class MinLSTM(MinimalCell):
    version = 1
    title = "minLSTM"
    paper = "Feng et al. Were RNNs All We Needed? 2024"
    cites = "feng2024"
    look = "longdash triangle-up"
    family = "linear"
    learns = Learns("adding", 0.2)
    operation = min_lstm
