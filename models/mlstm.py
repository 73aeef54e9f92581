"""mLSTM: a matrix memory of keys and values in each head, with exponential gates.

    q_t, k_t, v_t = W_q x_t + b_q, (W_k x_t + b_k) / sqrt(d), W_v x_t + b_v
    i_t, f_t, o_t = w_i x_t + b_i, w_f x_t + b_f, W_o x_t + b_o
    C_t = f' C_{t-1} + exp(i_t) v_t k_t^T,   n_t = f' n_{t-1} + exp(i_t) k_t,   f' = sigmoid(f_t) or exp(f_t)
    h_t = sigmoid(o_t) o (C_t q_t) / max(|n_t^T q_t|, 1)

M. Beck et al., "xLSTM: Extended Long Short-Term Memory", NeurIPS 2024. A head has d = n / heads features; its i and f
are scalars. The stored C and n are divided by exp(m_t), where m_t = max(log f' + m_{t-1}, i_t), and 1 becomes
exp(-m_t). This keeps every weight of a key at most 1 and leaves h unchanged. The states start at 0.

The gates and maps read only the inputs. The state is one tensor: [C; n] `[d + 1, d]` for each head, then m for each
head.

The cell starts as in the program. W is drawn from N(0, 2 / (5 m)), b_i from N(0, 0.1^2), and b_f increases from 3 to 6
over the heads; w_i, w_f and the other biases are 0. In the program a convolution, a norm and a residual block surround
the cell, and i and f read q, k and v. Here the model is the cell alone, and they read x as in the paper.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from orthobench.model import Learns, Model, ModelSettings, Signature, State
from orthobench.recurrence import GradientTrace, Projection, mlstm, project, read_memories

from ._xlstm import XLSTMSettings, input_scale


class MLSTM(Model):
    version = 1
    title = "mLSTM"
    paper = "Beck et al. xLSTM: Extended Long Short-Term Memory. NeurIPS 2024"
    cites = "beck2024"
    look = "longdashdot circle"
    family = "linear"
    learns = Learns("adding", 0.2)
    step_matrices = ()
    cost = "queries, keys, values and an output gate of n features each, and a memory of n^2 / heads numbers"
    Settings = XLSTMSettings

    def __init__(self, settings: XLSTMSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n = signature.input_size, settings.hidden_size
        self.heads = settings.heads
        self.exponential_forget = settings.forget_gate == "exponential"
        self.input_weight = nn.Parameter(input_scale(m) * torch.randn(4 * n, m, generator=generator))
        self.input_bias = nn.Parameter(torch.zeros(4 * n))
        self.gate_weight = nn.Parameter(torch.zeros(2 * self.heads, m))
        open_gates = 0.1 * torch.randn(self.heads, generator=generator)
        forget = torch.linspace(3, 6, self.heads).to(open_gates)  # transformers draws it on the CPU for the device meta
        self.gate_bias = nn.Parameter(torch.cat((open_gates, forget)))

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, XLSTMSettings)
        return settings.hidden_size * (settings.head_size + 1) + settings.heads

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return settings.hidden_size

    def state_parts(self) -> dict[str, slice]:
        return {"h": slice(0, self.features - self.heads), "m": slice(self.features - self.heads, self.features)}

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        weight, bias, n = self.input_weight, self.input_bias, len(self.input_weight) // 4
        gates = project(inputs, self.gate_weight, self.gate_bias)
        options = (state, trace, self.heads, self.exponential_forget)
        if self.signature.readout != "last":
            return mlstm(Projection(inputs, weight, bias), gates, *options)
        keys_and_values = Projection(inputs, weight[n : 3 * n], bias[n : 3 * n])
        _, final = mlstm(keys_and_values, gates, *options, reads=False)
        q, _, _, o = project(inputs[-1:], weight, bias)[0].chunk(4, dim=-1)  # only the last step reads the memory
        return read_memories(q, o, final[0], self.heads)[None], final

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return no matrix, because a step multiplies the memory by a scalar that depends on the inputs."""
        return {}
