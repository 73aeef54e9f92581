"""Conditions on runs, as the user writes them: KEY=VALUE, in the dialect of settings (`options.assignments`).

A filter is a set of conditions, all of which an item must meet. A condition's key is a column or a setting, by its name
or by the papers' symbol (n, rho). Commas separate alternative values, and a value may contain commas itself. One text
may hold several conditions: `task=adding,model=scornn,lstm,n=170`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from orthobench.errors import NoMatchError, UsageError, unknown
from orthobench.options.assignments import given_twice, malformed, text
from orthobench.settings import SHORT_NAMES, same, unknown_setting

LISTED = 12
"""Values that an error message lists at most."""

Conditions = dict[str, tuple[str, ...]]
"""By key, the values that are accepted: the texts between the commas, with their blanks."""
Item = TypeVar("Item")


def parse_conditions(texts: Iterable[str]) -> Conditions:
    """Read conditions such as "task=adding,model=scornn,lstm".

    Raises:
        UsageError: a text has no key or no value, or two conditions have the same key.
    """
    conditions: Conditions = {}
    for condition in texts:
        own: dict[str, list[str]] = {}
        key = ""
        for part in condition.split(","):
            name, equals, value = part.partition("=")
            if equals and (name.strip().isidentifier() or not key):
                key = SHORT_NAMES.get(name.strip(), name.strip())
                if earlier := conditions.get(key) or own.get(key):
                    raise _two_conditions(key, earlier, value)
            else:  # an alternative, or the rest of a value with a comma
                value = part
            if not (key and value.strip()):
                raise malformed(condition, "condition", "model=scornn")
            own.setdefault(key, []).append(value)
        conditions |= {key: tuple(values) for key, values in own.items()}
    return conditions


def _two_conditions(key: str, first: Sequence[str], second: str) -> UsageError:
    earlier = ",".join(first).strip()
    return given_twice(key, earlier, second.strip(), f"write alternatives as {key}={earlier},{second.strip()}")


def read_conditions(where: Iterable[str] = (), /, **values: Any) -> Conditions:
    """Return the conditions of texts and of values by key, such as `task="adding"`.

    Args:
        where: texts that `parse_conditions` reads.
        values: a value, or a list of alternatives; None is not a condition, and "none" the value of an unset setting.

    Raises:
        UsageError: a text is not a condition, or two conditions have the same key.
    """
    conditions: Conditions = {}
    for symbol, value in values.items():
        if value is None:
            continue
        key = SHORT_NAMES.get(symbol, symbol)
        joined = ",".join(map(text, value)) if isinstance(value, (list, tuple)) else text(value)
        if key in conditions:
            raise _two_conditions(key, conditions[key], joined)
        conditions[key] = tuple(joined.split(","))
        if not all(map(str.strip, conditions[key])):
            raise malformed(f"{symbol}={joined}", "condition", "model=scornn")
    for key, accepted in parse_conditions(where).items():
        if key in conditions:
            raise _two_conditions(key, conditions[key], ",".join(accepted))
        conditions[key] = accepted
    return conditions


def conditions_text(conditions: Conditions) -> str:
    """Return the conditions as text that `parse_conditions` reads."""
    return ",".join(f"{key}={','.join(values)}" for key, values in conditions.items())


def narrow(
    items: Sequence[Item],
    conditions: Conditions,
    values_of: Callable[[Item], Mapping[str, Any]],
    columns: Sequence[str] = (),
    possible: Callable[[str], Iterable[str] | None] = lambda key: None,
    noun: str = "run",
) -> list[Item]:
    """Return the items whose values meet all conditions; a list of values meets a condition by any of its entries.

    Args:
        values_of: the values of an item, by column and setting.
        columns: keys that are known even if no item has them.
        possible: the values that a column can have in addition to the items' values, to suggest the nearest for a
            misspelt one; None if any value is possible.
        noun: what an item is called in messages.

    Raises:
        NoMatchError: no item meets them.
        UsageError: no item has a value of this name, or the value cannot exist.
    """
    described = every = [(item, values_of(item)) for item in items]
    for key, accepted in conditions.items():
        if key not in columns and not any(key in values for _, values in every):
            known = set(columns).union(*(values for _, values in every))
            raise unknown_setting("column or setting", key, known)
        matching = [(item, values) for item, values in described if meets(key, values.get(key), accepted)]
        if not matching:
            existing = [value for _, values in described for value in _entries(values.get(key))]
            if (values := possible(key)) is not None:
                _check_values(key, accepted, {*values, *map(text, existing)})
            before = conditions_text(
                {name: conditions[name] for name in list(conditions)[: list(conditions).index(key)]}
            )
            among = f"{noun}s with {before} have" if before else f"{noun}s have"
            raise NoMatchError(
                f"no {noun} has {conditions_text({key: accepted})}; {among} {key} {_listed(accepted, existing)}"
            )
        described = matching
    return [item for item, _ in described]


def meets(key: str, value: Any, accepted: Sequence[str]) -> bool:
    """Return whether a value, or any entry of a list, is one of the accepted values.

    A value that has commas itself is several accepted values in a row.
    """
    if key in ("key", "variant", "condition"):  # as with git, the first digits are enough
        return any(str(value).startswith(start) for start in _in_a_row(accepted, 1))
    return any(
        same(entry, choice)
        for entry in _entries(value)
        for length in range(1, str(entry).count(",") + 2)
        for choice in _in_a_row(accepted, length)
    )


def _in_a_row(accepted: Sequence[str], length: int) -> list[str]:
    """Return the texts of this many accepted values in a row, as the user wrote them."""
    return [",".join(accepted[start : start + length]).strip() for start in range(len(accepted) - length + 1)]


def _entries(value: Any) -> list[Any]:
    return (list(value) or [None]) if isinstance(value, (list, tuple)) else [value]


def _check_values(key: str, accepted: Sequence[str], possible: set[str]) -> None:
    """Refuse a value that no item could have.

    Raises:
        UsageError: a value is not among the possible ones.
    """
    for value in _in_a_row(accepted, 1):
        if value not in possible:
            raise unknown(key, value, possible)


def _listed(accepted: Sequence[str], existing: Sequence[Any]) -> str:
    """Return the existing values as text; a list that is cut begins with the values nearest to the accepted ones."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in existing)
    values = list(dict.fromkeys(map(text, sorted(existing) if numbers else sorted(existing, key=text))))
    if len(values) <= LISTED:
        return ", ".join(values)
    near = [match for value in accepted for match in difflib.get_close_matches(value, values, n=2)]
    ordered = list(dict.fromkeys([*near, *values]))
    return f"{', '.join(ordered[:LISTED])} and {len(ordered) - LISTED} more"
