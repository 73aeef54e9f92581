"""minGRU: a GRU whose gate and candidate read the input alone, so that the recurrence is linear in the state.

    z_t = sigmoid(W_z x_t + b_z),   c_t = W_c x_t + b_c
    h_t = (1 - z_t) o h_{t-1} + z_t o g(c_t)
    g(c) = c + 1/2 where c >= 0, sigmoid(c) elsewhere

L. Feng, F. Tung, M. O. Ahmed, Y. Bengio, H. Hajimirsadeghi, "Were RNNs All We Needed?", arXiv 2410.01201, 2024. The
paper has two versions. The first has g(c) = c, which is `candidate=identity`. The second computes in logarithms, and
its g therefore keeps the candidate positive; this is `candidate=positive`, the default. Here both are computed
directly, without logarithms, which gives the same numbers. States start at 0.

The paper's language model surrounds the cell with a convolution, a residual block and a wider state. Here the model is
the cell alone.
"""

from __future__ import annotations

from orthobench.model import Learns
from orthobench.recurrence import min_gru

from ._minimal import MinimalCell


class MinGRU(MinimalCell):
    version = 1
    title = "minGRU"
    paper = "Feng et al. Were RNNs All We Needed? 2024"
    cites = "feng2024"
    look = "longdash diamond"
    family = "linear"
    learns = Learns("adding", 0.2)
    operation = min_gru
