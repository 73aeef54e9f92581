"""Models from layers of other programs: any `nn.Module` that runs over sequences, or a cell that runs one step.

The constructor's signature says which arguments are sizes; the others become settings. How the layer is called follows
from a trial pass over four steps of three random sequences. The trial disturbs one sequence or step at a time and looks
which outputs change. So it finds out whether inputs are `[time, batch, features]` or `[batch, time, features]`, whether
the layer is causal, and whether the state that it returns continues a sequence.

A layer without an argument for the size of its inputs has one width. A linear map in front, which starts as torch's
Linear, brings the inputs to this width if they have another one.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import itertools
import json
import logging
import math
import random
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

import numpy as np
import torch
from pydantic import BeforeValidator, Field, create_model, model_validator
from torch import Tensor, nn

from orthobench.errors import UsageError, one_line
from orthobench.matrices.constrain import Constraint, constrain
from orthobench.matrices.initial import torch_linear_
from orthobench.model.base import Model, ModelSettings, Signature, State
from orthobench.recurrence import GradientTrace

PAGE = "docs/any-layer.md"
"""The page with the adapter for every other layer."""

_SIZE = r"(_?(size|dims?|features|channels|units|width))?"
_INPUT = re.compile(rf"(n|num|d|dim)?_?(in|inp|inputs?){_SIZE}")
_HIDDEN = re.compile(rf"(n|num|d|dim|rnn)?_?(hid|hiddens?|rec|recurrent|units|cells?){_SIZE}|rnn_size")
_WIDTH = re.compile(
    r"d_?model|model_(dim|size)|dim(_model)?|n?_?emb(ed|d|edding)?(_(dim|size))?|d_emb(ed)?|width"
    r"|(n_|num_)?(channels|features)|size|feature_dim"
)
_OUTPUT = re.compile(rf"(n|num|d|dim)?_?(out|outputs?){_SIZE}")
_HARNESS = ("batch_first", "device", "dtype", "generator", "layer_idx")
"""Arguments that the harness determines."""

_STEPS, _BATCH, _INPUTS = 4, 3, 5
"""Shape of the trial's inputs; the three numbers differ, so that no axis is taken for another one."""
_TRIAL_SIZES = ((8, 16), (64, 128))
"""Hidden sizes of two trials, from which the number of outputs at other sizes follows."""

_logger = logging.getLogger("orthobench")


class Unfit(Exception):
    """A layer does not work as a model; the message is one line and says what is missing."""


class Refused(Exception):
    """A layer cannot be called with a trial's inputs; other sizes may suit it."""


def _scalar(value: Any) -> Any:
    """Return the number or truth value that a text stands for, or the text."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            parsed = json.loads(value.lower() if value.lower() in ("true", "false") else value)
            return value if isinstance(parsed, (list, dict, str)) else parsed
    return value


Scalar = Annotated[bool | int | float | str | None, BeforeValidator(_scalar)]
"""A setting whose type the constructor does not say."""


@dataclass(frozen=True)
class Argument:
    """An argument of a layer's constructor.

    Attributes:
        setting: the name of its setting: its own, or `layer_NAME` if every model has a setting of this name.
        kind: the type of the setting.
        is_optional: whether the layer gets it only if the user gives it.
    """

    name: str
    setting: str
    kind: Any
    default: Any
    meaning: str
    is_required: bool = False
    is_optional: bool = False


@dataclass(frozen=True)
class Constructor:
    """The arguments of a layer's constructor: those for sizes by name, and the others.

    Attributes:
        inputs: the argument for the number of inputs; None for a layer with one width.
        hidden: the argument for the number of units, or for the width.
        fixed: arguments that the harness determines, by name.
    """

    inputs: str | None
    hidden: str
    fixed: Mapping[str, Any]
    arguments: tuple[Argument, ...]


@functools.cache
def model_of(layer: Any, name: str, origin: str) -> type[Foreign]:
    """Return the model class of a layer's class.

    Args:
        name: the name by which the user calls the layer, such as "torch.nn:GRU".
        origin: where it comes from, such as "torch 2.9.0".

    Raises:
        UsageError: the class is no `nn.Module`, or its constructor has no argument for a size.
    """
    if not (inspect.isclass(layer) and issubclass(layer, nn.Module)):
        raise UsageError("it is not a class derived from torch.nn.Module")
    try:
        constructor = _constructor(layer)
    except Unfit as reason:
        raise UsageError(str(reason)) from reason
    members: dict[str, Any] = {
        "title": name,
        "paper": origin,
        "Settings": _settings_class(layer, name, constructor),
        "module_class": layer,
        "name": name,
        "constructor": constructor,
        "__doc__": inspect.getdoc(layer),
        "__module__": __name__,
    }
    return type(layer.__name__, (Foreign,), members)


def _constructor(layer: type[nn.Module]) -> Constructor:
    """Sort the arguments of a constructor.

    Raises:
        Unfit: no argument looks like a size.
    """
    parameters, named, takes_more = _parameters(layer)
    meanings = _documented(layer)
    names = [name for name in parameters if name not in _HARNESS]
    inputs = next((name for name in names if _INPUT.fullmatch(name)), None)
    patterns = (_HIDDEN, _WIDTH, _OUTPUT) if inputs else (_WIDTH, _HIDDEN)
    hidden = next((name for pattern in patterns for name in names if pattern.fullmatch(name)), None)
    required = [name for name in names if parameters[name].default is inspect.Parameter.empty]
    if hidden is None:
        raise Unfit(
            f"no argument of its constructor ({', '.join(names) or 'which has none'}) is a size such as input_size, "
            f"hidden_size or d_model: {PAGE} has an adapter to paste"
        )
    arguments = []
    for name in names:
        if name in (inputs, hidden):
            continue
        parameter = parameters[name]
        kind = _kind_of(parameter)
        if kind is None and name not in required:
            continue  # a function, a module or a list, which no setting can name
        arguments.append(
            Argument(
                name,
                f"layer_{name}" if name in ModelSettings.model_fields else name,
                kind if name in named and name not in required else Scalar,
                parameter.default if name in named and name not in required else None,
                meanings.get(name, ""),
                is_required=name in required,
                is_optional=name not in named,
            )
        )
    known = {*names, *_HARNESS, "settings", "kwargs", "args"}
    for name, meaning in meanings.items() if takes_more else ():
        if name not in known:
            setting = f"layer_{name}" if name in ModelSettings.model_fields else name
            arguments.append(Argument(name, setting, Scalar, None, meaning, is_optional=True))
    fixed = {"batch_first": False} if "batch_first" in named else {}
    return Constructor(inputs, hidden, fixed, tuple(arguments))


def _parameters(layer: type[nn.Module]) -> tuple[dict[str, inspect.Parameter], set[str], bool]:
    """Return the parameters of a constructor by name, which of them it names, and whether it takes others.

    torch.nn.LSTM declares its parameters as overloads. A constructor with `**kwargs` probably also takes the parameters
    of its base classes; it gives those without a default itself.
    """
    parameters: dict[str, inspect.Parameter] = {}
    named: set[str] = set()
    own, takes_more = True, False
    for cls in layer.__mro__:
        if cls is nn.Module:
            break
        if "__init__" not in vars(cls):
            continue
        init: Any = vars(cls)["__init__"]
        declared = [_signature(each) for each in typing.get_overloads(init)] or [_signature(init)]
        listed = list(declared[0].parameters.values())[1:]
        for parameter in listed:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if own or parameter.default is not parameter.empty or _is_size(parameter.name):
                parameters.setdefault(parameter.name, parameter)
        passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in listed)
        if own:
            named, takes_more = set(parameters), passes_on
        own = False
        if not passes_on:
            break
    return parameters, named, takes_more


def _is_size(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (_INPUT, _HIDDEN, _WIDTH))


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return a signature with types in place of their texts, where these can be resolved."""
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # a text may name anything
        return inspect.signature(function)


def _kind_of(parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter's setting from its annotation or its default; None if no setting can have it."""
    plain = (bool, int, float, str, types.NoneType)
    annotation, default = parameter.annotation, parameter.default
    if get_origin(annotation) in (typing.Union, types.UnionType):
        parts: tuple[Any, ...] = get_args(annotation)
    else:
        parts = () if annotation is parameter.empty or isinstance(annotation, str) else (annotation,)
    usable = tuple(part for part in parts if part in plain or get_origin(part) is Literal)
    has_plain_default = default is parameter.empty or isinstance(default, plain)
    if not has_plain_default or (isinstance(default, float) and not math.isfinite(default)):
        return None
    if parts:
        if not any(part is not types.NoneType for part in usable):
            return None
        usable += (types.NoneType,) if default is None and types.NoneType not in usable else ()
        return typing.Union[usable]  # noqa: UP007 - of a tuple
    if default is None or default is parameter.empty:
        return Scalar
    return int | float if type(default) is int else type(default)


_ENTRY = re.compile(r"(?P<indent>\s*)\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:(?!:)\s*(?P<text>.*)")
_ROLE = re.compile(r":\w+(?::\w+)?:`~?([^`<]*)(?:<[^`]*>)?`")


def _documented(layer: type[nn.Module]) -> dict[str, str]:
    """Return the meanings of a constructor's arguments, from the docstring of the class or of its constructor.

    It reads the lists of Google, of torch ("Args:" and "name: meaning") and of numpy ("Parameters" and "name : type").
    """
    meanings: dict[str, str] = {}
    for text in (inspect.getdoc(layer) or "", inspect.getdoc(layer.__init__) or ""):
        section = re.search(r"^(?:Args|Arguments|Parameters|Params):?\s*\n(?:-+\n)?", text, re.M)
        if not section:
            continue
        name, indent = "", None
        for line in text[section.end() :].splitlines():
            entry = _ENTRY.match(line)
            if entry and (indent is None or len(entry["indent"]) == indent):
                name, indent = entry["name"], len(entry["indent"])
                is_numpy = section[0].rstrip().endswith("-")
                meanings.setdefault(name, "" if is_numpy else entry["text"])
            elif line and indent is not None and len(line) - len(line.lstrip()) <= indent:
                break  # the next section
            elif name and line.strip():
                meanings[name] = f"{meanings[name]} {line.strip()}".strip()
    return {name: _plain_words(meaning) for name, meaning in meanings.items()}


def _plain_words(meaning: str) -> str:
    """Return the first sentences of a meaning without markup and without the default."""
    text = _ROLE.sub(r"\1", meaning).replace("``", "").replace("`", "")
    text = re.split(r"\s*\bDefaults?(?: to)?\b:?", text)[0].strip()
    return text[:-1] if text.endswith((".", ",")) else text


def _settings_class(layer: type[nn.Module], name: str, constructor: Constructor) -> type[ModelSettings]:
    """Return the settings of every model and those of the constructor."""
    fields: dict[str, Any] = {}
    for argument in constructor.arguments:
        extra: Any = {"neutral": None} if argument.is_optional else None
        default = "its own by default" if argument.is_optional else ""
        words = "; ".join(filter(None, (argument.meaning, default))) or f"argument {argument.name} of the constructor"
        fields[argument.setting] = (
            argument.kind,
            Field(argument.default, description=words, json_schema_extra=extra),
        )
    if any(argument.name == "dropout" for argument in constructor.arguments):
        field = ModelSettings.model_fields["dropout"]
        words = f"{field.description}; the constructor's own is layer_dropout"
        fields["dropout"] = (float, Field(0.0, ge=0, lt=1, description=words, json_schema_extra={"neutral": 0.0}))
    fields["constrain"] = (
        Constraint | None,
        Field(
            None,
            description="keep the square recurrent weights orthogonal by this parametrisation, as "
            "orthobench.nn.constrain does; none: they are free",
            json_schema_extra={"neutral": None},
        ),
    )
    required = [argument.setting for argument in constructor.arguments if argument.is_required]

    def has_required(settings: Any) -> Any:
        if missing := [name for name in required if getattr(settings, name) is None]:
            given = ", ".join(f"{each}=VALUE" for each in missing)
            raise ValueError(f"the constructor of {name} needs {', '.join(missing)}: give {given}")
        return settings

    validators: dict[str, Any] = {"has_required": model_validator(mode="after")(has_required)} if required else {}
    made: type[ModelSettings] = create_model(
        f"{layer.__name__}Settings", __base__=ModelSettings, __validators__=validators, **fields
    )
    return made


@contextlib.contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Seed every global generator in the `with` block, and restore them afterwards; what is printed is dropped."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(io.StringIO()):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPU too
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def _drawn_seed(generator: torch.Generator) -> int:
    """Draw a seed; 0 for a model without memory, whose weights have no values."""
    try:
        return int(torch.randint(2**62, (), generator=generator, device="cpu"))
    except RuntimeError:
        return 0


Value = Any
"""What a layer takes and returns: a tensor, or tuples of tensors."""


def _tensors(value: Value) -> list[Tensor]:
    """Return the tensors of a value in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return [each for part in value for each in _tensors(part)] if isinstance(value, (tuple, list)) else []


def _is_state(value: Value) -> bool:
    """Return whether a value consists of tensors in tuples or lists alone."""
    if isinstance(value, (tuple, list)):
        return bool(value) and all(map(_is_state, value))
    return isinstance(value, Tensor)


def _rebuild(value: Value, tensors: Iterator[Tensor]) -> Value:
    """Return a value of the same structure with other tensors."""
    if isinstance(value, Tensor):
        return next(tensors)
    parts = [_rebuild(part, tensors) for part in value]
    return parts if isinstance(value, list) else tuple(parts)


@dataclass(frozen=True)
class Way:
    """How a layer is called.

    Attributes:
        is_cell: whether it takes one step `[batch, features]`, else sequences.
        batch_first: whether sequences are `[batch, time, features]`, else `[time, batch, features]`.
        start: the state of the first call: "" to leave it out, "none" to pass None, or how many tensors of zeros,
            each `[batch, units]` ("1", "2") or `[1, batch, units]` ("1x1", "1x2").
        passes: the part of the returned value that the next call takes as state: "whole", "rest", "second", or ""
            if none continues the sequence.
    """

    is_cell: bool
    batch_first: bool = False
    start: str = ""
    passes: str = ""

    def call(self, layer: nn.Module, x: Tensor, state: Value, units: int) -> tuple[Tensor, Value]:
        """Run a layer over x `[T, B, m]` from a state, or from its start if this is None.

        Returns:
            The outputs `[T, B, features]`, and the state that continues the sequence, or else None.
        """
        if self.is_cell:
            steps = []
            for step in x.unbind(0):
                value = layer(step, *self._given(step, state, units))
                output, state = self._parts(value, step.shape[:1])
                steps.append(output)
            return torch.stack(steps), state if self.passes else None
        x = x.transpose(0, 1) if self.batch_first else x
        output, state = self._parts(layer(x, *self._given(x, state, units)), x.shape[:2])
        return (output.transpose(0, 1) if self.batch_first else output), state

    def _given(self, x: Tensor, state: Value, units: int) -> tuple[Value, ...]:
        """Return the arguments of a call after the inputs."""
        if state is not None:
            return (state,)
        if self.start in ("", "none"):
            return (None,) if self.start else ()
        leading = (1,) if "x" in self.start else ()
        zeros = x.new_zeros(*leading, x.shape[0 if self.is_cell or self.batch_first else 1], units)
        return (zeros if self.start[-1] == "1" else (zeros, zeros.clone()),)

    def _parts(self, value: Value, rows: tuple[int, ...]) -> tuple[Tensor, Value]:
        """Return the outputs in a returned value, and its part that continues the sequence.

        Raises:
            Unfit: no tensor has the shape of outputs.
        """
        output: Tensor | None
        if isinstance(value, Tensor):
            output = value
        else:
            if isinstance(value, Mapping):
                value = tuple(value.values())
            output = next((each for each in _tensors(value) if tuple(each.shape[:-1]) == tuple(rows)), None)
        if output is None or tuple(output.shape[:-1]) != tuple(rows):
            shapes = ", ".join(str(list(each.shape)) for each in _tensors(value)) or type(value).__name__
            raise Unfit(
                f"returns {shapes} for {'a step' if self.is_cell else 'sequences'} {[*rows, _INPUTS]}, and nothing of "
                f"shape {[*rows, 'features']}"
            )
        match self.passes:
            case "whole":
                return output, value
            case "second":
                return output, value[1]
            case "rest":
                return output, value[1:]
        return output, None


_STARTS = {True: ("", "none", "1", "2"), False: ("", "none", "1x1", "1x2", "1", "2")}
"""The starts that the trial of a cell, or else of a layer, tries in turn."""


@dataclass(frozen=True)
class Interface:
    """What the trials of a layer have found.

    Attributes:
        features: the number of outputs at two hidden sizes.
        has_width: whether the layer needs as many inputs as it has units.
        device: where the layer was tried: on the CPU, unless it runs only on a GPU.
        carries: whether the way passes a state that continues a sequence, and consists of tensors with a batch axis.
        from_zero: whether a state of zeros is the start of a sequence.
        traced: the tensor of the state that has the outputs of the last step, and which of its blocks of this
            width; None if there is none.
    """

    way: Way
    features: tuple[tuple[int, int], ...]
    has_width: bool = False
    device: str = "cpu"
    carries: bool = False
    from_zero: bool = False
    traced: tuple[int, int] | None = None

    @property
    def scales(self) -> bool:
        """Whether the number of outputs is the same at all hidden sizes, or proportional to the size."""
        (first, low), (second, high) = self.features
        return first != second and (low == high or low * second == high * first)

    def outputs(self, units: int) -> int:
        """Return the number of outputs at a hidden size: one of the trials', or any if it scales."""
        (first, low), (_, high) = self.features
        return low if low == high or units == first else low * units // first


class Foreign(Model):
    """The base class of the models that `model_of` creates.

    Attributes:
        module_class: the class of the layer.
        name: the name by which the user calls it.
        constructor: the arguments of its constructor.
    """

    module_class: ClassVar[type[nn.Module]]
    name: ClassVar[str]
    constructor: ClassVar[Constructor]

    def __init__(self, settings: ModelSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        size, units = signature.input_size, settings.hidden_size
        self.interface, self.units = self.trial(settings), units
        self.map_weight: nn.Parameter | None = None
        if self.interface.has_width and size != units:
            weight, bias = torch.empty(units, size), torch.empty(units)
            self.map_weight = nn.Parameter(torch_linear_(weight, size, generator))
            self.map_bias = nn.Parameter(torch_linear_(bias, size, generator))
        with _drawing(_drawn_seed(generator)):
            size = units if self.interface.has_width else size
            self.layer = self.make(settings, size, units)
            self._shapes = self._state_shapes(size)
        self.step_matrices = tuple(name for name in self.recurrent_matrices() if not name.endswith("]"))

    @classmethod
    def make(cls, settings: ModelSettings, inputs: int, units: int) -> nn.Module:
        """Construct the layer; the weights come from the global generators.

        Raises:
            UsageError: weights should be constrained, and the layer has no recurrent weights that are known.
        """
        given = {cls.constructor.hidden: units, **cls.constructor.fixed}
        if cls.constructor.inputs is not None:
            given = {cls.constructor.inputs: inputs, **given}
        for argument in cls.constructor.arguments:
            value = getattr(settings, argument.setting)
            if not (argument.is_optional and value is None):
                given[argument.name] = value
        layer = cls.module_class(**given)
        if (constraint := getattr(settings, "constrain", None)) is not None:
            if not (weights := _recurrent_weights(layer)):
                raise UsageError(
                    f"{cls.name} has no weight_hh to constrain: name the square weights in its class, such as "
                    f"recurrent_weights = ('W',), or leave constrain={constraint} out"
                )
            for weight in weights:
                owner, _, own = weight.rpartition(".")
                constrain(layer.get_submodule(owner), own, constraint)
        return layer

    @classmethod
    def trial(cls, settings: ModelSettings) -> Interface:
        """Return the interface of the layer with these settings.

        Raises:
            UsageError: the layer does not work as a model; one line that says what is missing.
        """
        fixed = settings.model_dump(mode="json", include={each.setting for each in cls.constructor.arguments})
        return _trial(cls, json.dumps(fixed, sort_keys=True), settings.hidden_size)

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        return cls.trial(settings).outputs(settings.hidden_size)

    @classmethod
    def looks_like_a_cell(cls) -> bool:
        """Return whether the layer's class is probably a cell, which the trial then tries first."""
        return issubclass(cls.module_class, nn.RNNCellBase) or cls.module_class.__name__.lower().endswith("cell")

    def initial_state(self, batch_size: int) -> State:
        """Return zeros if the layer starts from zeros and carries a state, else no tensors."""
        if not self.interface.from_zero:
            return ()
        zeros = [self.output_weight.new_zeros(batch_size, math.prod(shape)) for shape, _, _ in self._shapes]
        return tuple(
            each if kind.is_floating_point else each.to(each.dtype.to_complex() if kind.is_complex else kind)
            for each, (_, _, kind) in zip(zeros, self._shapes, strict=True)
        )

    def run(
        self, inputs: Tensor, state: State | None = None, trace: GradientTrace | None = None
    ) -> tuple[Tensor, State]:
        return self.states(self.embed(inputs), state or (), trace)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = inputs if self.map_weight is None else nn.functional.linear(inputs, self.map_weight, self.map_bias)
        own = self._unpacked(state) if state else None
        if trace is not None and self.interface.traced is not None:
            return self._step_by_step(x, own, trace)
        outputs, final = self.interface.way.call(self.layer, x, own, self.units)
        return outputs, self._packed(final) if self.interface.from_zero else ()

    def _step_by_step(self, x: Tensor, state: Value, trace: GradientTrace) -> tuple[Tensor, State]:
        """Run one step at a time, so that the state is one tensor in the output and in the next step."""
        assert self.interface.traced is not None
        position, block = self.interface.traced
        hidden = []
        for step in x.split(1):
            _, after = self.interface.way.call(self.layer, step, state, self.units)
            tensors = list(self._packed(after))
            blocks = list(tensors[position].split(self.features, dim=1))
            hidden.append(blocks[block])
            tensors[position] = torch.cat(blocks, dim=1) if len(blocks) > 1 else blocks[0]
            state = self._unpacked(tuple(tensors))
        trace.watch("h", hidden)
        return torch.stack(hidden), self._packed(state) if self.interface.from_zero else ()

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def state_parts(self) -> dict[str, slice]:
        parts, start = {}, 0
        for number, (shape, _, _) in enumerate(self._shapes):
            parts["h" if number == 0 else f"h{number + 1}"] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        return parts

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return the matrices that the layer declares as `recurrent_weights`, or else those named `weight_hh`.

        Blocks of one weight, such as those of gates, are numbered: "weight_hh_l0[1]".
        """
        matrices: dict[str, Tensor] = {}
        for name in _recurrent_weights(self.layer):
            weight = functools.reduce(getattr, name.split("."), self.layer)
            assert isinstance(weight, Tensor)
            rows, columns = weight.shape if weight.dim() == 2 else (1, 2)
            if rows == columns:
                matrices[name] = weight
            elif rows % columns == 0:
                matrices |= {f"{name}[{k}]": part for k, part in enumerate(weight.split(columns), 1)}
        return matrices

    def penalty(self) -> Tensor | None:
        penalty = getattr(self.layer, "penalty", None)
        value: Tensor | None = penalty() if callable(penalty) else None
        return value

    def after_step(self) -> None:
        if callable(after_step := getattr(self.layer, "after_step", None)):
            after_step()

    @classmethod
    def measures(cls) -> list[str]:
        """Return in words how the layer with its default settings is run, and which probes cannot measure it.

        Raises:
            UsageError: the layer does not work as a model with its default settings.
        """
        settings = cls.Settings.read({"hidden_size": _TRIAL_SIZES[0][0]})
        model = cls(settings, Signature(_INPUTS, 0, "all"), torch.Generator().manual_seed(0))
        way = model.interface.way
        kind = "a cell, run over time here" if way.is_cell else "a layer"
        order = "" if way.is_cell else f" for inputs [{'batch, time' if way.batch_first else 'time, batch'}, features]"
        front = "" if not model.interface.has_width else ", with a linear map from the inputs to its width in front"
        lines = [f"{kind}{order}{front}"]
        if not model.interface.from_zero:
            lines.append(
                "no state that it takes back and that begins with zeros, so no Jacobians and no tasks that carry it"
            )
        if model.interface.traced is None:
            lines.append("no norms of gradients through time, as its outputs are not its state")
        matrices = model.recurrent_matrices()
        if not model.step_matrices:
            why = "those of gates do not count" if matrices else "declare them as recurrent_weights"
            lines.append(f"no square recurrent weights whose distance from orthogonal is measured: {why}")
        return lines

    def _state_shapes(self, inputs: int) -> list[tuple[tuple[int, ...], int, torch.dtype]]:
        """Return the shape of each tensor of the state without its batch axis, that axis, and the type.

        Raises:
            UsageError: the outputs do not have the expected number of features.
        """
        way, self._state = self.interface.way, None
        self.layer.eval()
        if self.interface.device != "cpu":
            self.layer.to(self.interface.device)
        with torch.no_grad():
            (outputs, few), (_, many) = (
                way.call(self.layer, torch.zeros(1, batch, inputs, device=_device_of(self.layer)), None, self.units)
                for batch in (2, 3)
            )
        if self.interface.device != "cpu":
            self.layer.to("cpu")
        self.layer.train()
        if outputs.shape[-1] != self.features:
            raise UsageError(f"{self.name} has {outputs.shape[-1]} outputs, and {self.features} were expected")
        if not self.interface.carries:
            return []
        self._state = _rebuild(few, iter([torch.empty(0)] * len(_tensors(few))))
        shapes = []
        for one, other in zip(_tensors(few), _tensors(many), strict=True):
            axis = _batch_axis(one, other)
            assert axis is not None
            shapes.append(((*one.shape[:axis], *one.shape[axis + 1 :]), axis, one.dtype))
        return shapes

    def _packed(self, state: Value) -> State:
        """Return the tensors of the layer's state as `[batch, features]`."""
        return tuple(
            tensor.movedim(axis, 0).reshape(tensor.shape[axis], -1)
            for tensor, (_, axis, _) in zip(_tensors(state), self._shapes, strict=True)
        )

    def _unpacked(self, state: State) -> Value:
        """Return the layer's state from tensors `[batch, features]`."""
        tensors = (
            tensor.reshape(len(tensor), *shape).movedim(0, axis).contiguous()
            for tensor, (shape, axis, _) in zip(state, self._shapes, strict=True)
        )
        return _rebuild(self._state, tensors)


def _recurrent_weights(layer: nn.Module) -> list[str]:
    """Return the names of a layer's recurrent weights."""
    declared = getattr(layer, "recurrent_weights", None)
    if declared is not None:
        return [declared] if isinstance(declared, str) else list(declared)
    found = []
    for path, module in layer.named_modules():
        own = [*module._parameters, *getattr(module, "parametrizations", ())]
        found += [f"{path}.{name}" if path else name for name in own if re.fullmatch(r"weight_hh(_l\d+)?", name)]
    return [name for name in found if ".parametrizations." not in f".{name}"]


def _device_of(layer: nn.Module) -> torch.device | None:
    """Return the device of a layer's parameters; None without parameters."""
    return next((parameter.device for parameter in layer.parameters()), None)


def _batch_axis(one: Tensor, other: Tensor) -> int | None:
    """Return the only axis in which two tensors, of batches of different size, differ; None without such an axis."""
    if one.dim() != other.dim():
        return None
    axes = [axis for axis in range(one.dim()) if one.shape[axis] != other.shape[axis]]
    return axes[0] if len(axes) == 1 else None


@functools.cache
def _trial(cls: type[Foreign], fixed: str, units: int) -> Interface:
    """Try a layer at small sizes, or at the given one if it refuses these.

    Args:
        fixed: the settings of the constructor's arguments as JSON.

    Raises:
        UsageError: the layer does not work as a model.
    """
    refusals: list[BaseException] = []
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)  # some layers have kernels for GPUs alone
    widths = (False, True) if cls.constructor.inputs else (True,)
    for device, sizes in itertools.product(devices, (*_TRIAL_SIZES, (units, units))):
        for has_width in widths:
            try:
                found = _small_trial(cls, fixed, sizes, has_width, device)
                if found.scales or sizes[0] == units:
                    return found
                break
            except Unfit as reason:
                raise UsageError(f"{cls.name}: {reason}") from reason
            except (Exception, SystemExit) as error:  # the sizes may be the reason
                refusals.append(error)
    refusal = refusals[-1]  # at the real size
    raise UsageError(f"{cls.name}: {refusal if isinstance(refusal, Refused) else one_line(refusal)}") from refusal


@functools.cache
def _small_trial(cls: type[Foreign], fixed: str, sizes: tuple[int, int], has_width: bool, device: str) -> Interface:
    """Try a layer at two hidden sizes.

    Raises:
        Unfit: the layer does not work as a model.
        Exception: the layer refuses the sizes.
    """
    settings: Any = types.SimpleNamespace(**json.loads(fixed))
    features: list[tuple[int, int]] = []
    with torch._C.DisableTorchFunction(), _drawing(0):
        for units in sizes:
            inputs = units if has_width else _INPUTS
            layer = cls.make(settings, inputs, units).eval().to(device)
            trial = Trial(layer, inputs, units, cls.looks_like_a_cell())
            if not features:
                found = trial.interface()
            output, _ = found.way.call(layer, trial.x, None, units)
            features.append((units, output.shape[-1]))
    return replace(found, features=tuple(features), has_width=has_width, device=device)


class Trial:
    """The trial of a layer in evaluation mode: how it is called, and whether it is a recurrence.

    Attributes:
        x: the inputs `[time, batch, features]`.
    """

    def __init__(self, layer: nn.Module, inputs: int, units: int, cell_first: bool) -> None:
        self.layer, self.units, self.cell_first = layer, units, cell_first
        self.x = torch.randn(_STEPS, _BATCH, inputs).to(_device_of(layer) or "cpu")

    def interface(self) -> Interface:
        """Return what the trial finds; the numbers of outputs are missing.

        Raises:
            Unfit: the layer does not work as a model.
            Exception: the layer cannot be called, perhaps because it refuses the size.
        """
        refusals: list[Exception] = []
        for is_cell in (True, False) if self.cell_first else (False, True):
            try:
                way = self._way(is_cell)
                self._check(way)
            except Exception as refusal:  # a layer may raise any error
                refusals.append(refusal)
                continue
            return self._with_state(way)
        raise next((refusal for refusal in refusals if isinstance(refusal, Unfit)), refusals[0])

    def _way(self, is_cell: bool) -> Way:
        """Return the first way of calling the layer in which it is a recurrence and keeps the sequences apart."""
        refusal: Exception = Unfit("")
        others = ("whole", "second", "rest") if is_cell else (False, True)
        for start in _STARTS[is_cell]:
            for other in others:
                way = Way(True, False, start, str(other)) if is_cell else Way(False, bool(other), start)
                try:
                    if why := self._unstable(way):
                        refusal = Unfit(why)
                        continue
                    in_time, in_batch = self._mixes(way, 0), self._mixes(way, 1)
                    if not in_time and not in_batch:  # perhaps a weight starts at zero
                        self._shake()
                        in_time, in_batch = self._mixes(way, 0), self._mixes(way, 1)
                except Exception as error:  # a wrong call may raise any error
                    if not str(refusal) or "missing" in str(refusal):  # a required state, say
                        refusal = error
                    continue
                if in_time and not in_batch:
                    return way
                if in_time:
                    refusal = Unfit("the sequences of a batch influence each other, so their order matters")
                elif not in_batch:
                    refusal = Unfit("its output at a step depends on that step alone, so it is not a recurrence")
        if isinstance(refusal, Unfit):
            raise refusal
        inputs = list(self.x[0].shape if is_cell else self.x.shape)
        raise Refused(f"forward raises for inputs {inputs}: {one_line(refusal)}; {PAGE} has an adapter to paste")

    def _call(self, way: Way, x: Tensor, state: Value = None) -> tuple[Tensor, Value]:
        with torch.no_grad():
            return way.call(self.layer, x, state, self.units)

    def _outputs(self, way: Way, x: Tensor) -> Tensor:
        torch.default_generator.manual_seed(0)
        return self._call(way, x)[0]

    def _unstable(self, way: Way) -> str:
        """Return why the outputs of equal inputs are not always the same finite numbers; "" if they are."""
        outputs = self._outputs(way, self.x)
        if not outputs.isfinite().all():
            return "its outputs are NaN or infinite"
        self._outputs(way, self.x.flip(0) - 1)
        if not torch.equal(outputs, self._outputs(way, self.x)):
            return "it keeps a state between calls: the same inputs give other outputs after a call in between"
        torch.default_generator.manual_seed(1)
        if not torch.equal(outputs, self._call(way, self.x)[0]):
            return "it is random in evaluation mode: two calls with the same inputs differ"
        return ""

    def _mixes(self, way: Way, axis: int) -> bool:
        """Return whether the first entry along an axis of the inputs influences outputs of the others."""
        disturbed = self.x.clone()
        disturbed.select(axis, 0).add_(3.0)
        differ = _differ(self._outputs(way, self.x), self._outputs(way, disturbed))
        return bool(differ.narrow(axis, 1, differ.shape[axis] - 1).any())

    def _shake(self) -> None:
        with torch.no_grad():
            for parameter in self.layer.parameters():
                if parameter.is_floating_point():
                    parameter.add_(0.3 * torch.randn_like(parameter))

    def _check(self, way: Way) -> None:
        """Check what a model has to be.

        Raises:
            Unfit: the outputs depend on later steps or have no gradient.
        """
        outputs = self._outputs(way, self.x)
        disturbed = self.x.clone()
        disturbed[-1] += 3.0
        if _differ(outputs, self._outputs(way, disturbed))[:-1].any():
            raise Unfit("its outputs depend on later steps, as those of a bidirectional layer: it must be causal")
        trained = [parameter for parameter in self.layer.parameters() if parameter.requires_grad]
        if trained and not way.call(self.layer, self.x, None, self.units)[0].requires_grad:
            raise Unfit("its outputs have no gradient, so its weights cannot be trained")

    def _with_state(self, way: Way) -> Interface:
        """Return the interface with the part of the returned value that continues a sequence, if there is one."""
        for passes in (way.passes,) if way.is_cell else ("second", "rest"):
            candidate = Way(way.is_cell, way.batch_first, way.start, passes)
            try:
                if found := self._continued(candidate):
                    return found
            except Exception:  # the layer takes no such state
                continue
        return Interface(way, ())

    def _continued(self, way: Way) -> Interface | None:
        """Return the interface if the state that this way passes continues a sequence, one step at a time."""
        whole, final = self._call(way, self.x)
        _, fewer = self._call(way, self.x[:, 1:])
        if not _is_state(final):
            return None
        axes = [_batch_axis(one, other) for one, other in zip(_tensors(final), _tensors(fewer), strict=True)]
        state, steps = None, []
        for x in self.x.split(1):
            output, state = self._call(way, x, state)
            steps.append(output)
        shapes = [[each.shape for each in _tensors(value)] for value in (state, final)]
        if None in axes or shapes[0] != shapes[1]:
            return None
        afresh = torch.cat([self._call(way, x)[0] for x in self.x.split(1)])
        memory = float((whole - afresh).abs().max())
        if not float((whole - torch.cat(steps)).abs().max()) <= 0.01 * memory:
            return None
        zeros = _rebuild(final, iter([torch.zeros_like(each) for each in _tensors(final)]))
        gap = float((whole - self._call(way, self.x, zeros)[0]).abs().max())
        traced = next(
            (
                (position, block)
                for position, (tensor, axis) in enumerate(zip(_tensors(final), axes, strict=True))
                for block, part in enumerate(tensor.movedim(axis or 0, 0).flatten(1).split(whole.shape[-1], dim=1))
                if part.shape == whole[-1].shape and torch.equal(part, whole[-1])
            ),
            None,
        )
        return Interface(way, (), carries=True, from_zero=gap <= 0.01 * memory, traced=traced)


def _differ(before: Tensor, after: Tensor) -> Tensor:
    """Return which outputs of a sequence at a step differ, `[time, batch]`."""
    return ((after - before).abs() > 1e-6 * (1 + before.abs().amax())).any(-1)
