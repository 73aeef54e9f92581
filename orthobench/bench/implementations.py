"""A training step of each implementation, with the same parameters, data and update but a different recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy as torch_cross_entropy
from torch.nn.functional import linear, mse_loss

from orthobench.bench.shapes import Shape
from orthobench.matrices.initial import half_circle_angles
from orthobench.matrices.skew import block_rotation_entries, minus_ones_last, scaled_cayley
from orthobench.recurrence import MODRELU, Projection, cross_entropy, lstm, reading, recurrence, use_backend
from orthobench.training.graph import WARM_UP, CudaRecorder, StepGraph
from orthobench.training.optimizers import build_optimizer

SEED = 0
EAGER = "eager loop"
StartAndMap = tuple[Tensor, Callable[[Tensor], Tensor]]
"""The initial value of a parameter, and the map from it to the recurrent matrix W `[n, n]`."""


class Network(nn.Module):
    """y = V h + c over the states of a subclass: h_T `[B, n]`, or all states `[T, B, n]` if the shape reads all.

    With `linear` torch's own function computes y.
    """

    gates = 1
    linear = True
    cross_entropy: Callable[..., Tensor] = staticmethod(torch_cross_entropy)

    def __init__(self, shape: Shape, device: torch.device, backend: str = "auto") -> None:
        super().__init__()
        self.shape, self.device, self.backend = shape, device, backend
        self.generator = torch.Generator().manual_seed(SEED)
        self.output_weight = self.uniform(shape.outputs, shape.hidden)
        self.output_bias = nn.Parameter(torch.zeros(shape.outputs))

    def uniform(self, *size: int) -> nn.Parameter:
        bound = 1 / math.sqrt(self.shape.hidden)
        return nn.Parameter(torch.empty(size).uniform_(-bound, bound, generator=self.generator))

    @property
    def last(self) -> bool:
        return self.shape.readout == "last"

    def start(self, inputs: Tensor) -> Tensor:
        return inputs.new_zeros(inputs.shape[1], self.shape.hidden)

    def states(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Tensor:
        output_map = self.output_weight, self.output_bias
        with use_backend(self.backend), reading(*output_map, in_loop=not self.last) as read:
            states = self.states(inputs)
            return linear(states, *output_map) if self.linear else read(states)


def cayley(n: int, generator: Generator, device: torch.device) -> StartAndMap:
    """Return scoRNN's parameter and its scaled Cayley transform."""
    signs = minus_ones_last(n, n // 2).to(device)
    return rotations(n, generator, device), lambda upper: scaled_cayley(upper, signs)


def rotations(n: int, generator: Generator, device: torch.device) -> Tensor:
    """Draw scoRNN's initial skew-symmetric matrix."""
    s = torch.tan(half_circle_angles(n, generator) / 2)
    return block_rotation_entries(s, n).float().to(device)


class ScoRNNNetwork(Network):
    linear = False
    cross_entropy: Callable[..., Tensor] = staticmethod(cross_entropy)

    def __init__(self, shape: Shape, device: torch.device, backend: str = "auto") -> None:
        super().__init__(shape, device, backend)
        self.input_weight = self.uniform(shape.hidden, shape.inputs)
        self.bias = nn.Parameter(torch.zeros(shape.hidden))
        start, self.recurrent_weight = cayley(shape.hidden, self.generator, device)
        self.parameter = nn.Parameter(start)

    def states(self, inputs: Tensor) -> Tensor:
        weight = self.recurrent_weight(self.parameter)
        x = Projection(inputs, self.input_weight)
        outputs, (final,) = recurrence(x, weight, (self.start(inputs),), None, MODRELU, self.bias)
        return final if self.last else outputs


class EagerScoRNN(ScoRNNNetwork):
    """The fastest plain loop: one projection of all inputs, unbound because indexing costs T times T, and one W^T."""

    linear = True
    cross_entropy = staticmethod(torch_cross_entropy)

    def states(self, inputs: Tensor) -> Tensor:
        transposed = self.recurrent_weight(self.parameter).T.contiguous()
        h, states = self.start(inputs), []
        for x_t in linear(inputs, self.input_weight).unbind(0):
            z = torch.addmm(x_t, h, transposed)
            h = z.sign() * (z.abs() + self.bias).relu()
            states.append(h)
        return h if self.last else torch.stack(states)


class LSTMNetwork(Network):
    gates = 4
    linear = False
    cross_entropy: Callable[..., Tensor] = staticmethod(cross_entropy)

    def __init__(self, shape: Shape, device: torch.device, backend: str = "auto") -> None:
        super().__init__(shape, device, backend)
        self.input_weight = self.uniform(4 * shape.hidden, shape.inputs)
        self.recurrent_weight = self.uniform(4 * shape.hidden, shape.hidden)
        self.bias = self.uniform(4 * shape.hidden)

    def states(self, inputs: Tensor) -> Tensor:
        x, zeros = Projection(inputs, self.input_weight, self.bias), self.start(inputs)
        outputs, (final, _) = lstm(x, self.recurrent_weight, (zeros, zeros))
        return final if self.last else outputs


class EagerLSTM(LSTMNetwork):
    linear = True
    cross_entropy = staticmethod(torch_cross_entropy)

    def states(self, inputs: Tensor) -> Tensor:
        transposed = self.recurrent_weight.T.contiguous()
        h, states = self.start(inputs), []
        c = h
        for x_t in linear(inputs, self.input_weight, self.bias).unbind(0):
            i, f, g, o = torch.addmm(x_t, h, transposed).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(h)
        return h if self.last else torch.stack(states)


class TorchRNN(Network):
    """`nn.RNN` with tanh: a free W, so less work than scoRNN's step."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        super().__init__(shape, device)
        self.rnn = nn.RNN(shape.inputs, shape.hidden)

    def states(self, inputs: Tensor) -> Tensor:
        states, final = self.rnn(inputs)
        read: Tensor = final[0] if self.last else states
        return read


class TorchLSTM(Network):
    gates = 4

    def __init__(self, shape: Shape, device: torch.device) -> None:
        super().__init__(shape, device)
        self.lstm = nn.LSTM(shape.inputs, shape.hidden)

    def states(self, inputs: Tensor) -> Tensor:
        states, (final, _) = self.lstm(inputs)
        read: Tensor = final[0] if self.last else states
        return read


def in_graph(step: Callable[[], None], device: torch.device, required: bool = True) -> Callable[[], object]:
    """Return a function that replays a step on CUDA, which is recorded as training records its own.

    Args:
        step: runs the step without waiting for the device.
        required: raise an error if the step cannot be recorded. Otherwise it runs eagerly, with a warning.

    Raises:
        UsageError: the graph is required, and the step cannot be recorded.
    """

    def without_results() -> tuple[Tensor, ...]:
        step()
        return ()

    graph = StepGraph(without_results, CudaRecorder(device), required)
    for _ in range(WARM_UP + 1):
        graph()
    return graph


class TrainingStep:
    """Forward, backward and update on one batch of random data; returns when the device is done.

    Args:
        graph: replay the step as a CUDA graph, as training does.
    """

    def __init__(self, network: Network, graph: bool = False) -> None:
        shape, device = network.shape, network.device
        generator = torch.Generator().manual_seed(SEED + 1)
        self.network, self.device = network.to(device), device
        self.inputs = torch.randn(shape.steps, shape.batch, shape.inputs, generator=generator).to(device)
        rows = (shape.batch,) if shape.readout == "last" else (shape.steps, shape.batch)
        if shape.outputs == 1:
            self.targets = torch.randn(*rows, 1, generator=generator).to(device)
        else:
            self.targets = torch.randint(shape.outputs, rows, generator=generator).to(device)
        self.parameters = list(network.parameters())
        self.optimizer = build_optimizer("rmsprop_tf1", self.parameters, 1e-4)
        self.run = in_graph(self.train, device) if graph else self.train

    def gradients(self) -> Tensor:
        """Leave the loss's gradients in the parameters and return the loss; cuDNN also computes in float32."""
        if self.device.type != "cuda":
            return self._gradients()
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return self._gradients()

    def _gradients(self) -> Tensor:
        outputs = self.network(self.inputs)
        if self.network.shape.outputs == 1:
            loss = mse_loss(outputs, self.targets)
        else:
            with use_backend(self.network.backend):
                loss = self.network.cross_entropy(outputs.flatten(0, -2), self.targets.flatten())
        for parameter in self.parameters:  # as training does it
            parameter.grad = None
        loss.backward()
        return loss.detach()

    def train(self) -> None:
        """Train on the batch, without waiting for the device."""
        self.gradients()
        self.optimizer.step()

    def __call__(self) -> None:
        self.run()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def implementations(shape: Shape, device: torch.device) -> dict[str, Callable[[], TrainingStep]]:
    """Return the implementations of this shape's training step on this device by name.

    Each is a function that returns the step, or raises a ValueError or RuntimeError with the reason why it cannot.
    """
    backends = ("reference", "cuda" if device.type == "cuda" else "cpu")
    network, eager = (LSTMNetwork, EagerLSTM) if shape.cell == "lstm" else (ScoRNNNetwork, EagerScoRNN)

    def by_backend(backend: str) -> TrainingStep:
        size = network.gates * shape.hidden
        x, weight = torch.empty(1, 1, size, device=device), torch.empty(size, shape.hidden, device=device)
        with use_backend(backend):
            (lstm if shape.cell == "lstm" else recurrence).chosen_backend(x, weight)
        return TrainingStep(network(shape, device, backend))

    makers: dict[str, Callable[[], TrainingStep]] = {EAGER: lambda: TrainingStep(eager(shape, device))}
    makers |= {backend: partial(by_backend, backend) for backend in backends}
    if device.type == "cuda":
        makers["cuda, graph"] = lambda: TrainingStep(network(shape, device, "cuda"), graph=True)
    if shape.cell == "scornn":
        makers["nn.RNN"] = lambda: TrainingStep(TorchRNN(shape, device))
    makers["nn.LSTM"] = lambda: TrainingStep(TorchLSTM(shape, device))
    return makers
