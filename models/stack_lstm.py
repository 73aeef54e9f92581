"""Stack-augmented LSTM: an LSTM that pushes to and pops from a stack of vectors (Suzgun et al. 2019).

    h' = h_{t-1} + W_s s_{t-1}^1 + b_s
    i, f, g, o = W x_t + b + R h' + b_r
    c_t = sigmoid(f) o c_{t-1} + sigmoid(i) o tanh(g),   h_t = sigmoid(o) o tanh(c_t)
    a, 1 - a = softmax(W_a h_t + b_a),   v = sigmoid(W_v h_t + b_v)
    s_t^1 = a v + (1 - a) s_{t-1}^2
    s_t^k = a s_{t-1}^{k-1} + (1 - a) s_{t-1}^{k+1}

s^1 is the top of the stack. Every step mixes the stack after a push, with weight a, with the stack after a pop. The
stack has a fixed number of cells: what is pushed out at the bottom is lost, and a pop moves a vector of zeros in. The
states start at 0, and all weights and biases as in torch.nn.LSTM and torch.nn.Linear.

The idea is Joulin and Mikolov's (2015), whose network is a plain one. M. Suzgun, S. Gehrmann, Y. Belinkov, S. M.
Shieber, "Memory-Augmented Recurrent Neural Networks Can Learn Generalized Dyck Languages", 2019, is the source here:
`SLSTM_Softmax` in `models/lstm_models.py` of suzgunmirac/marnns, with a stack of 104 vectors of 5 numbers.

The time loop is written in PyTorch, and there is no kernel.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Count, Learns, Model, ModelSettings, OptimizerName, Positive, Signature, State
from orthobench.recurrence import GradientTrace, has_any_length, project, scan_steps


class StackLSTMSettings(ModelSettings):
    stack_depth: Count = Field(104, description="number of vectors in the stack")
    stack_width: Count = Field(5, description="number of values of a vector in the stack")
    optimizer: OptimizerName = "adam"
    learning_rate: Positive = 1e-2


class StackLSTM(Model):
    version = 1
    title = "stack LSTM"
    paper = "Suzgun et al. Memory-Augmented Recurrent Neural Networks Can Learn Generalized Dyck Languages. 2019"
    cites = "suzgun2019, joulin2015"
    look = "dash star-open"
    family = "gated"
    learns = Learns("adding", 0.2)
    cost = "a loop over the steps in PyTorch, which moves the whole stack in each"
    Settings = StackLSTMSettings
    step_matrices = ()

    def __init__(self, settings: StackLSTMSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n, width = signature.input_size, settings.hidden_size, settings.stack_width
        self.depth, self.width = settings.stack_depth, width

        def weight(rows: int, columns: int, fan_in: int) -> nn.Parameter:
            return nn.Parameter(torch_linear_(torch.empty(rows, columns), fan_in, generator))

        def bias(rows: int, fan_in: int) -> nn.Parameter:
            return nn.Parameter(torch_linear_(torch.empty(rows), fan_in, generator))

        self.input_weight, self.recurrent_weight = weight(4 * n, m, n), weight(4 * n, n, n)
        self.bias, self.recurrent_bias = bias(4 * n, n), bias(4 * n, n)
        self.top_weight, self.top_bias = weight(n, width, width), bias(n, width)
        self.action_weight, self.action_bias = weight(2, n, n), bias(2, n)
        self.value_weight, self.value_bias = weight(width, n, n), bias(width, n)

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, StackLSTMSettings)
        return 2 * settings.hidden_size + settings.stack_depth * settings.stack_width

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return settings.hidden_size

    def state_parts(self) -> dict[str, slice]:
        n = self.hidden_size
        return {"h": slice(0, n), "c": slice(n, 2 * n), "stack": slice(2 * n, self.features)}

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        parts = tuple(state[0][:, part] for part in self.state_parts().values())
        x = project(inputs, self.input_weight) + self.bias + self.recurrent_bias
        if has_any_length(x):
            outputs, parts = scan_steps(self.step, parts, (x,))
            return outputs, (torch.cat(parts, dim=-1),)
        hidden: list[Tensor] = []
        cells: list[Tensor] = []
        for x_t in x:
            parts, h = self.step(parts, (x_t,))
            hidden.append(h)
            cells.append(parts[1])
        if trace is not None:
            # Not the stack, whose last state no output reads.
            trace.watch("h", hidden)
            trace.watch("c", cells)
        return torch.stack(hidden), (torch.cat(parts, dim=-1),)

    def step(self, state: State, inputs: State) -> tuple[State, Tensor]:
        """Return the next h, c and stack, and the output h, for a step's projected inputs `[B, 4n]`."""
        (h, c, stack), (x,) = state, inputs
        read = h + nn.functional.linear(stack[:, : self.width], self.top_weight, self.top_bias)
        i, f, g, o = (x + read @ self.recurrent_weight.T).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        push, pop = nn.functional.linear(h, self.action_weight, self.action_bias).softmax(-1).chunk(2, dim=-1)
        value = nn.functional.linear(h, self.value_weight, self.value_bias).sigmoid()
        pushed = torch.cat((value, stack[:, : -self.width]), dim=-1)
        popped = nn.functional.pad(stack[:, self.width :], (0, self.width))
        return (h, c, push * pushed + pop * popped), h

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return dict(zip(("W_i", "W_f", "W_g", "W_o"), self.recurrent_weight.chunk(4), strict=True))
