"""The base class of models: an input map, a recurrence, an output map, and the optimisers of its parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.errors import unknown, wrong_value
from orthobench.matrices.initial import glorot_vector_, torch_linear_
from orthobench.recurrence import GradientTrace, project, reading
from orthobench.recurrence import State as State
from orthobench.sequences import last_valid, mean_of_valid, one_hot, steps_at
from orthobench.settings import Settings

OptimizerName = Literal[
    "adagrad_tf1",
    "adam",
    "adam_nnrnn",
    "adam_tf1",
    "adamw",
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
"""The names of the optimisers of `orthobench.training.optimizers`."""

Family = Literal["gated", "orthogonal", "linear", "ODE", "plain"]
"""The kinds of recurrence; linear: in the state, ODE: a discretised differential equation."""
Readout = Literal["last", "all", "last_valid", "mean", "positions"]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
OutputBias = Literal["zeros", "glorot", "linear", "truncated_normal", "constant"]


class ModelSettings(Settings):
    """The settings that every model has; a subclass adds the settings of one model."""

    hidden_size: Count = Field(128, description="number of hidden units n")
    optimizer: OptimizerName = Field(
        "rmsprop_tf1", description="optimiser of all parameters that have no separate optimiser"
    )
    learning_rate: Positive = Field(
        1e-3, description="learning rate of all parameters that have no separate learning rate"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="adamw: share of each weight that a step removes, times the learning rate",
        json_schema_extra={"neutral": 0.0},
    )
    decay_exempt: Literal["embedding", "vectors"] | None = Field(
        None,
        description="adamw: parameters without weight decay; embedding: input embedding; vectors: the embedding and "
        "all parameters that are stored as vectors, such as biases, norms and initial states; none: all decay",
        json_schema_extra={"neutral": None},
    )
    output_bias: OutputBias = Field(
        "zeros",
        description="start of the output bias; glorot: U(-sqrt(3/p), sqrt(3/p)), as in the copying programs; linear: "
        "as torch.nn.Linear; truncated_normal: N(0, 0.1^2) cut off at 0.2, as in Spectral RNN's program; "
        "constant: 0.01, as in EURNN's",
    )
    output_weight: Literal["glorot", "linear"] | None = Field(
        None,
        description="start of the output weight; glorot: Glorot-uniform; linear: as torch.nn.Linear; none: as "
        "the model's page says, Glorot-uniform by default",
        json_schema_extra={"neutral": None},
    )
    embedding_size: Count | None = Field(
        None,
        description="e, size of a trained linear embedding of the inputs; none: no embedding",
        json_schema_extra={"neutral": None, "tied_to": "hidden_size"},
    )
    embedding_start: Literal["uniform", "normal"] = Field(
        "uniform",
        description="start of the embedding; uniform: U(-0.1, 0.1), as in nnRNN's program; normal: N(0, 1), as in "
        "torch.nn.Embedding",
        json_schema_extra={"neutral": "uniform", "needs": "embedding_size"},
    )
    layers: Count = Field(
        1, description="L, number of stacked cells; each reads the outputs below it", json_schema_extra={"neutral": 1}
    )
    block: Literal["residual", "post_norm"] | None = Field(
        None,
        description="block around each cell; residual: norm, cell, GELU, dropout, GLU, dropout, skip, as in LRU's and "
        "LinOSS's programs; post_norm: cell, skip, tanh of a linear map, skip, norm, dropout, as in SLiCE's; "
        "none: the cell alone",
        json_schema_extra={"neutral": None},
    )
    block_size: Count = Field(128, description="d, features between blocks", json_schema_extra={"neutral": 128})
    block_norm: Literal["layer", "batch"] | None = Field(
        "layer",
        description="normalisation of a block; layer: over the features, with a trained scale and shift; batch: over "
        "the sequences and their valid steps, without scale and shift; none: no normalisation",
        json_schema_extra={"neutral": "layer"},
    )
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="probability of dropping a feature in training, in each block or, without blocks, between layers",
        json_schema_extra={"neutral": 0.0},
    )

    @model_validator(mode="after")
    def _block_fits(self) -> ModelSettings:
        neutral = self.neutral()
        for name in ("block_size", "block_norm"):
            if self.block is None and name in neutral and getattr(self, name) != neutral[name]:
                raise ValueError(f"{name}={getattr(self, name)} needs blocks: add block=residual, or leave it out")
        if self.dropout and self.layers == 1 and self.block is None:
            raise ValueError(
                f"dropout={self.dropout} acts in blocks or between layers: add block=residual or layers=2, or "
                "leave it out"
            )
        return self

    @model_validator(mode="after")
    def _embedding_fits(self) -> ModelSettings:
        if self.embedding_start != "uniform" and self.embedding_size is None:
            raise ValueError(
                f"embedding_start={self.embedding_start} needs an embedding: add embedding_size, or give "
                "embedding_start=uniform"
            )
        return self

    @property
    def is_stack(self) -> bool:
        """Whether a model with these settings has several layers or a block."""
        return self.layers > 1 or self.block is not None


@dataclass(frozen=True)
class Signature:
    """The shapes that a task requires of a model: inputs `[T, B, input_size]`, and outputs by the readout.

    | readout | outputs |
    | --- | --- |
    | last | `[B, output_size]`, after the last step |
    | all | `[T, B, output_size]`, after every step |
    | last_valid | `[B, output_size]`, after each sequence's last valid step |
    | mean | `[B, output_size]`, the mean over the valid steps |
    | positions | `[A, B, output_size]`, after the A steps that the batch names for each sequence |

    With `tokens` the inputs are symbol numbers `[T, B]` from 0 to input_size - 1. A layer has no output map: its
    `output_size` is 0.

    Raises:
        UsageError: no readout has this name.
    """

    input_size: int
    output_size: int
    readout: Readout
    tokens: bool = False

    def __post_init__(self) -> None:
        if self.readout not in get_args(Readout):
            raise unknown("readout", str(self.readout), get_args(Readout))

    def output_shape(self, steps: int, batch_size: int, answers: int = 1) -> tuple[int, ...]:
        """Return the shape of the outputs for inputs of T steps; `answers` is the A of readout "positions"."""
        rows = {"all": (steps,), "positions": (answers,)}.get(self.readout, ())
        return *rows, batch_size, self.output_size


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with a common optimiser, learning rate and weight decay d.

    d w is added to the gradient of w. `adamw` subtracts d times the learning rate times w instead (decoupled decay).
    """

    parameters: list[nn.Parameter]
    optimizer: OptimizerName
    learning_rate: float
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Learns:
    """A task that a model learns at a small size, as evidence that it works.

    Attributes:
        task: the name of the task.
        share: the share of the task's baseline below which a run of about a minute ends, with the model's own defaults.
        settings: settings of that run other than the defaults, for example a learning rate.
        gate: settings with which every seed learns the task in a few seconds at the size of the project's gate,
            `checks/baseline.toml`, other than the gate's own.
    """

    task: str
    share: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    gate: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SecondAxis:
    """What a tuned comparison tries of a model besides the learning rate: one thing that decides whether it learns.

    Attributes:
        values: at most three, each as settings.
        source: the paper or program that the values come from.
    """

    values: tuple[Mapping[str, Any], ...]
    source: str


class Model(nn.Module, ABC):
    """The base class of model plugins: a subclass runs the recurrence, and this class computes the outputs y = V h + c.

    `__init__` draws all random numbers from the generator that it is given.

    Attributes:
        version: raise it whenever the same settings give different numbers.
        title: the model's name on pages and in tables.
        paper: the reference.
        step_matrices: names of the recurrent matrices by which a step multiplies the state, h_t = act(W h + ...);
            not those inside a gate or a derivative. Their distance from orthogonal is measured apart from the others'.
        bounded_parts: parts h of the state that a step maps to act(W h + U x + b), with |act'| <= 1 and U the rows of
            `input_weight`: the name of each part's W. Their gradients have a bound that follows from W.
        euler_step: eps, if a step h + eps f(h, x) is a forward Euler step of dh/dt = f(h, x); else 0.
        Settings: the hyper-parameters.
        orthogonal: whether every recurrent matrix is orthogonal by construction, before and after training.
        matrix_parameters: names of the parameters from which its constrained recurrent matrices are computed.
        matrix_methods: names of the methods that compute its recurrent matrices from the parameters alone, so that
            several parts of a sequence can share their results.
        penalises_weights: whether `penalty` reads the setting `weight_decay`; adamw then decays nothing.
        cost: the reason why a training step takes several times scoRNN's, if it does.
        waits: the reason why the host waits for a GPU in each training step, if it does. Such a step cannot be part
            of a CUDA graph.
        cites: the keys of its papers in `orthobench/papers/references.bib`, such as "yang2024, schlag2021", the paper
            that defines it first. Only built-in models have keys.
        look: the dash of its lines and the symbol of its points in figures, such as "dash square"; the colour follows
            from the two. A model without a look gets a free one in each report.
        affine_if: values of settings with which the outputs are an affine function of the inputs, whatever the
            weights; None if no setting makes them so. Tables then say that the model cannot solve some tasks.
        family: the kind of recurrence by which tables group it. Only built-in models have one.
        learns: what it is known to learn; tests and the gate train every built-in model on it.
        second_axis: what a tuned comparison tries besides the learning rate; None for a model with a separate rate for
            its recurrent matrix, whose share is tried, and for a model without a setting that decides.
    """

    version: ClassVar[int] = 1
    title: ClassVar[str]
    paper: ClassVar[str]
    orthogonal: ClassVar[bool] = False
    step_matrices: tuple[str, ...] = ("W",)
    bounded_parts: ClassVar[Mapping[str, str]] = {}
    euler_step: float = 0.0
    matrix_parameters: ClassVar[tuple[str, ...]] = ()
    matrix_methods: ClassVar[tuple[str, ...]] = ()
    penalises_weights: ClassVar[bool] = False
    cost: ClassVar[str] = ""
    waits: ClassVar[str] = ""
    cites: ClassVar[str] = ""
    look: ClassVar[str] = ""
    family: ClassVar[Family | Literal[""]] = ""
    affine_if: ClassVar[Mapping[str, Any] | None] = None
    learns: ClassVar[Learns | None] = None
    second_axis: ClassVar[SecondAxis | None] = None
    Settings: ClassVar[type[ModelSettings]] = ModelSettings

    def __init__(self, settings: ModelSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__()
        self.signature = signature
        self.embedding: nn.Parameter | None = None
        self.hidden_size = settings.hidden_size
        self.features = self.state_features(settings)
        self.optimizer = settings.optimizer
        self.learning_rate = settings.learning_rate
        weight, bias = (
            torch.empty(signature.output_size, self.output_features(settings)),
            torch.zeros(signature.output_size),
        )
        if not signature.output_size:
            # Empty, and in no state_dict: never on the device meta, from which only a state_dict would bring it back.
            self.register_buffer("output_weight", torch.empty_like(weight, device="cpu"), persistent=False)
            self.register_buffer("output_bias", torch.empty_like(bias, device="cpu"), persistent=False)
            return
        self.output_weight, self.output_bias = nn.Parameter(weight), nn.Parameter(bias)
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
    def wrong_attribute(cls) -> str:
        """Say which attribute of the class has a wrong value; "" if none has."""
        if isinstance(cls.Settings, type) and issubclass(cls.Settings, Settings):
            return ""
        return f"Settings={cls.Settings!r:.80}: derive a class from orthobench.model.ModelSettings"

    @classmethod
    def layer_class(cls, settings: ModelSettings) -> type[Model]:
        """Return the class of a stack's layers: this class, or its bare cell if the model is already a block."""
        return cls

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        """Return the number of real features of h: two for each complex unit."""
        return settings.hidden_size

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        """Return the number of features that the output map reads."""
        return cls.state_features(settings)

    def initial_state(self, batch_size: int) -> State:
        """Return the state before the first step, tensors `[B, features]`; zeros by default."""
        for own in self._parameters.values():  # quicker than to search the modules inside too
            if own is not None:
                return (own.new_zeros(batch_size, self.features),)
        return (next(self.parameters(), self.output_weight).new_zeros(batch_size, self.features),)

    def state_parts(self) -> dict[str, slice]:
        """Return the parts of the state that probes show separately, as slices of its concatenated features."""
        return {"h": slice(0, self.features)}

    @abstractmethod
    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        """Run the recurrence over inputs `[T, B, m]` from a state, and pass the trace to it.

        Returns:
            The outputs of all steps, `[T, B, n]`, and the final state, as the recurrences do.
        """

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        """Return the features that the output map reads, `[..., n]`, from outputs `[..., n]` of one or more steps.

        For readout "last" this is the first tensor of the final state, which saves the recurrence a gradient of the
        size of all outputs. A model whose output map reads something else overrides this method.
        """
        return final[0] if self.signature.readout == "last" else outputs

    def forward(
        self,
        inputs: Tensor,
        state: State | None = None,
        trace: GradientTrace | None = None,
        lengths: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Return the outputs, in the signature's shape, and the state after the last step, whether padding or not.

        Args:
            inputs: `[T, B, m]`, or symbol numbers `[T, B]`.
            state: the state before the first step; None for `initial_state`.
            trace: receives the gradients through time.
            lengths: the number of valid steps of each sequence, `[B]`; None: all steps are valid.
            positions: the steps that readout "positions" reads, `[A, B]`.
        """
        output_map = reading(self.output_weight, self.output_bias, in_loop=self.maps_every_output())
        with self.padded(lengths, inputs.shape[0]), output_map as read:
            outputs, final = self.run(inputs, state, trace)
        return read(self._read(outputs, final, lengths, positions)), final

    def padded(self, lengths: Tensor | None, steps: int) -> AbstractContextManager[None]:
        """Return the context in which `states` runs over padded sequences; by default it does nothing.

        A model whose states depend on which steps are valid, such as one with batch statistics, overrides this.

        Args:
            lengths: the number of valid steps of each sequence, `[B]`; None: all steps are valid.
            steps: T.
        """
        return nullcontext()

    def run(
        self, inputs: Tensor, state: State | None = None, trace: GradientTrace | None = None
    ) -> tuple[Tensor, State]:
        """Run `states` on inputs as `forward` takes them, without the output map."""
        inputs = self.embed(inputs)
        result: Any = self.states(inputs, state or self.initial_state(inputs.shape[1]), trace)
        if not isinstance(result, (tuple, list)) or len(result) != 2 or not isinstance(result[1], (tuple, list)):
            raise wrong_value(self, "states", result, "the states of all steps and the final state, `(h, (h[-1],))`")
        outputs, final = result
        return outputs, final

    def embed(self, inputs: Tensor) -> Tensor:
        """Return the inputs of the recurrence `[T, B, features]`: E x_t with an embedding, else x_t.

        Symbol numbers `[T, B]` are looked up in E, or become one-hot vectors x_t.
        """
        is_symbols = not inputs.is_floating_point()
        if self.embedding is None:
            return one_hot(inputs, self.signature.input_size, self.output_weight.dtype) if is_symbols else inputs
        if not is_symbols:
            return project(inputs, self.embedding)
        table = self.embedding.T
        if table.shape[0] <= inputs.numel():  # torch finds contiguous rows ten times as fast
            table = table.contiguous()
        return nn.functional.embedding(inputs, table)

    def maps_every_output(self) -> bool:
        """Return whether the output map reads the outputs of the last recurrence at all steps as they are."""
        return self.signature.readout == "all" and type(self).readout is Model.readout

    def _read(self, outputs: Tensor, final: State, lengths: Tensor | None, positions: Tensor | None) -> Tensor:
        """Return the features that the output map reads; steps are selected and averaged before the map to save work.

        Raises:
            ValueError: positions are missing although the readout is "positions".
        """
        match self.signature.readout:
            case "mean":
                return mean_of_valid(self.readout(outputs, final), lengths)
            case "last_valid":
                outputs = outputs[-1] if lengths is None else last_valid(outputs, lengths)
            case "positions":
                if positions is None:
                    raise ValueError('readout "positions" needs positions, the steps to read: [answers, batch]')
                outputs = steps_at(outputs, positions)
        return self.readout(outputs, final)

    def penalty(self) -> Tensor | None:
        """Return a scalar that training adds to the task's loss, or None."""
        return None

    def after_step(self) -> None:
        """Restore a constraint after the optimisers' step; called without gradients."""

    def retract(self) -> None:
        """Bring matrices that only their own optimiser keeps on a manifold back to it; called without gradients.

        The harness trains them with that optimiser and never calls this method. Layers for other programs call it after
        the step of another optimiser.
        """

    @property
    def needs_step_end(self) -> bool:
        """Whether `after_step` or `retract` may change the model, so that other programs have to call them."""
        return type(self).after_step is not Model.after_step or type(self).retract is not Model.retract

    def fix_weights(self) -> None:
        """Compute once what depends only on the parameters, for use without training; called without gradients.

        Afterwards those parameters have no effect. By default nothing is fixed.
        """

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return groups with an optimiser and a learning rate; each trainable parameter is in exactly one group."""
        return [ParameterGroup(list(self.parameters()), self.optimizer, self.learning_rate)]

    @abstractmethod
    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return the square matrices that multiply the state, real or complex `[n, n]`, by name.

        The name is "W"; a gated cell has one matrix for each gate.
        """

    def parameter_count(self) -> int:
        """Return the number of trainable real numbers; a constrained matrix counts its manifold's dimension."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
