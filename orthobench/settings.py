"""Settings: the hyper-parameters of tasks, models and training, as validated, frozen records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.fields import FieldInfo

from orthobench.errors import UsageError

SHORT_NAMES = {"n": "hidden_size", "rho": "negative_ones"}
"""The papers' symbols, which may be written for the settings' names."""


class Settings(BaseModel):
    """Base of every group of hyper-parameters; text such as "1e-3" is accepted for a number, "none" for nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _read_none(cls, value: Any) -> Any:
        return None if isinstance(value, str) and value.lower() in ("none", "null") else value

    @classmethod
    def fill_share(cls, values: dict[str, Any], name: str, of: int) -> dict[str, Any]:
        """Put the number in the place of a share of `of`: "0.5" or 0.5, with a decimal point, is half of it.

        For validators that run before the fields', so that the record of a run holds the number.
        """
        given = str(values.get(name, cls.model_fields[name].default))
        try:
            share = float(given)
        except ValueError:
            return values  # the field's own validator says what is wrong
        return values | {name: round(share * of)} if "." in given and 0 <= share <= 1 else values

    @classmethod
    def whole(cls, values: Mapping[str, Any], name: str) -> int:
        """The whole number given for a setting, or its default; 0 if what is given is none."""
        try:
            return int(str(values.get(name, cls.model_fields[name].default)))
        except ValueError:
            return 0

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Validate, turning pydantic's report into one line.

        Raises:
            UsageError: a value is of the wrong kind or out of range.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise UsageError("; ".join(_explain(problem) for problem in error.errors())) from error

    def canonical(self) -> dict[str, Any]:
        """The settings as JSON values, without those at their neutral value.

        A setting that is added to something that has been run already declares the value which changes nothing,
        `json_schema_extra={"neutral": value}`: so earlier runs keep their keys.
        """
        dumped, neutral = self.model_dump(mode="json"), self.neutral()
        return {name: value for name, value in dumped.items() if neutral.get(name, ...) != value}

    @classmethod
    def restore(cls, canonical: Mapping[str, Any]) -> Self:
        """The settings of which these are the canonical values.

        Raises:
            UsageError: this class does not have them, or not with these values.
        """
        return cls.read(cls.neutral() | dict(canonical))

    @classmethod
    def neutral(cls) -> dict[str, Any]:
        """The settings that a canonical form may lack, at the value that they then have."""
        return {
            name: _extra(field)["neutral"] for name, field in cls.model_fields.items() if "neutral" in _extra(field)
        }

    @classmethod
    def tied_to(cls, changed: Iterable[str]) -> set[str]:
        """The settings whose recorded values only make sense together with one of the changed settings."""
        changed = set(changed)
        return {name for name, field in cls.model_fields.items() if _ties(field) in changed}


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _ties(field: FieldInfo) -> str | None:
    tied = _extra(field).get("tied_to")
    return tied if isinstance(tied, str) else None


def _explain(problem: Any) -> str:
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if not problem["loc"]:
        return str(message)
    return f"{problem['loc'][0]}={problem['input']}: {message[0].lower()}{message[1:]}"


def text(value: Any) -> str:
    """A setting's value, as JSON has it, as it is given on the command line."""
    if isinstance(value, list):
        return ",".join(value) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def same(value: Any, given: Any) -> bool:
    """Whether a recorded value is the one given, however that is written: 1e-3 is 0.001, "true" is True."""
    if isinstance(value, float):
        try:
            return float(given) == value
        except (TypeError, ValueError):
            return False
    return text(value).lower() == text(given).lower()


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """Read `key=value` texts.

    Raises:
        UsageError: a text has no key, no value or no equals sign, or a key is given twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise UsageError(f"'{text}' is not a setting: write key=value, for example hidden_size=170")
        if key in values:
            raise UsageError(f"{key} is given twice ({values[key]} and {value}): give it once")
        values[key] = value
    return values
