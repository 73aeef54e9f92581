"""Choose hidden sizes that give the models of a sweep equal parameter counts, as in the comparisons of the papers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orthobench.errors import UsageError
from orthobench.model import Model
from orthobench.options.arguments import Preset
from orthobench.papers.sizes import UNITS
from orthobench.planning.sweep_runs import SweepRun
from orthobench.plugins import Catalog
from orthobench.settings import SHORT_NAMES
from orthobench.spec.model_sizes import Counter
from orthobench.spec.resolve import RunConfig, resolve

TOLERANCE = 0.05
"""The largest allowed difference between a count and the target, as a fraction of the target."""
STEP = 8
"""How far from a guess the search looks for a size that the model accepts, such as a multiple of its heads."""
LARGEST_SCANNED = 512
"""The largest size that is tried without a reason, where counts do not grow with the size."""
FIRST_SIZE, LARGEST_SIZE = 64, 2**20
"""Hidden sizes: where the search begins, and its limit."""


@dataclass(frozen=True)
class MatchedSize:
    """The hidden size that was chosen for a model, its parameter count, and the target."""

    model: str
    hidden_size: int
    parameters: int
    target: int

    @property
    def deviation(self) -> float:
        """The difference between count and target, as a fraction of the target; negative if the count is smaller."""
        return self.parameters / self.target - 1

    @property
    def is_near(self) -> bool:
        """Whether the count is within `TOLERANCE` of the target."""
        return abs(self.deviation) <= TOLERANCE


@dataclass(frozen=True)
class MatchedRuns:
    """The runs of a sweep with the chosen hidden sizes, and a list that contains each size once."""

    runs: list[SweepRun]
    sizes: list[MatchedSize]


def with_equal_parameters(
    catalog: Catalog,
    runs: Sequence[SweepRun],
    overrides: Mapping[str, object],
    preset: Preset,
    requested: str | int,
    counter: Counter | None = None,
) -> MatchedRuns:
    """Resolve the runs of a sweep again, with hidden sizes that give equal parameter counts.

    Settings that depend on the hidden size follow it, as with `-s hidden_size=N`.

    Args:
        runs: the runs of a grid, from `resolve_grid`.
        overrides: the settings of all runs.
        requested: a count such as 15000, "15k" or "1.5M", or a model of the sweep. The model keeps its own settings,
            and its count is the target at every point of the grid.
        counter: a counter, which reuses the tasks of earlier calls.

    Raises:
        UsageError: the hidden size is set or in the grid, the count or model is invalid, or a model has no hidden size
            within `TOLERANCE` of the target.
    """
    for config, _ in runs:
        check_can_match(config.spec.model, config.model_class, overrides.keys() | runs[0].settings.keys())
    models = list(dict.fromkeys(run.config.spec.model for run in runs))
    target = target_count(requested, models)
    counter = counter or Counter()
    targets: dict[tuple[str, ...], int] = {}
    if target is None:
        for config, point in runs:
            if config.spec.model == requested:
                targets.setdefault(tuple(point.values()), counter.count(config))

    chosen: dict[tuple[str, ...], tuple[RunConfig, MatchedSize]] = {}
    matched = []
    for config, point in runs:
        model, values = config.spec.model, tuple(point.values())
        if (model, *values) not in chosen:
            goal = targets[values] if target is None else target
            chosen[model, *values] = (
                (config, MatchedSize(model, config.model_settings.hidden_size, goal, goal))
                if model == requested
                else _choose(catalog, config, {**overrides, **point}, preset, goal, counter)
            )
        resolved, size = chosen[model, *values]
        settings = {**point, "hidden_size": str(size.hidden_size)}
        matched.append(SweepRun(resolved.with_seed(config.spec.seed), settings))
    return MatchedRuns(matched, list(dict.fromkeys(size for _, size in chosen.values())))


def check_can_match(model: str, model_class: type[Model], names: Iterable[str]) -> None:
    """Check that the hidden size of a model is free to be chosen.

    Args:
        names: the settings that the user sets or that are in the grid.

    Raises:
        UsageError: the hidden size is one of these settings, or the model has no hidden size.
    """
    if "hidden_size" in {SHORT_NAMES.get(name, name) for name in names}:
        raise UsageError("hidden_size is set or in the grid, and matching parameters chooses it: leave one of them out")
    if "hidden_size" not in model_class.Settings.model_fields:
        raise UsageError(f"{model} has no setting hidden_size, so it cannot be matched: leave it out")


def target_count(requested: str | int, models: Sequence[str]) -> int | None:
    """Parse a number of parameters, such as "15k"; return None for the name of a model.

    Raises:
        UsageError: it is neither.
    """
    if requested in models:
        return None
    number = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)([kM]?)", str(requested).replace("_", ""))
    if number is None:
        raise UsageError(
            f"'{requested}' is neither a number of parameters nor a model of the sweep: "
            f"write 15000, 15k or one of {', '.join(models)}"
        )
    count = round(float(number[1]) * UNITS.get(number[2], 1))
    if count < 1:
        raise UsageError(f"a model cannot have {requested} parameters: write a number such as 15000 or 15k")
    return count


def _choose(
    catalog: Catalog, config: RunConfig, overrides: Mapping[str, object], preset: Preset, target: int, counter: Counter
) -> tuple[RunConfig, MatchedSize]:
    """Choose the hidden size whose count is nearest to the target, and return the run with it.

    Raises:
        UsageError: the model cannot be built with any size, or the nearest count is too far away.
    """
    spec = config.spec

    def resized(size: int) -> RunConfig:
        return resolve(catalog, spec.task, spec.model, {**overrides, "hidden_size": size}, preset, spec.seed)

    resolved, matched = nearest_size(config, resized, target, counter.count)
    if not matched.is_near:
        raise UsageError(
            f"{spec.model} cannot have {target} parameters within {TOLERANCE:.0%}: the nearest count is "
            f"{matched.parameters}, with hidden_size={matched.hidden_size}; name another number, or leave "
            f"{spec.model} out"
        )
    return resolved, matched


def nearest_size(
    config: RunConfig, resized: Callable[[int], RunConfig], target: int, count: Callable[[RunConfig], int]
) -> tuple[RunConfig, MatchedSize]:
    """Return the run whose hidden size gives the count nearest to the target, and this size.

    Args:
        config: the run with any hidden size.
        resized: returns the run with a hidden size.
        count: counts what should be equal, such as parameters.

    Raises:
        UsageError: the model cannot be built with any size.
    """
    count(config)  # raises errors that no hidden size can avoid

    def at(size: int) -> int | None:
        """Return the count at a hidden size; None if the model refuses it."""
        try:
            return count(resized(size))
        except UsageError:
            return None

    model, counts = config.spec.model, _search(at, target)
    if not counts:
        raise UsageError(f"{model} accepts no hidden size of the search with these settings: set fewer of them")

    def away(size: int) -> int:
        return abs(counts[size] - target)

    size = min(counts, key=away)
    if away(size) > TOLERANCE * target:  # some counts do not grow with the size, because the heads depend on it
        near = range(size // 2 + 1, min(2 * size, LARGEST_SCANNED))
        counts |= {other: own for other in near if other not in counts and (own := at(other)) is not None}
        size = min(counts, key=away)
    return resized(size), MatchedSize(model, size, counts[size], target)


def _search(count: Callable[[int], int | None], target: int) -> dict[int, int]:
    """Return the counts for some hidden sizes, including the nearest to the target if counts grow with the size.

    First, the size is doubled or halved until the count passes the target, because models that accept only some sizes
    accept powers of two. Then the interval is narrowed by interpolating the square root of the count, which is nearly
    linear in the size.
    """
    counts: dict[int, int] = {}

    def known(size: int) -> int | None:
        parameters = count(size)
        if parameters is not None:
            counts[size] = parameters
        return parameters

    size, before = FIRST_SIZE, None
    while size <= LARGEST_SIZE:
        parameters = known(size)
        # Equal counts end the search too, because the size then has no effect on the model.
        if parameters is not None and (parameters >= target or parameters == before):
            break
        size, before = 2 * size, parameters if parameters is not None else before
    size = FIRST_SIZE // 2
    while size and not any(parameters <= target for parameters in counts.values()):
        known(size)
        size //= 2

    below = [size for size, parameters in counts.items() if parameters <= target]
    above = [size for size, parameters in counts.items() if parameters >= target]
    if not below or not above:
        return counts
    low, high = max(below), min(above)
    while high - low > 1:
        roots = math.sqrt(counts[low]), math.sqrt(counts[high])
        part = (math.sqrt(target) - roots[0]) / (roots[1] - roots[0]) if roots[1] > roots[0] else 0.5
        guess = min(max(low + round(part * (high - low)), low + 1), high - 1)
        near = range(max(low + 1, guess - STEP), min(high, guess + STEP + 1))
        middle = next((size for size in sorted(near, key=lambda size: (abs(size - guess), -size)) if known(size)), None)
        if middle is None or counts[middle] == target:
            break
        low, high = (middle, high) if counts[middle] < target else (low, middle)
    return counts
