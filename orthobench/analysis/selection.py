"""Select runs by conditions: one dialect for all commands and for Python.

A condition is KEY=VALUE. The key is a column (`COLUMNS`) or a setting, by its name or by the papers' symbol (n, rho).
Values that are separated by commas are alternatives; so are several in a row, for a value with commas. A run must meet
all conditions. One text may hold several of them: `task=adding,model=scornn,lstm,n=170`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from orthobench.analysis.variants import settings_of
from orthobench.arguments import Preset
from orthobench.errors import UsageError, unknown
from orthobench.plugins import Catalog, PluginKind
from orthobench.settings import SHORT_NAMES, same, text
from orthobench.store import Run, Status

COLUMNS = ("task", "model", "seed", "preset", "status", "device", "backend", "tag", "key", "variant", "condition")
LISTED = 12
"""Values that an error message lists at most."""

Conditions = dict[str, tuple[str, ...]]
"""By key, the values that are accepted: the texts between the commas, with their blanks."""
Item = TypeVar("Item")


class NoMatchError(UsageError):
    """No run meets the conditions."""


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
                if key in conditions or key in own:
                    raise _two_conditions(key)
            else:  # an alternative, or the rest of a value with a comma
                value = part
            if not (key and value.strip()):
                raise _no_condition(condition)
            own.setdefault(key, []).append(value)
        conditions |= {key: tuple(values) for key, values in own.items()}
    return conditions


def _two_conditions(key: str) -> UsageError:
    return UsageError(f"two conditions on {key}: write the alternatives as {key}=A,B")


def _no_condition(condition: str) -> UsageError:
    return UsageError(f"'{condition}' is not a condition: write KEY=VALUE, for example model=scornn")


def make_conditions(where: Iterable[str] = (), **values: Any) -> Conditions:
    """Return the conditions of texts and of values by key, such as `task="adding"`.

    Args:
        where: texts that `parse_conditions` reads.
        values: a value, or a list of alternatives; None is no condition, and "none" the value of an unset setting.

    Raises:
        UsageError: a text is not a condition, or two conditions have the same key.
    """
    conditions: Conditions = {}
    for symbol, value in values.items():
        if value is None:
            continue
        key = SHORT_NAMES.get(symbol, symbol)
        if key in conditions:
            raise _two_conditions(key)
        joined = ",".join(map(text, value)) if isinstance(value, (list, tuple)) else text(value)
        conditions[key] = tuple(joined.split(","))
        if not all(map(str.strip, conditions[key])):
            raise _no_condition(f"{symbol}={joined}")
    for key, accepted in parse_conditions(where).items():
        if key in conditions:
            raise _two_conditions(key)
        conditions[key] = accepted
    return conditions


def describe(conditions: Conditions) -> str:
    """Return the conditions as text that `parse_conditions` reads."""
    return ",".join(f"{key}={','.join(values)}" for key, values in conditions.items())


def select_runs(
    runs: Sequence[Run], conditions: Conditions, status_of: Callable[[Run], str] = lambda run: run.status
) -> list[Run]:
    """Return the runs that meet all conditions.

    Args:
        status_of: the status of a run, where the stored one may be out of date.

    Raises:
        NoMatchError: no run meets them; the message lists the values that runs have.
        UsageError: a key is neither a column nor a setting of any run, or a value cannot exist.
    """

    def values_of(run: Run) -> dict[str, Any]:
        columns = {name: getattr(run, name) for name in COLUMNS if name not in ("tag", "status")}
        return {**settings_of(run), **columns, "tag": run.tags, "status": status_of(run)}

    if not runs or not conditions:
        return list(runs)
    return narrow(runs, conditions, values_of, COLUMNS)


def narrow(
    items: Sequence[Item],
    conditions: Conditions,
    values_of: Callable[[Item], Mapping[str, Any]],
    columns: Sequence[str] = (),
) -> list[Item]:
    """Return the items whose values meet all conditions; a list of values meets a condition by any of its entries.

    Raises:
        NoMatchError: no item meets them.
        UsageError: no item has a value of this name, or the value cannot exist.
    """
    described = [(item, values_of(item)) for item in items]
    known = set(columns).union(*(values for _, values in described))
    for key, accepted in conditions.items():
        if key not in known:
            raise unknown("column or setting", key, known)
        matching = [(item, values) for item, values in described if meets(key, values.get(key), accepted)]
        if not matching:
            _check_values(key, accepted, [values.get(key) for _, values in described])
            before = describe({name: conditions[name] for name in list(conditions)[: list(conditions).index(key)]})
            among = f"runs with {before} have" if before else "runs have"
            existing = [value for _, values in described for value in _entries(values.get(key))]
            raise NoMatchError(f"no run has {describe({key: accepted})}; {among} {key} {_listed(accepted, existing)}")
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


def _check_values(key: str, accepted: Sequence[str], existing: Sequence[Any]) -> None:
    """Refuse a value that no run could have.

    Raises:
        UsageError: the value is no status, preset, task or model.
    """
    if key == "status":
        possible = set(map(str, Status))
    elif key == "preset":
        possible = {*get_args(Preset), text(None)}
    elif key in ("task", "model"):
        kind: PluginKind = "task" if key == "task" else "model"
        possible = {*Catalog().names(kind), *map(str, existing)}
    else:
        return
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
