"""The base class of all hyper-parameters: validated, immutable records with one-line errors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from orthobench.errors import UsageError, unknown
from orthobench.options.arguments import is_none

SHORT_NAMES = {"n": "hidden_size", "rho": "negative_ones"}
"""Settings by the papers' symbols, which users may write instead of the names."""
NOTATIONS = {"lr": "learning_rate", "T": "sequence_length", "bs": "batch_size", "wd": "weight_decay"}
NOTATIONS |= dict.fromkeys(("d_model", "embed_dim", "n_hid", "num_units"), "hidden_size")
"""Settings by other programs' notation, for the hint of an error."""
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
    given = f"{problem['loc'][0]}={problem['input']}"
    # A list or range of numbers, as `sweep` takes them.
    is_several = message.endswith("number") and re.search(r"\d\s*(,|\.\.)\s*[-+.]?\d", str(problem["input"]))
    several = f": for several values, use `orthobench sweep --grid {given}`" if is_several else ""
    return f"{given}: {message[0].lower()}{message[1:]}{several}"


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
