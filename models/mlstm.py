"""mLSTM: a matrix memory of keys and values in each head, with exponential gates, which runs in chunks.

    q_t, k_t, v_t = W_q x_t + b_q, (W_k x_t + b_k) / sqrt(d), W_v x_t + b_v
    i_t, f_t, o_t = w_i x_t + b_i, w_f x_t + b_f, W_o x_t + b_o
    C_t = f' C_{t-1} + exp(i_t) v_t k_t^T,   n_t = f' n_{t-1} + exp(i_t) k_t,   f' = sigmoid(f_t) or exp(f_t)
    h_t = sigmoid(o_t) o (C_t q_t) / max(|n_t^T q_t|, 1)

M. Beck et al., "xLSTM: Extended Long Short-Term Memory", NeurIPS 2024. A head has d = n / heads features; i and f are
numbers of a head. The stored C and n are divided by exp(m_t), where m_t = max(log f' + m_{t-1}, i_t), and 1 becomes
exp(-m_t). So no weight of a key exceeds 1, and h is the same. The states start at 0.

The gates and maps read the inputs alone, so that a chunk of steps is a product of matrices. Only the memory between the
chunks is recurrent. The state is one tensor: [C; n] of each head `[d + 1, d]`, then m of each head.

The start is the program's. W is drawn from N(0, 2 / (5 m)), and w_i, w_f and the biases are 0. But b_f runs from 3 to 6
over the heads, and b_i is drawn from N(0, 0.1^2). In the program a convolution, a norm and a residual block surround
the cell, and i and f read q, k and v. Here the cell is alone, and they read x as in the paper.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from orthobench.model import Model, ModelSettings, Signature, State
from orthobench.recurrence import GradientTrace, project

from ._xlstm import XLSTMSettings, input_scale

CHUNK = 32
"""Steps of a chunk, whose work grows with their square."""
_LARGEST_EXPONENT = 80.0
"""A bound of -m, whose exponential float32 can hold."""


class MLSTM(Model):
    version = 1
    title = "mLSTM"
    paper = "Beck et al. xLSTM: Extended Long Short-Term Memory. NeurIPS 2024"
    step_matrices = ()
    cost = "queries, keys, values and an output gate of n features each, and a memory of n^2 / heads numbers"
    Settings = XLSTMSettings

    def __init__(self, settings: XLSTMSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n = signature.input_size, settings.hidden_size
        self.heads, self.size = settings.heads, settings.head_size
        self.exponential_forget = settings.forget_gate == "exponential"
        self.input_weight = nn.Parameter(input_scale(m) * torch.randn(4 * n, m, generator=generator))
        self.input_bias = nn.Parameter(torch.zeros(4 * n))
        self.gate_weight = nn.Parameter(torch.zeros(2 * self.heads, m))
        open_gates = 0.1 * torch.randn(self.heads, generator=generator)
        self.gate_bias = nn.Parameter(torch.cat((open_gates, torch.linspace(3, 6, self.heads))))

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
        blocks = project(inputs, self.input_weight, self.input_bias).unflatten(-1, (4, self.heads, self.size))
        q, k, v, o = blocks.permute(2, 1, 3, 0, 4)  # [B, heads, T, d]
        gates = project(inputs, self.gate_weight, self.gate_bias).unflatten(-1, (2, self.heads))
        i, f = gates.permute(2, 1, 3, 0)  # [B, heads, T]
        sources = (q, k / math.sqrt(self.size), torch.cat((v, torch.ones_like(v[..., :1])), dim=-1))
        steps = (*sources, i[..., None], (f if self.exponential_forget else logsigmoid(f))[..., None])
        joint, readings, memories = state[0], [], []
        for part in zip(*(each.split(CHUNK if trace is None else 1, dim=2) for each in steps), strict=True):
            memory, m = self._split(joint)
            read, memory, m = chunk(memory, m, *part)
            joint = torch.cat((memory.flatten(1), m.flatten(1)), dim=-1)
            if trace is not None:  # the step's own memory is read, so that the gradient reaches it
                memory, m = self._split(joint)
                read = normalised(part[0] @ memory.mT, m)
                memories.append(joint)
            readings.append(read)
        if trace is not None:
            trace.watch("h", memories)
        h = o.sigmoid() * torch.cat(readings, dim=2)
        return h.permute(2, 0, 1, 3).flatten(2), (joint,)

    def _split(self, joint: Tensor) -> tuple[Tensor, Tensor]:
        """Return [C; n] `[B, heads, d + 1, d]` and m `[B, heads, 1, 1]` of a state `[B, features]`."""
        memory, m = joint.split((self.features - self.heads, self.heads), dim=-1)
        return memory.view(-1, self.heads, self.size + 1, self.size), m[..., None, None]

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return no matrix: a step multiplies the memory by a number that depends on the inputs."""
        return {}


def chunk(
    memory: Tensor, m: Tensor, q: Tensor, k: Tensor, v: Tensor, i: Tensor, log_f: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the L steps of a chunk at once; s <= t are steps in it.

        C_t = exp(F_t) C_0 + sum over s of exp(D_ts) v_s k_s^T,   D_ts = log f'_{s+1} + ... + log f'_t + i_s

    Args:
        memory: [C; n] before the chunk, divided by exp(m), `[B, heads, d + 1, d]`.
        m: `[B, heads, 1, 1]`.
        q: `[B, heads, L, d]`.
        k: `[B, heads, L, d]`, divided by sqrt(d).
        v: `[B, heads, L, d + 1]`, whose last feature is 1, so that the memory has n as its last row.
        i: `[B, heads, L, 1]`.
        log_f: log f', `[B, heads, L, 1]`.

    Returns:
        The normalised readings `[B, heads, L, d]`, and the memory and m after the chunk.
    """
    length = q.shape[2]
    causal = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    # Sums of their own for each s: a difference of two long sums would lose the small ones.
    decay = (log_f * causal.tril(-1)).cumsum(dim=2)
    weights = torch.where(causal, decay + i.mT, -math.inf)
    before = log_f.cumsum(dim=2) + m
    stabiliser = torch.maximum(before, weights.amax(dim=-1, keepdim=True))
    shares, faded = (weights - stabiliser).exp(), (before - stabiliser).exp()
    read = (q @ k.mT * shares) @ v + faded * (q @ memory.mT)
    last = v.mT @ (shares[:, :, -1, :, None] * k)
    return normalised(read, stabiliser), faded[:, :, -1:] * memory + last, stabiliser[:, :, -1:]


def normalised(read: Tensor, m: Tensor) -> Tensor:
    """Return C q / max(|n^T q|, 1) from [C q; n^T q], divided by exp(m), `[B, heads, L, d + 1]`."""
    values, total = read[..., :-1], read[..., -1:]
    return values / torch.maximum(total.abs(), (-m).clamp(max=_LARGEST_EXPONENT).exp())
