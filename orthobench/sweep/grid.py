"""Grids: the values of one setting, or of several bound together, and every combination of such axes.

learning_rate=1e-3,1e-4             these values
hidden_size=128..512:x2             128, 256, 512: times two while not above 512
sequence_length=100..400:+100       100, 200, 300, 400; ranges and single values may be mixed
(n,rho)=(170,17),(360,36)           two points, each with both values
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import product
from typing import Any, TypeVar

from orthobench.errors import UsageError
from orthobench.settings import parse_assignments, text

MOST_POINTS = 10_000
"""A range of more values is a slip of the pen."""

TUPLE = r"\(([^()]*)\)"
NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
RANGE = rf"{NUMBER}\s*\.\.\s*{NUMBER}\s*:\s*([x+])\s*{NUMBER}"

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Axis:
    """Settings that change together, and the values they take, point by point."""

    names: tuple[str, ...]
    points: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Refuse what is empty or there twice.

        Raises:
            UsageError: no point; an empty name or value; a name or point that is given twice; values that are not as
                many as the names.
        """
        shown = self.names[0] if len(self.names) == 1 else f"({','.join(self.names)})"
        if not all(self.names) or _twice(self.names):
            raise UsageError(f"grid '{shown}' should name each setting once, as in (hidden_size,negative_ones)")
        for point in self.points:
            if len(point) != len(self.names):
                raise UsageError(f"grid '{shown}': ({','.join(point)}) should have {len(self.names)} values")
        if not self.points or not all(all(point) for point in self.points):
            raise UsageError(f"grid '{shown}' has an empty value: write {shown}=v1,v2")
        if repeated := _twice(self.points):
            raise UsageError(f"grid '{shown}' names a value twice: {','.join(repeated[0])}")


def _twice(entries: Sequence[Entry]) -> list[Entry]:
    """Those that are there more than once."""
    return [entry for entry, count in Counter(entries).items() if count > 1]


def parse_grid(texts: Sequence[str]) -> list[Axis]:
    """Read the command line's axes, in the notation above.

    Raises:
        UsageError: a text names no setting or no value, or one twice; a range has no end.
    """
    return [parse_axis(key, value) for key, value in parse_assignments(texts).items()]


def read_grid(grid: Mapping[str, str | Sequence[Any]]) -> list[Axis]:
    """The axes of a sweep file: a text as on the command line, or a list of values, or of lists of bound values.

    Raises:
        UsageError: as for the command line.
    """
    return [
        parse_axis(key, entry) if isinstance(entry, str) else _listed(_names(key), entry) for key, entry in grid.items()
    ]


def parse_axis(key: str, value: str) -> Axis:
    """Read one axis: `hidden_size` and `128..512:x2`, or `(n,rho)` and `(170,17),(360,36)`.

    Raises:
        UsageError: it says nothing, or something twice.
    """
    names = _names(key)
    if not key.strip().startswith("("):
        return Axis(names, tuple((one,) for part in value.split(",") for one in _values(key, part.strip())))
    if not re.fullmatch(rf"\s*{TUPLE}(\s*,\s*{TUPLE})*\s*", value):
        example = f"({','.join(f'{name}1' for name in names)})"
        raise UsageError(f"grid '{key}={value}' should have its values in brackets: write {key}={example},...")
    return Axis(names, tuple(_split(inner) for inner in re.findall(TUPLE, value)))


def combinations(axes: Sequence[Axis]) -> list[dict[str, str]]:
    """Every combination, the last axis varying fastest; no axes have one, the empty one.

    Raises:
        UsageError: a setting is on two axes.
    """
    names = [name for axis in axes for name in axis.names]
    if repeated := _twice(names):
        raise UsageError(f"{repeated[0]} is in the grid twice: name it once")
    return [
        dict(zip(names, (value for point in points for value in point), strict=True))
        for points in product(*(axis.points for axis in axes))
    ]


def _split(inner: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in inner.split(","))


def _names(key: str) -> tuple[str, ...]:
    """The names of `name` or `(name, name)`."""
    bound = re.fullmatch(TUPLE, key.strip())
    if bound is None and re.search(r"[(),]", key):
        raise UsageError(f"grid '{key}' should be a setting, or several in brackets: (hidden_size,negative_ones)")
    return _split(bound[1]) if bound else (key.strip(),)


def _listed(names: tuple[str, ...], entries: Sequence[Any]) -> Axis:
    points = [entry if isinstance(entry, list) else [entry] for entry in entries]
    return Axis(names, tuple(tuple(text(value) for value in point) for point in points))


def _values(key: str, part: str) -> Iterator[str]:
    """The value itself, or those of a range `first..last:xFACTOR` or `first..last:+STEP`; the last is one if met."""
    found = re.fullmatch(RANGE, part)
    if found is None:
        if re.match(rf"{NUMBER}\s*\.\.", part):
            raise UsageError(f"grid '{key}={part}' is not a range: write first..last:x2, or first..last:+64")
        yield part
        return
    first, last, sign, step = found.groups()
    value, end, change = Decimal(first), Decimal(last), Decimal(step)
    times = sign == "x"
    rises = value <= end and (change > 1 and value > 0 if times else change > 0)
    falls = times and 0 < change < 1 and value >= end > 0
    if not (rises or falls):
        raise UsageError(f"grid '{key}={part}' does not lead from {first} to {last}")
    pointed = "." in first + last + ("" if times else step)  # 1.0 may be a share where 1 is a count
    for _ in range(MOST_POINTS):
        yield _number(value, pointed)
        value = value * change if times else value + change
        if value > end if rises else value < end:
            return
    raise UsageError(f"grid '{key}={part}' has more than {MOST_POINTS} values")


def _number(exact: Decimal, pointed: bool) -> str:
    """A number as one would write it, to twelve digits; a whole one with a point where asked for."""
    value = Context(prec=12).plus(exact).normalize()
    if value == value.to_integral_value() and abs(value) < 10**15:
        return f"{int(value)}.0" if pointed else str(int(value))
    return f"{value:f}" if abs(value) >= Decimal("1e-4") else str(value).lower()
