"""What a model plugin is: an input map, a recurrence, an output map, and how its parameters are trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.initial import glorot_vector_, torch_linear_
from orthobench.recurrence import GradientTrace, project
from orthobench.recurrence import State as State
from orthobench.settings import Settings

OptimizerName = Literal[
    "adagrad_tf1",
    "adam",
    "adam_tf1",
    "cayley",
    "cayley_rmsprop_keras1",
    "rmsprop_keras1",
    "rmsprop_lasagne",
    "rmsprop_scurnn",
    "rmsprop_tf1",
    "rmsprop_theano",
    "rmsprop_torch",
    "sgd",
    "sgd_momentum",
]
"""The optimisers that `orthobench.training.optimizers` makes, by name."""

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
OutputBias = Literal["zeros", "glorot", "linear", "truncated_normal", "constant"]


class ModelSettings(Settings):
    """The settings every model has; a model's own come in a subclass."""

    hidden_size: Count = Field(128, description="number of hidden units n")
    optimizer: OptimizerName = Field(
        "rmsprop_tf1", description="optimiser of all parameters without an optimiser of their own"
    )
    learning_rate: Positive = Field(
        1e-3, description="learning rate of all parameters without a learning rate of their own"
    )
    output_bias: OutputBias = Field(
        "zeros",
        description="start of the output bias; glorot: U(-sqrt(3/p), sqrt(3/p)), as in the copying programs; linear: "
        "as torch.nn.Linear; truncated_normal: N(0, 0.1^2) cut off at 0.2, as in Spectral RNN's program; "
        "constant: 0.01, as in EURNN's",
    )
    embedding_size: Count | None = Field(
        None,
        description="e, size of a trained linear embedding of the inputs; none: no embedding",
        json_schema_extra={"neutral": None, "tied_to": "hidden_size"},
    )


@dataclass(frozen=True)
class Signature:
    """What a task asks of a model: inputs `[T, B, input_size]`, and outputs of `output_size`.

    readout "last": outputs `[B, output_size]` after the last step; "all": `[T, B, output_size]`.
    """

    input_size: int
    output_size: int
    readout: Literal["last", "all"]


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that share an optimiser, its learning rate and a weight decay (d w is added to their gradient)."""

    parameters: list[nn.Parameter]
    optimizer: OptimizerName
    learning_rate: float
    weight_decay: float = 0.0


class Model(nn.Module, ABC):
    """Base of the model plugins: subclasses make the states, this makes the outputs y = V h + c.

    Class attributes: `version`, raised whenever the same settings come to mean other numbers; `title` and `paper`, what
    it is and the reference; `Settings`, the hyper-parameters; `orthogonal`, whether every recurrent matrix is
    orthogonal by construction, before and after training; `cost`, why a training step takes several times scoRNN's,
    where it does. Every random draw of `__init__` comes from the generator it is given.
    """

    version: ClassVar[int] = 1
    title: ClassVar[str]
    paper: ClassVar[str]
    orthogonal: ClassVar[bool] = False
    cost: ClassVar[str] = ""
    Settings: ClassVar[type[ModelSettings]] = ModelSettings

    def __init__(self, settings: ModelSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__()
        self.signature = signature
        self.embedding: nn.Parameter | None = None
        self.hidden_size = settings.hidden_size
        self.features = self.state_features(settings)
        self.optimizer = settings.optimizer
        self.learning_rate = settings.learning_rate
        self.output_weight = nn.Parameter(torch.empty(signature.output_size, self.output_features(settings)))
        self.output_bias = nn.Parameter(torch.zeros(signature.output_size))
        nn.init.xavier_uniform_(self.output_weight, generator=generator)
        match settings.output_bias:
            case "glorot":
                glorot_vector_(self.output_bias, generator)
            case "linear":
                torch_linear_(self.output_bias, self.output_weight.shape[1], generator)
            case "truncated_normal":
                nn.init.trunc_normal_(self.output_bias, std=0.1, a=-0.2, b=0.2, generator=generator)
            case "constant":
                nn.init.constant_(self.output_bias, 0.01)

    @classmethod
    def build(cls, settings: ModelSettings, signature: Signature, generator: torch.Generator) -> Self:
        """The model that the settings ask for: with an embedding E `[e, m]`, U(-0.1, 0.1), it reads E x_t.

        The start is that of the nnRNN program's embedding of characters.
        """
        if settings.embedding_size is None:
            return cls(settings, signature, generator)
        model = cls(settings, replace(signature, input_size=settings.embedding_size), generator)
        embedding = torch.empty(settings.embedding_size, signature.input_size)
        model.embedding = nn.Parameter(nn.init.uniform_(embedding, -0.1, 0.1, generator=generator))
        return model

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        """How many real features h has: two for each unit where units are complex."""
        return settings.hidden_size

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        """How many features the output map reads."""
        return cls.state_features(settings)

    def initial_state(self, batch_size: int) -> State:
        """The state before the first step: zeros `[B, features]`, unless a model says otherwise."""
        return (self.output_weight.new_zeros(batch_size, self.features),)

    def state_parts(self) -> dict[str, slice]:
        """The parts of the state that are looked at apart: by name, which features of its tensors side by side."""
        return {"h": slice(0, self.features)}

    @abstractmethod
    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        """Run the recurrence over inputs `[T, B, m]` from a state, and pass the trace to it.

        Returns:
            The outputs of all steps, `[T, B, n]`, and the final state, as the recurrences do.
        """

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        """Return the features that the output map reads: `[B, n]` of the last step, or `[T, B, n]` of all steps.

        For the last step these are the first tensor of the final state: its gradient spares the recurrence one of the
        size of all outputs. A model whose output map reads something else overrides this.
        """
        return final[0] if self.signature.readout == "last" else outputs

    def forward(
        self, inputs: Tensor, state: State | None = None, trace: GradientTrace | None = None
    ) -> tuple[Tensor, State]:
        """The outputs that the signature asks for, and the final state, from the given or the model's own start."""
        if self.embedding is not None:
            inputs = project(inputs, self.embedding)
        outputs, final = self.states(inputs, state or self.initial_state(inputs.shape[1]), trace)
        return nn.functional.linear(self.readout(outputs, final), self.output_weight, self.output_bias), final

    def penalty(self) -> Tensor | None:
        """What training adds to the task's loss, a scalar; nothing by default."""
        return None

    def after_step(self) -> None:
        """Keep a constraint after the optimisers' step; nothing by default. Called without gradients."""

    def parameter_groups(self) -> list[ParameterGroup]:
        """Which optimiser and learning rate each parameter gets; every trainable parameter in exactly one group."""
        return [ParameterGroup(list(self.parameters()), self.optimizer, self.learning_rate)]

    @abstractmethod
    def recurrent_matrices(self) -> dict[str, Tensor]:
        """The square matrices that the state is multiplied by, by name ("W"; for gated cells one per gate).

        Complex ones are given as such, `[n, n]`.
        """

    def parameter_count(self) -> int:
        """Trainable real numbers, as the papers count them: a constrained matrix by its manifold's dimension."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
