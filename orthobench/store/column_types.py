"""Types of columns. They refuse values that no program of ours has written, because SQLite keeps any value anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import JSON, Float, Integer, LargeBinary, String
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from orthobench.store.blocks import pack, unpack
from orthobench.system.location import Location


def _only(name: str, *types: type) -> Callable[[Any], Any]:
    """Return a function that returns a value of these types, and raises ValueError for any other value."""

    def check(value: Any) -> Any:
        if type(value) in types:
            return value
        raise ValueError(f"{value!r:.40} is not {name}")

    return check


_NULL = type(None)
_WHOLE, _NUMBER = _only("a whole number", int, _NULL), _only("a number", float, int, _NULL)
_TEXT, _PRESENT = _only("a text", str, _NULL), _only("a text", str)


class WholeNumber(Integer):
    """An integer."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _WHOLE


class Number(Float[float]):
    """A floating-point number."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _NUMBER


class Text(String):
    """A text."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _TEXT


class PresentText(String):
    """A text whose absence shows that an outer join found no row, so that null is refused as well."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _PRESENT


class Located(TypeDecorator[Location]):
    """A path or a URL, whose text hides its passwords."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Location | None, dialect: Dialect) -> str | None:
        return None if value is None else value.real

    def process_result_value(self, value: str | None, dialect: Dialect) -> Location | None:
        return None if value is None else Location(value)


WORDS = ("nan", "inf", "-inf")
"""The words for numbers that are not finite."""


class NotFinite(TypeDecorator[str]):
    """The word for a number that is not finite (`WORDS`). No database knows these words, so all are checked."""

    impl = String
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if value is None or value in WORDS:
            return value
        raise ValueError(f"{value!r:.40} is not nan, inf or -inf")


class JsonObject(TypeDecorator[dict[str, Any]]):
    """A JSON object; null is stored as null."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> dict[str, Any] | None:
        if value is None or isinstance(value, dict):
            return value
        raise ValueError(f"{value!r:.40} is not a JSON object")


class Block(TypeDecorator[Mapping[str, Sequence[float]]]):
    """Vectors by name, stored as a block."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, Sequence[float]] | bytes | None, dialect: Dialect) -> bytes | None:
        return pack(value) if isinstance(value, Mapping) else value  # bytes are a block, which a merge copies

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> dict[str, list[float]] | None:
        return None if value is None else unpack(value)
