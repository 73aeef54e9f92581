"""Stacks of layers of one cell, with or without a block around each cell.

Without blocks (`layers=2`) a layer reads the outputs y^k of the layer below: x^1_t = u_t, x^{k+1} = dropout(y^k). With
blocks a linear map turns the inputs into d features, and every block reads and writes d features:

    x^1_t = E u_t + e
    residual:   x^{k+1} = x^k + dropout(GLU(dropout(GELU(cell_k(norm(x^k))))))
    post_norm:  z = x^k + P cell_k(x^k),   x^{k+1} = dropout(norm(z + tanh(L z + l)))

GLU(y) = (A y + a) o sigmoid(C y + c) maps the n outputs of the cell to d features. P is the identity if n = d, and
otherwise a matrix `[d, n]`. The output map reads x^{L+1}. The residual block follows the programs of LRU (Orvieto et
al., ICML 2023) and LinOSS (Rusch and Rus, ICLR 2025), and the other block follows SLiCE's program (Walker et al. 2025).
All maps start as torch's Linear. As in SLiCE, there is no map E if an embedding already has d features. Batch
statistics exclude padding, and evaluation uses running statistics. The JAX programs use the tanh approximation of GELU;
here GELU is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, glu, linear

from orthobench.matrices.initial import torch_linear_
from orthobench.model.base import Model, ModelSettings, ParameterGroup, Signature, State
from orthobench.model.norm import build_norm
from orthobench.recurrence import GradientTrace, project, unread
from orthobench.sequences import valid_steps


class StackedLayer(nn.Module):
    """A cell whose outputs the next layer reads, with dropout between the two.

    Args:
        size: the number of features that the layer reads.
        is_last: whether it is the last layer.
    """

    def __init__(self, cell: Model, settings: ModelSettings, size: int, generator: torch.Generator, is_last: bool):
        super().__init__()
        self.cell, self.probability = cell, settings.dropout
        self.is_last = is_last

    def forward(
        self, x: Tensor, state: State, trace: GradientTrace | None, valid: Tensor | None
    ) -> tuple[Tensor, State]:
        """Return the features that the next layer reads, `[T, B, features]`, and the cell's final state.

        If the model reads only the last step, the last layer returns only this step, `[1, B, features]`.

        Args:
            x: the features below, `[T, B, size]`.
            valid: whether a step is valid, not padding, `[T, B, 1]`; None if all are.
        """
        y, final = self.run(x, state, trace)
        return (y if self.is_last else self.drop(y)), final

    def run(self, x: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        """Return the cell's outputs `[T, B, n]`, or `[1, B, n]` of the last step, and its final state."""
        outputs, final = self.cell.states(x, state, trace)
        read = self.cell.readout(outputs, final)
        return (read[None] if read.dim() == 2 else read), final

    def drop(self, x: Tensor) -> Tensor:
        """Return x, with dropout in training."""
        return dropout(x, self.probability, self.training) if self.probability else x


class ResidualBlock(StackedLayer):
    """Norm, cell, GELU, dropout, GLU, dropout, skip."""

    def __init__(self, cell: Model, settings: ModelSettings, size: int, generator: torch.Generator, is_last: bool):
        super().__init__(cell, settings, size, generator, is_last)
        features = cell.output_features(settings)
        self.norm = build_norm(settings.block_norm, size)
        self.gate_weight, self.gate_bias = linear_map(features, 2 * size, generator)

    def forward(
        self, x: Tensor, state: State, trace: GradientTrace | None, valid: Tensor | None
    ) -> tuple[Tensor, State]:
        y, final = self.run(self.norm(x, valid), state, trace)
        z = glu(linear(self.drop(gelu(y)), self.gate_weight, self.gate_bias))
        return last_of(x, z.shape[0]) + self.drop(z), final


class PostNormBlock(StackedLayer):
    """Cell, skip, tanh of a linear map, skip, norm, dropout."""

    def __init__(self, cell: Model, settings: ModelSettings, size: int, generator: torch.Generator, is_last: bool):
        super().__init__(cell, settings, size, generator, is_last)
        features = cell.output_features(settings)
        self.projection = None if features == size else linear_map(features, size, generator)[0]
        self.map_weight, self.map_bias = linear_map(size, size, generator)
        self.norm = build_norm(settings.block_norm, size)

    def forward(
        self, x: Tensor, state: State, trace: GradientTrace | None, valid: Tensor | None
    ) -> tuple[Tensor, State]:
        y, final = self.run(x, state, trace)
        z = last_of(x, y.shape[0]) + (y if self.projection is None else linear(y, self.projection))
        z = z + linear(z, self.map_weight, self.map_bias).tanh()
        return self.drop(self.norm(z, valid)), final


def last_of(x: Tensor, steps: int) -> Tensor:
    """Return the last steps of x, or x itself if these are all, because the gradient of a slice is a copy."""
    return x if x.shape[0] == steps else x[-steps:]


KINDS: dict[str | None, type[StackedLayer]] = {
    None: StackedLayer,
    "residual": ResidualBlock,
    "post_norm": PostNormBlock,
}


class Stack(Model):
    """A model of several layers; `stack_of` creates the subclass for a cell.

    Layers have numbers from 1, the lowest, in the names of matrices ("1.W") and of states ("1.h"). The state consists
    of the tensors of all cells, lowest first. A trace receives the states of the last layer under their own names, and
    the states of the layers below under names with the layer's number.

    Attributes:
        cell: the class of the cells.
    """

    cell: ClassVar[type[Model]]
    encoder_weight: nn.Parameter | None

    def __init__(self, settings: ModelSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        size, kind = signature.input_size, KINDS[settings.block]
        self.encoder_weight = None
        if settings.block is not None and not (settings.embedding_size and size == settings.block_size):
            self.encoder_weight, self.encoder_bias = linear_map(size, settings.block_size, generator)
            size = settings.block_size
        counts_all = settings.block == "post_norm" and settings.block_norm == "batch"  # the last norm reads every step
        self.layers = nn.ModuleList()
        for number in range(1, settings.layers + 1):
            is_last = number == settings.layers
            is_short = is_last and signature.readout == "last" and not counts_all
            shapes = Signature(size, 0, "last" if is_short else "all")
            self.layers.append(kind(self.cell(settings, shapes, generator), settings, size, generator, is_last))
            size = size if settings.block is not None else self.cell.output_features(settings)
        cells = list(self.cells())
        self.step_matrices = tuple(f"{k}.{name}" for k, cell in enumerate(cells, 1) for name in cell.step_matrices)
        self._tensors = len(cells[0].initial_state(1))
        self._has_blocks = settings.block is not None
        self._has_statistics = self._has_blocks and settings.block_norm == "batch"
        self._valid: Tensor | None = None  # which steps of the current batch are valid, for batch statistics

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        return settings.layers * cls.cell.state_features(settings)

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return cls.cell.output_features(settings) if settings.block is None else settings.block_size

    def cells(self) -> Iterator[Model]:
        """Yield the cells, the lowest first."""
        for layer in self.layers:
            assert isinstance(layer, StackedLayer)
            yield layer.cell

    def initial_state(self, batch_size: int) -> State:
        return tuple(tensor for cell in self.cells() for tensor in cell.initial_state(batch_size))

    def state_parts(self) -> dict[str, slice]:
        parts, start = {}, 0
        for number, cell in enumerate(self.cells(), 1):
            for name, part in cell.state_parts().items():
                parts[f"{number}.{name}"] = slice(start + part.start, start + part.stop)
            start += sum(part.shape[-1] for part in cell.initial_state(1))
        return parts

    @contextmanager
    def padded(self, lengths: Tensor | None, steps: int) -> Iterator[None]:
        """Tell the batch norms which steps are valid."""
        if lengths is not None and self._has_statistics:
            self._valid = valid_steps(lengths, steps).unsqueeze(-1)
        try:
            yield
        finally:
            self._valid = None

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = inputs if self.encoder_weight is None else project(inputs, self.encoder_weight, self.encoder_bias)
        finals: State = ()
        for number, layer in enumerate(self.layers, 1):
            own = state[(number - 1) * self._tensors : number * self._tensors]
            below = None if trace is None or number == len(self.layers) else GradientTrace(trace.of_sum)
            with nullcontext() if number == len(self.layers) else unread():
                x, final = layer(x, own, trace if below is None else below, self._valid)
            finals += final
            if trace is not None and below is not None:
                trace.norms.update({f"{number}.{name}": norms for name, norms in below.norms.items()})
                trace.sums.update({f"{number}.{name}": norms for name, norms in below.sums.items()})
        return x, finals

    def maps_every_output(self) -> bool:
        return self.signature.readout == "all" and not self._has_blocks and self.cell.readout is Model.readout

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def penalty(self) -> Tensor | None:
        penalties = [penalty for cell in self.cells() if (penalty := cell.penalty()) is not None]
        return torch.stack(penalties).sum() if penalties else None

    def after_step(self) -> None:
        for cell in self.cells():
            cell.after_step()

    def retract(self) -> None:
        for cell in self.cells():
            cell.retract()

    def fix_weights(self) -> None:
        for cell in self.cells():
            cell.fix_weights()

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return the groups of every cell, preceded by a group of the parameters around the cells."""
        groups = [ParameterGroup(self._own_parameters(), self.optimizer, self.learning_rate)]
        return groups + [group for cell in self.cells() for group in cell.parameter_groups()]

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return {
            f"{number}.{name}": matrix
            for number, cell in enumerate(self.cells(), 1)
            for name, matrix in cell.recurrent_matrices().items()
        }

    def parameter_count(self) -> int:
        own = sum(parameter.numel() for parameter in self._own_parameters() if parameter.requires_grad)
        return own + sum(cell.parameter_count() for cell in self.cells())

    def _own_parameters(self) -> list[nn.Parameter]:
        of_cells = {id(parameter) for cell in self.cells() for parameter in cell.parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in of_cells]


def linear_map(inputs: int, outputs: int, generator: torch.Generator) -> tuple[nn.Parameter, nn.Parameter]:
    """Draw a weight `[outputs, inputs]` and a bias `[outputs]` as torch's Linear does."""
    weight, bias = torch.empty(outputs, inputs), torch.empty(outputs)
    return (
        nn.Parameter(torch_linear_(weight, inputs, generator)),
        nn.Parameter(torch_linear_(bias, inputs, generator)),
    )


@functools.cache
def stack_of(model: type[Model], cell: type[Model]) -> type[Stack]:
    """Return the class of a model's stacks of this cell, with the model's title, paper and guarantees."""
    same = ("version", "title", "paper", "orthogonal", "penalises_weights", "cost", "waits", "Settings")
    members: dict[str, Any] = {name: getattr(model, name) for name in same}
    return type(f"{model.__name__}Stack", (Stack,), {**members, "cell": cell, "__doc__": Stack.__doc__})
