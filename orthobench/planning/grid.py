"""Grids: axes that give values to one setting, or to several that change together, and all combinations of such axes.

learning_rate=1e-3,1e-4             these values
hidden_size=128..512:x2             128, 256, 512: doubled as long as it is at most 512
sequence_length=100..400:+100       100, 200, 300, 400; ranges and single values can be mixed
(n,rho)=(170,17),(360,36)           two points, each with both values
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from itertools import product
from typing import Any, TypeVar

from orthobench.errors import UsageError
from orthobench.settings import text

MAX_POINTS = 10_000
"""The largest number of values in a range; a larger one is treated as a typing error."""
MAX_DIGITS = 400
"""The largest exponent and the largest length of a number in a range; floats end at 1e308."""

TUPLE = r"\(([^()]*)\)"
NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
RANGE = rf"{NUMBER}\s*\.\.\s*{NUMBER}\s*:\s*([x+])\s*{NUMBER}"

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class GridAxis:
    """Settings that change together, and their values, point by point."""

    names: tuple[str, ...]
    points: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Check the names and the points.

        Raises:
            UsageError: there is no point, a name or value is empty, a name or point occurs twice, or a point does not
                have as many values as there are names.
        """
        shown = self.names[0] if len(self.names) == 1 else f"({','.join(self.names)})"
        if not all(self.names) or _repeated(self.names):
            raise UsageError(f"grid '{shown}' should name each setting once, as in (hidden_size,negative_ones)")
        for point in self.points:
            if len(point) != len(self.names):
                raise UsageError(f"grid '{shown}': ({','.join(point)}) should have {len(self.names)} values")
        if not self.points or not all(all(point) for point in self.points):
            raise UsageError(f"grid '{shown}' has an empty value: write {shown}=v1,v2")
        if repeated := _repeated(self.points):
            raise UsageError(f"grid '{shown}' names a value twice: {','.join(repeated[0])}")


def _repeated(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries that occur more than once."""
    return [entry for entry, count in Counter(entries).items() if count > 1]


def read_grid(grid: Mapping[str, str | Sequence[Any]]) -> list[GridAxis]:
    """Read the axes of a sweep file or a Python call.

    Each is a text as above, a list of values, or a list of points for several settings.

    Raises:
        UsageError: an axis is empty or repeats a value.
    """
    return [
        parse_axis(key, entry) if isinstance(entry, str) else _listed(_names(key), entry) for key, entry in grid.items()
    ]


def parse_axis(key: str, value: str) -> GridAxis:
    """Read one axis: `hidden_size` and `128..512:x2`, or `(n,rho)` and `(170,17),(360,36)`.

    Raises:
        UsageError: the axis is empty or repeats a value.
    """
    names = _names(key)
    if not key.strip().startswith("("):
        return GridAxis(names, tuple((number,) for part in value.split(",") for number in _values(key, part.strip())))
    if not re.fullmatch(rf"\s*{TUPLE}(\s*,\s*{TUPLE})*\s*", value):
        example = f"({','.join(f'{name}1' for name in names)})"
        raise UsageError(f"grid '{key}={value}' should have its values in brackets: write {key}={example},...")
    return GridAxis(names, tuple(_split(inner) for inner in re.findall(TUPLE, value)))


def combinations(axes: Sequence[GridAxis]) -> list[dict[str, str]]:
    """Return all combinations; the last axis varies fastest. Without axes, the only combination is empty.

    Raises:
        UsageError: two axes have the same setting.
    """
    names = [name for axis in axes for name in axis.names]
    if repeated := _repeated(names):
        raise UsageError(f"{repeated[0]} is in the grid twice: name it once")
    return [
        dict(zip(names, (value for point in points for value in point), strict=True))
        for points in product(*(axis.points for axis in axes))
    ]


def _split(inner: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in inner.split(","))


def _names(key: str) -> tuple[str, ...]:
    """Return the names in `name` or `(name, name)`."""
    bound = re.fullmatch(TUPLE, key.strip())
    if bound is None and re.search(r"[(),]", key):
        raise UsageError(f"grid '{key}' should be a setting, or several in brackets: (hidden_size,negative_ones)")
    return _split(bound[1]) if bound else (key.strip(),)


def _listed(names: tuple[str, ...], entries: Sequence[Any]) -> GridAxis:
    points = [entry if isinstance(entry, (list, tuple)) else [entry] for entry in entries]
    return GridAxis(names, tuple(tuple(text(value) for value in point) for point in points))


def _values(key: str, part: str) -> Iterator[str]:
    """Yield a single value, or all values of a range `first..last:xFACTOR` or `first..last:+STEP`."""
    match = re.fullmatch(RANGE, part)
    if match is None:
        if re.match(rf"{NUMBER}\s*\.\.", part):
            raise UsageError(
                f"grid '{key}={part}' is not a range: write first..last:x2 or first..last:+64, or first..last and "
                "first..last:log for a search of `orthobench tune`"
            )
        yield part
        return
    first, last, sign, step = match.groups()
    # Decimals, because 0.1 + 0.1 + 0.1 exceeds 0.3 in binary, and the range would lose its end.
    value, end, change = (_decimal(key, part, text) for text in (first, last, step))
    times = sign == "x"
    rises = value <= end and (change > 1 and value > 0 if times else change > 0)
    falls = times and 0 < change < 1 and value >= end > 0
    if not (rises or falls):
        raise UsageError(f"grid '{key}={part}' does not lead from {first} to {last}")
    pointed = "." in first + last + ("" if times else step)  # 1.0 can be a share while 1 is a count
    for _ in range(MAX_POINTS):
        yield _number(value, pointed)
        value = value * change if times else value + change
        if value > end if rises else value < end:
            return
    raise UsageError(f"grid '{key}={part}' has more than {MAX_POINTS} values")


def _decimal(key: str, part: str, text: str) -> Decimal:
    """Parse a number of a range.

    Raises:
        UsageError: it has more digits or a larger exponent than any setting.
    """
    with suppress(InvalidOperation):  # an exponent that decimal cannot represent
        value = Decimal(text[: MAX_DIGITS + 1])
        if len(text) <= MAX_DIGITS and -MAX_DIGITS <= value.adjusted() <= MAX_DIGITS:
            return value
    raise UsageError(f"grid '{key}={part[:40]}' has a number beyond 1e-{MAX_DIGITS} to 1e{MAX_DIGITS}")


def _number(exact: Decimal, pointed: bool) -> str:
    """Format a number with twelve digits in plain notation; `pointed` adds a decimal point to a whole number."""
    # Rounded, because products with a factor such as 1.1 soon have 28 digits.
    value = Context(prec=12).plus(exact).normalize()
    if value == value.to_integral_value() and abs(value) < 10**15:
        return f"{int(value)}.0" if pointed else str(int(value))
    return f"{value:f}" if abs(value) >= Decimal("1e-4") else str(value).lower()
