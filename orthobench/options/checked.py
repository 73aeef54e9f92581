"""The check of the API's arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from pydantic import ConfigDict, ValidationError, validate_call
from pydantic_core import core_schema

from orthobench.errors import UsageError, shown, unknown
from orthobench.options.arguments import python_value

P = ParamSpec("P")
T = TypeVar("T")
POSITIONAL = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments of a function against their types before it runs, and convert them.

    Raises:
        UsageError: an argument is wrong; one line with the fix.
    """
    signature = inspect.signature(function)

    @cache  # built at the first call, because that takes as long as a quick command
    def read() -> Any:
        # Not the function itself, because an error of pydantic from inside it is no error of the arguments.
        arguments: Any = wraps(function)(lambda *args, **kwargs: (args, kwargs))
        # Without the type of the result, which may be a name that only type checkers import.
        arguments.__annotations__ = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
        return validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(arguments)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            given = signature.bind(
                *map(python_value, args), **{name: python_value(each) for name, each in kwargs.items()}
            )
        except TypeError as error:
            raise TypeError(f"{function.__qualname__}() {error}") from None
        try:
            args, kwargs = read()(*given.args, **given.kwargs)
        except ValidationError as error:
            raise _refusal(error, given) from error
        return function(*args, **kwargs)

    return call


def checked_record(record: type[T]) -> type[T]:
    """Check the fields of a data class as the arguments of a function, which takes no dictionary for a record."""
    record.__init__ = checked(record.__init__)  # type: ignore[method-assign]
    schema = core_schema.is_instance_schema(record)
    record.__get_pydantic_core_schema__ = classmethod(lambda *_: schema)  # type: ignore[attr-defined]
    return record


def _refusal(error: ValidationError, given: inspect.BoundArguments) -> UsageError:
    """Return the error for a wrong argument: its name and value, and what it should be."""
    problem = error.errors(include_url=False)[0]
    place = problem["loc"][0]
    if isinstance(place, int):
        positional = [name for name, each in given.signature.parameters.items() if each.kind in POSITIONAL]
        name, value = positional[min(place, len(positional) - 1)], given.args[place]
    else:
        name, value = place, given.kwargs[place]
    if problem["type"] == "literal_error":
        return unknown(name, str(value), re.findall(r"'(\w+)'", problem["ctx"]["expected"]))
    entry = f"{shown(problem['input'])} " if problem["input"] is not value else ""
    reason = re.sub("^(Input|String) should", f"{entry}should", problem["msg"].removeprefix("Value error, "))
    return UsageError(f"`{name}={shown(value)}`: {reason}")
