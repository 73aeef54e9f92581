"""Settings: the hyper-parameters of tasks, models and training, as validated, immutable records."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from orthobench.errors import UsageError, unknown
from orthobench.options.arguments import is_none
from orthobench.system.location import from_home

SHORT_NAMES = {"n": "hidden_size", "rho": "negative_ones"}
"""Settings by the papers' symbols, which users may write instead of the names."""
CHECKSUM = "_md5"
"""The suffix of a checksum: next to a setting `NAME` that names a file or folder there is `NAME_md5`."""

Scalar = str | bool | int | float
"""A setting's value, or one value of a list, as a file or a destination has it."""
_INTEGER = TypeAdapter(int)


class Settings(BaseModel):
    """Base of every group of hyper-parameters; text such as "1e-3" is accepted for a number, and "none" for None."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _read_text(cls, value: Any, field: ValidationInfo) -> Any:
        if is_none(value):
            return None
        written = _written_out(value)
        # The type is asked last, because a plan validates thousands of values, and few have this notation.
        return written if written is value or _is_whole(cls.model_fields[field.field_name or ""].annotation) else value

    @field_validator("*", mode="after")
    @classmethod
    def _check_width(cls, value: Any) -> Any:
        if isinstance(value, int) and value.bit_length() > 63:
            raise ValueError(_PLAIN["int_parsing_size"])  # neither a tensor nor a database holds it
        return value

    @classmethod
    def fill_share(cls, values: dict[str, Any], name: str, of: int) -> dict[str, Any]:
        """Return the values with a share of `of` replaced by a count; "0.5", with a decimal point, is half of it.

        For validators that run before field validation, so that the record of a run holds the count.
        """
        value = str(values.get(name, cls.model_fields[name].default))
        try:
            share = float(value)
        except ValueError:
            return values  # the field's validator explains the error
        return values | {name: round(share * of)} if "." in value and 0 <= share <= 1 else values

    @classmethod
    def whole(cls, values: Mapping[str, Any], name: str) -> int:
        """Return a setting, or its default, as a whole number, also from 64.0; 0 if the value is not a whole number."""
        try:
            return _INTEGER.validate_python(_written_out(values.get(name, cls.model_fields[name].default)))
        except ValidationError:  # the field's validator explains the error
            return 0

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Validate values; turn pydantic's report into one line.

        Raises:
            UsageError: a value has the wrong type or is out of range.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise UsageError("; ".join(_explain(problem) for problem in error.errors())) from error

    @classmethod
    def check_value(cls, name: str, value: Any) -> None:
        """Check the value of one setting, whatever the others are.

        Raises:
            UsageError: the value has the wrong type or is out of range.
        """
        try:
            cls(**{name: value})
        except ValidationError as error:
            for problem in error.errors():
                if problem["loc"][:1] == (name,):
                    raise UsageError(_explain(problem)) from error

    def canonical(self) -> dict[str, Any]:
        """Return the settings as JSON values, without settings at their neutral value.

        A setting that is added later declares the value that has no effect, `json_schema_extra={"neutral": value}`, so
        that earlier runs keep their keys.
        """
        dumped, neutral = self.model_dump(mode="json"), self.neutral()
        return {name: value for name, value in dumped.items() if neutral.get(name, ...) != value}

    @classmethod
    def restore(cls, canonical: Mapping[str, Any]) -> Self:
        """Return the settings with these canonical values.

        Raises:
            UsageError: this class lacks a setting or rejects a value.
        """
        return cls.read(cls.neutral() | dict(canonical))

    @classmethod
    def neutral(cls) -> dict[str, Any]:
        """Return the neutral values of the settings that a canonical form may lack."""
        return {
            name: _extra(field)["neutral"] for name, field in cls.model_fields.items() if "neutral" in _extra(field)
        }

    @classmethod
    def tied_to(cls, changed: Iterable[str]) -> set[str]:
        """Return the settings whose recorded values depend on one of the changed settings."""
        changed = set(changed)
        return {name for name, field in cls.model_fields.items() if _ties(field) in changed}

    @classmethod
    def without_need(cls, values: Mapping[str, Any]) -> set[str]:
        """Return the settings that need another one, `json_schema_extra={"needs": name}`, which these values lack."""
        return {
            name
            for name, field in cls.model_fields.items()
            if (need := _extra(field).get("needs")) and is_none(values.get(str(need)))
        }


def _is_whole(kind: Any) -> bool:
    """Return whether a field's type is that of whole numbers, also if it is annotated or may be None."""
    return kind is int or any(map(_is_whole, get_args(kind)))


def _written_out(value: Any) -> Any:
    """Return a whole number for text such as "1e5", because pydantic takes a float 1e5 for one, but not its text."""
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d*)?[eE][-+]?\d{1,2}", value) and float(value).is_integer():
        return int(float(value))
    return value


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _ties(field: FieldInfo) -> str | None:
    tied = _extra(field).get("tied_to")
    return tied if isinstance(tied, str) else None


_PLAIN = {
    "int_parsing": "should be a whole number",
    "int_parsing_size": "should be a smaller whole number",
    "int_from_float": "should be a whole number",
    "int_type": "should be a whole number",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "finite_number": "should be a finite number",
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "string_type": "should be text",
    "list_type": "should be names, as a,b",
    "tuple_type": "should be names, as a,b",
}
"""Our messages by pydantic's type of error."""


def _explain(problem: Any) -> str:
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = _PLAIN.get(problem["type"], message)
    if not problem["loc"]:
        return str(message)
    return f"{problem['loc'][0]}={problem['input']}: {message[0].lower()}{message[1:]}"


# Sorted, because the order in which a class declares its settings must not change the keys of its runs.
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def digest(value: Any) -> str:
    """Return the hash of a JSON value, 16 hexadecimal digits."""
    return _hash(_canonical(value))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def merged_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the task, the model and training of a run's spec, by name."""
    return {**spec["task_settings"], **spec["model_settings"], **spec["training"]}


NOTATIONS = {"lr": "learning_rate", "T": "sequence_length", "bs": "batch_size", "wd": "weight_decay"}
NOTATIONS |= dict.fromkeys(("d_model", "embed_dim", "n_hid", "num_units"), "hidden_size")
"""Settings by other programs' notation, for the hint of an error."""


def unknown_setting(kind: str, name: str, known: Collection[str], note: str = "") -> UsageError:
    """Return the error for an unknown setting, with the nearest known names, also by other programs' notation.

    Args:
        note: what else the user should know; it replaces the list of all names.
    """
    if (meant := NOTATIONS.get(name)) in known:
        return UsageError(f"unknown {kind} '{name}': did you mean {meant}?")
    error = unknown(kind, name, known)
    if note and "did you mean" not in str(error):
        return UsageError(f"unknown {kind} '{name}': {note}")
    return error


def whole_path(path: str) -> str:
    """Return the absolute path of a file or folder that the user names, with links and ~ resolved."""
    return os.path.realpath(from_home(path))


def identity(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that identify a run, with the checksum of a file or folder instead of its path."""
    return {name: value for name, value in settings.items() if settings.get(name + CHECKSUM) is None}


def without_paths(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with the names of files in place of their paths, which are not part of the key."""
    return {
        group: {
            name: PurePath(str(value)).name if values.get(name + CHECKSUM) is not None else value
            for name, value in values.items()
        }
        if isinstance(values, Mapping)
        else values
        for group, values in spec.items()
    }


def run_names(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes that identify a run's `key`, its `variant` (without the seed) and its `condition`.

    A condition is the task with its settings and version; runs with comparable metrics share it.
    """
    return names_by_seed({name: value for name, value in spec.items() if name != "seed"})(spec["seed"])


def names_by_seed(variant: Mapping[str, Any]) -> Callable[[int], dict[str, str]]:
    """Return the function that returns `run_names` of a run of a variant by its seed.

    Args:
        variant: the spec of a run without its seed.
    """
    # Each value is written once and joined three times, because a list of runs checks the names of every run.
    texts = {
        name: _canonical(identity(value) if isinstance(value, Mapping) else value) for name, value in variant.items()
    }
    task = {"task": texts["task"], "settings": texts["task_settings"], "version": texts["task_version"]}
    shared = {"variant": _hash(_joined(texts)), "condition": _hash(_joined(task))}
    before, after = _joined({**texts, "seed": "\n"}).split("\n")  # no JSON of one line contains a new line

    def names(seed: int) -> dict[str, str]:
        return {"key": _hash(f"{before}{_canonical(seed)}{after}"), **shared}

    return names


def _joined(values: Mapping[str, str]) -> str:
    """Return the canonical JSON of a record whose values are JSON already."""
    return f"{{{','.join(f'{_canonical(name)}:{values[name]}' for name in sorted(values))}}}"


def text(value: Any) -> str:
    """Return a setting's JSON value as written on the command line."""
    if isinstance(value, list):
        return ",".join(map(text, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def same(recorded: Any, value: Any) -> bool:
    """Return whether a value that `run` accepts equals the recorded one: 1e-3 is 0.001, 4.0 is 4, "yes" is True.

    Text must agree letter by letter; paths are compared as absolute paths.
    """
    if recorded is None:
        return is_none(value)
    if isinstance(recorded, str):
        return recorded == text(value) or (Path(recorded).is_absolute() and recorded == whole_path(text(value)))
    for kind, reader in _READERS.items():
        if isinstance(recorded, kind):
            try:
                return bool(reader.validate_python(value) == recorded)
            except ValidationError:
                return False
    return text(recorded) == text(value)


_READERS: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (bool, int, float)}
"""The function that reads values of a setting, by type; bool comes first because a bool is also an int."""


def read_toml(file: Path, named: str = "") -> dict[str, Any]:
    """Return the content of a user's TOML file, even if it begins with the byte order mark of Windows editors.

    Args:
        named: the file as errors name it, if not by its path.

    Raises:
        UsageError: the file cannot be read, or is not TOML.
    """
    name = named or str(file)
    try:
        # -sig, because editors of Windows begin a file with a byte order mark, which tomllib refuses.
        return tomllib.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also raised by numbers of thousands of digits, and by deep nesting
        raise UsageError(f"{name} is not TOML: {error}") from error


@dataclass(frozen=True)
class SettingDescription:
    """A setting as shown to the user: default and accepted values as text, and the meaning.

    `choices` has the values, if they are a few words.
    """

    name: str
    symbol: str
    default: str
    values: str
    meaning: str
    choices: list[str]


def describe_settings(settings: type[Settings]) -> list[SettingDescription]:
    """Return the descriptions of all settings in the order of declaration.

    A subclass that only changes a default inherits the meaning from its base.
    """
    symbols = {name: symbol for symbol, name in SHORT_NAMES.items()}
    schema = settings.model_json_schema()["properties"]
    return [
        SettingDescription(
            name,
            symbols.get(name, ""),
            text(properties["default"]) if "default" in properties else "",
            _accepted_values(properties),
            _meaning(settings, name),
            _choices(properties),
        )
        for name, properties in schema.items()
    ]


def _meaning(settings: type[Settings], name: str) -> str:
    classes = [base for base in settings.__mro__ if issubclass(base, Settings)]
    descriptions = (base.model_fields[name].description for base in classes if name in base.model_fields)
    return next((description for description in descriptions if description), "")


def _choices(properties: Mapping[str, Any]) -> list[str]:
    """Return the words that a setting accepts; empty if it accepts other values."""
    kinds = properties.get("anyOf", [properties])
    words = [["true", "false"] if kind.get("type") == "boolean" else _words(kind) for kind in kinds]
    return [word for each in words for word in each]


def _words(schema: Mapping[str, Any]) -> list[str]:
    return [str(word) for word in schema.get("enum", [schema["const"]] if "const" in schema else [])]


def _accepted_values(properties: Mapping[str, Any]) -> str:
    """Return the accepted values of a setting as text, from its JSON schema."""
    kinds = [kind for kind in properties.get("anyOf", [properties]) if kind.get("type") != "null"]
    can_be_none = len(kinds) < len(properties.get("anyOf", kinds))
    words = list(dict.fromkeys(_one_kind(kind) for kind in kinds))
    if "number" in words and "whole number" in words:
        words.remove("whole number")
    return " or ".join(words) + (", or none" if can_be_none else "")


def _one_kind(schema: Mapping[str, Any]) -> str:
    if words := _words(schema):
        return ", ".join(words)
    noun = {
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "array": "names, as a,b",
        "string": "text",
    }[schema["type"]]
    bounds = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    limits = [f"{words} {schema[name]:.12g}" for name, words in bounds.items() if name in schema]
    return f"{noun} {' and '.join(limits)}" if limits else noun
