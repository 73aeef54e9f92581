"""The space of a search: the axes of a grid, and ranges without a step.

hidden_size=128..512:x2             an axis of a grid: 128, 256 or 512
hidden_size=64..256                 any whole number from 64 to 256
learning_rate=1e-4..1e-2:log        any number, evenly in its logarithm
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orthobench.errors import UsageError
from orthobench.options.assignments import parse_assignments
from orthobench.planning.grid import NUMBER, GridAxis, parse_axis

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

DIGITS = 3
"""Significant digits of a drawn number; few digits keep command lines short."""
MAX_POINTS = 10_000
"""The number of points that are tried before a space counts as exhausted."""


@dataclass(frozen=True)
class Choices:
    """The points of a grid axis. The value of a point is text: `v`, or `v,w` for settings that change together."""

    axis: GridAxis

    @property
    def names(self) -> tuple[str, ...]:
        return self.axis.names

    @property
    def values(self) -> Sequence[str]:
        return [",".join(point) for point in self.axis.points]

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)

    def settings(self, value: str) -> dict[str, str]:
        return dict(zip(self.names, value.split(","), strict=True))

    def value(self, settings: Mapping[str, str]) -> str:
        return ",".join(settings[name] for name in self.names)


@dataclass(frozen=True)
class Range:
    """All numbers from one end to another, both included; only whole numbers if both ends are whole, as in 64..256."""

    name: str
    low: float
    high: float
    whole: bool
    log: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def values(self) -> Sequence[int] | None:
        """The whole numbers of the range; None for real numbers."""
        return range(int(self.low), int(self.high) + 1) if self.whole else None

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def settings(self, value: float) -> dict[str, str]:
        """Return the value as text, rounded and clipped to the range."""
        if self.whole:
            return {self.name: str(value)}
        # Clipped at last, because rounding can lead out of the range.
        return {self.name: str(min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high))}

    def value(self, settings: Mapping[str, str]) -> float:
        return int(settings[self.name]) if self.whole else float(settings[self.name])


class Space:
    """The axes, sorted by name so that their order on the command line does not change the draws."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Read the axes and ranges; each text is `key=value`.

        Raises:
            UsageError: there is no axis, a text is neither an axis nor a range, or a setting occurs twice.
        """
        self.texts = parse_assignments(texts)
        if not self.texts:
            raise UsageError(
                "missing `grid`: say what to search, such as learning_rate=1e-4..1e-2:log, hidden_size=64..256 or "
                "key=v1,v2"
            )
        axes = [_read(key, text) for key, text in sorted(self.texts.items())]
        self.axes: dict[str, Choices | Range] = {",".join(axis.names): axis for axis in axes}
        if len(set(self.names)) < len(self.names):
            raise UsageError("a setting is in the grid twice: name it once")

    @property
    def names(self) -> list[str]:
        return [name for axis in self.axes.values() for name in axis.names]

    @property
    def size(self) -> int | None:
        """The number of points; None if a range of real numbers is among the axes."""
        values = [axis.values for axis in self.axes.values()]
        counts = [len(listed) for listed in values if listed is not None]
        return math.prod(counts) if len(counts) == len(values) else None

    def limits(self) -> Iterator[tuple[str, str]]:
        """Yield each setting with each of its values, or with both ends of its range, as text."""
        for axis in self.axes.values():
            for value in axis.values if isinstance(axis, Choices) else (axis.low, axis.high):
                drawn: Any = int(value) if isinstance(axis, Range) and axis.whole else value
                yield from axis.settings(drawn).items()

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the distributions for optuna, by axis."""
        return {name: axis.distribution() for name, axis in self.axes.items()}

    def settings(self, drawn: Mapping[str, float | str]) -> dict[str, str]:
        """Convert a draw from the distributions to settings, as text."""
        pairs = [axis.settings(drawn[name]) for name, axis in self.axes.items()]  # type: ignore[arg-type]
        return {name: value for pair in pairs for name, value in pair.items()}

    def values(self, settings: Mapping[str, str]) -> dict[str, float | str]:
        """Convert settings to the draw from the distributions that gives them."""
        return {name: axis.value(settings) for name, axis in self.axes.items()}

    def shuffled(self, seed: int) -> Iterator[dict[str, str]]:
        """Yield at most `MAX_POINTS` points in random order; nothing if an axis is a range of real numbers."""
        size = self.size or 0
        # Drawn from a range, because a list of all points may not fit into memory.
        for index in random.Random(seed).sample(range(size), min(size, MAX_POINTS)):
            drawn: dict[str, float | str] = {}
            for name, axis in self.axes.items():
                values = axis.values
                assert values is not None
                index, position = divmod(index, len(values))
                drawn[name] = values[position]
            yield self.settings(drawn)


def _read(key: str, text: str) -> Choices | Range:
    ends = re.fullmatch(rf"\s*{NUMBER}\s*\.\.\s*{NUMBER}\s*(:\s*log)?\s*", text)
    if ends is None:
        return Choices(parse_axis(key, text))
    low, high, log = float(ends[1]), float(ends[2]), ends[3] is not None
    if low >= high:
        raise UsageError(f"grid '{key}={text}' does not lead upwards from {ends[1]} to {ends[2]}")
    if log and low <= 0:
        raise UsageError(f"grid '{key}={text}' has no logarithm at {ends[1]}: begin above 0")
    whole = all(re.fullmatch(r"[-+]?\d+", end) for end in ends.groups()[:2])
    return Range(key, low, high, whole, log)
