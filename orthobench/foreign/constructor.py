"""What the constructor of a layer takes: which arguments are sizes, and which become settings."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BeforeValidator, Field, create_model, model_validator
from torch import nn

from orthobench.errors import UsageError
from orthobench.matrices.constrain import Constraint
from orthobench.model.base import ModelSettings
from orthobench.task import TrainingSettings

INTERFACES = ("cell", "rnn", "sequence")
"""How a layer is called (`trial`)."""
WRAP = "wrap it in a class of yours, as `orthobench plugins adapter` prints it"
NAME = "set interface=cell, interface=rnn or interface=sequence"
ADAPTER = f"{NAME}, or {WRAP}"
"""What to do with every layer whose interface is not found."""

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


def _scalar(value: Any) -> Any:
    """Return the number or truth value that a text stands for, or the text."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            parsed = json.loads(value.lower() if value.lower() in ("true", "false") else value)
            return value if isinstance(parsed, (list, dict, str)) else parsed
    return value


UntypedSetting = Annotated[bool | int | float | str | None, BeforeValidator(_scalar)]
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
        takes_more: whether it has `**kwargs`, whose names are not known.
        record: the argument that takes all others as one record, a dataclass, and its class, as in the package xlstm.
    """

    inputs: str | None
    hidden: str
    fixed: Mapping[str, Any]
    arguments: tuple[Argument, ...]
    takes_more: bool = False
    record: tuple[str, type] | None = None

    def call(self, layer: type[nn.Module], given: Mapping[str, Any]) -> nn.Module:
        """Construct the layer from values by the names of the arguments."""
        if self.record is None:
            return layer(**given)
        name, kind = self.record
        return layer(**{name: kind(**given)})


def read_constructor(layer: type[nn.Module]) -> Constructor:
    """Sort the arguments of a constructor.

    Raises:
        UsageError: no argument looks like a size.
    """
    parameters, named, takes_more = _parameters(layer)
    record = _record(parameters)
    if record is not None:
        listed = _signature(record[1].__init__).parameters.values()  # type: ignore[misc]
        parameters = {each.name: each for each in list(listed)[1:]}
        named, takes_more = set(parameters), False
    meanings = _documented(layer)
    names = [name for name in parameters if name not in _HARNESS and not _is_private(parameters[name])]
    inputs = next((name for name in names if _INPUT.fullmatch(name)), None)
    patterns = (_HIDDEN, _WIDTH, _OUTPUT) if inputs else (_WIDTH, _HIDDEN)
    hidden = next((name for pattern in patterns for name in names if pattern.fullmatch(name)), None)
    required = [name for name in names if parameters[name].default is inspect.Parameter.empty]
    if hidden is None:
        raise UsageError(
            f"no argument of its constructor ({', '.join(names) or 'which has none'}) is a size such as input_size, "
            f"hidden_size or d_model: {WRAP}"
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
                _setting(name),
                kind if name in named and name not in required else UntypedSetting,
                parameter.default if name in named and name not in required else None,
                meanings.get(name, ""),
                is_required=name in required,
                is_optional=name not in named,
            )
        )
    known = {*names, *_HARNESS, "settings", "kwargs", "args"}
    for name, meaning in meanings.items() if takes_more else ():
        if name not in known:
            arguments.append(Argument(name, _setting(name), UntypedSetting, None, meaning, is_optional=True))
    fixed = {"batch_first": False} if "batch_first" in named else {}
    return Constructor(inputs, hidden, fixed, tuple(arguments), takes_more, record)


def _setting(name: str) -> str:
    """Return the name of an argument's setting, which no other setting of a run has."""
    taken = name in {*ModelSettings.model_fields, *TrainingSettings.model_fields, "constrain", "interface"}
    return f"layer_{name}" if taken else name


def _is_private(parameter: inspect.Parameter) -> bool:
    """Return whether a layer computes this argument itself, as its name says."""
    return parameter.name.startswith("_") and parameter.default is not parameter.empty


def _record(parameters: Mapping[str, inspect.Parameter]) -> tuple[str, type] | None:
    """Return the only argument without a default and its class, if that is a dataclass."""
    required = [each for each in parameters.values() if each.default is each.empty]
    if len(required) != 1 or not (inspect.isclass(kind := required[0].annotation) and is_dataclass(kind)):
        return None
    return required[0].name, kind


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
        return UntypedSetting
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


def settings_class(layer: type[nn.Module], name: str, constructor: Constructor) -> type[ModelSettings]:
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
    fields["interface"] = (
        Literal[INTERFACES] | None,
        Field(
            None,
            description="how it is called: a cell with one step, an rnn as torch.nn.RNN with sequences and a state, or "
            "with sequences alone; none: as its arguments and outputs say",
            json_schema_extra={"neutral": None},
        ),
    )
    required = [argument.setting for argument in constructor.arguments if argument.is_required]

    def has_required(settings: Any) -> Any:
        if missing := [name for name in required if getattr(settings, name) is None]:
            given = ", ".join(f"{each}=VALUE" for each in missing)
            raise ValueError(f"the constructor of {name} needs {', '.join(missing)}: set {given}")
        return settings

    validators: dict[str, Any] = {"has_required": model_validator(mode="after")(has_required)} if required else {}
    made: type[ModelSettings] = create_model(
        f"{layer.__name__}Settings", __base__=ModelSettings, __validators__=validators, **fields
    )
    return made
