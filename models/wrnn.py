"""wRNN, the wave RNN: channels of units around a circle, and a hidden wave that moves along it.

    h_t = ReLU(conv(w, h_{t-1}) + U x_t + b + g),   conv(w, h)_{o,i} = sum_k sum_{s=-1,0,1} w_{o,k,s} h_{k,i+s}

o and k are channels, i counts the n units of a channel, and i + s is taken modulo n. T. A. Keller, L. Muller, T.
Sejnowski, M. Welling, "Traveling Waves Encode the Recent Past and Enhance Sequence Learning", ICLR 2024. At the start w
shifts every channel, conv(w, h)_{o,i} = h_{o,i+1}, which is a permutation. As in the paper, the hidden size n is the
number of units per channel, so the state has c n features. As in the program, U starts at 1 for the first unit of each
channel and at 0 elsewhere, and b at 0. Each channel has one g, which starts as the bias of torch's convolution; the
output map starts as torch's Linear. The paper uses 16 to 64 channels, and 27 for adding; the default of 1 is the
program's.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Count, Learns, ModelSettings, OptimizerName, OutputBias, Positive, Signature, State
from orthobench.recurrence import IDENTITY, RELU, TANH, GradientTrace, SparseLayers

from ._plain import PlainRNN, is_worth_applying

_ACTIVATIONS = {"relu": RELU, "tanh": TANH, "identity": IDENTITY}


class WRNNSettings(ModelSettings):
    hidden_size: Count = Field(100, description="n, number of units per channel; the state has channels x n features")
    optimizer: OptimizerName = "adam"
    learning_rate: Positive = 1e-4
    output_bias: OutputBias = "linear"
    channels: Count = Field(1, description="c, number of channels")
    activation: Literal["relu", "tanh", "identity"] = Field("relu", description="activation of the hidden state")
    initialization: Literal["shift", "identity", "linear"] = Field(
        "shift", description="start of w; shift: by one unit in each channel; linear: as in torch's convolution"
    )
    encoder_start: Literal["solo", "normal"] = Field(
        "solo", description="start of U; solo: 1 for the first unit of each channel, else 0; normal: N(0, 0.001^2)"
    )


class WRNN(PlainRNN):
    version = 1
    title = "wRNN"
    paper = "Keller, Muller, Sejnowski, Welling. Traveling Waves Encode the Recent Past. ICLR 2024"
    cites = "keller2024"
    look = "longdash star"
    affine_if = {"activation": "identity", "block": None}
    family = "plain"
    learns = Learns(
        "adding",
        0.3,
        {"channels": 4, "hidden_size": 32, "learning_rate": 1e-3},
        gate={"channels": 4, "hidden_size": 16, "learning_rate": 3e-3},
    )
    Settings = WRNNSettings

    def __init__(self, settings: WRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n, c, m = settings.hidden_size, settings.channels, signature.input_size
        self.channels, self.activation = c, _ACTIVATIONS[settings.activation]
        self.layers = wave_layers(c, n)
        self.forms_weight = not is_worth_applying(self.layers)
        taps = torch.zeros(c, c, 3)
        if settings.initialization == "linear":
            torch_linear_(taps, 3 * c, generator)
        else:
            taps[:, :, 2 if settings.initialization == "shift" else 1] = torch.eye(c)
        self.taps = nn.Parameter(taps)
        self.channel_bias = nn.Parameter(torch_linear_(torch.empty(c), 3 * c, generator))
        with torch.no_grad():
            if settings.encoder_start == "solo":
                self.input_weight.zero_().view(c, n, m)[:, 0] = 1.0
            else:
                nn.init.normal_(self.input_weight, std=1e-3, generator=generator)
                torch_linear_(self.bias, m, generator)
        if signature.output_size:
            torch_linear_(self.output_weight, c * n, generator)

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, WRNNSettings)
        return settings.channels * settings.hidden_size

    def weight(self) -> Tensor:
        n, c = self.hidden_size, self.channels
        units = torch.eye(n, dtype=self.taps.dtype, device=self.taps.device)
        shifts = torch.stack([units.roll(s, 1) for s in (-1, 0, 1)])  # h_{i+s} in row i
        return torch.einsum("oks,sij->oikj", self.taps, shifts).reshape(c * n, c * n)

    def layer_weight(self) -> Tensor:
        numbers = self.taps.permute(1, 2, 0).flatten(0, 1)  # of the taps (k, s), `[3c, c]`
        return numbers.repeat_interleave(self.hidden_size, 1)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        bias = self.bias + self.channel_bias.repeat_interleave(self.hidden_size)
        return self._recur(inputs, state, trace, bias)


@cache
def wave_layers(channels: int, size: int) -> SparseLayers:
    """Return the layer of wRNN: unit (o, i) reads the units (k, i + s) of all channels k, for s = -1, 0 and 1."""
    units = torch.arange(channels * size, device="cpu").view(channels, size)
    taps = torch.stack([units.roll(s, 1) for s in (1, 0, -1)], 1).flatten(0, 1)
    return SparseLayers((taps.repeat(1, channels),))
