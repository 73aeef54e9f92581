"""Settings as shown to the user: their defaults, accepted values and meanings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orthobench.options.assignments import text
from orthobench.settings.base import SHORT_NAMES, Settings


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
