"""The sequences in the user's data: which axis is time, what each target belongs to, and what cannot be trained on.

Sequences follow each other in one table of steps, so that sequences of different lengths need no padding in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from orthobench.arrays.words import Kind
from orthobench.errors import UsageError, counted

Layout = Literal["batch_first", "time_first"]
Targets = Literal["sequence", "step"]
Array = NDArray[Any]

PARTS = {"train": 0, "validation": 1, "valid": 1, "val": 1, "test": 2, "0": 0, "1": 1, "2": 2}
"""The words and numbers by which a file may say to which part a sequence belongs."""
MOST_CLASSES = 0.5
"""The largest number of classes of whole numbers as a share of the targets; more are probably amounts."""


@dataclass(frozen=True, eq=False)
class Raw:
    """The arrays of a file as they are in it.

    Attributes:
        x: numbers. With `is_packed` they are the steps of all sequences, `[steps, features]`, one sequence after the
            other, or symbol numbers `[steps]`. Otherwise they are in the file's own shape.
        y: labels or amounts, one for each sequence or for each step; None without targets.
        lengths: the number of steps of each sequence; None if all have the same.
        split: the part of each sequence, by a word or number of `PARTS`; None if it is not given.
        alphabet: the characters of the symbols, by number.
    """

    x: Array
    y: Array | None = None
    lengths: Array | None = None
    split: Array | None = None
    is_packed: bool = False
    alphabet: str = ""


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of steps with their targets.

    Attributes:
        steps: the steps of all sequences, one sequence after the other: float32 `[steps, features]`, or symbol numbers,
            int64 `[steps]`.
        lengths: the number of steps of each sequence, int64 `[N]`.
        targets: class numbers, int64, or amounts, float32 `[..., p]`, for each sequence or each step; None without.
        by_step: whether each step has a target.
        split: the part of each sequence, 0 to 2 as in `PARTS`; None if the file does not say it.
        classes: the labels, by class number.
        alphabet: the characters of the symbols, by number.
        layout: which axis of the file's array is time; None if the file leaves no choice.
        found: how the layout was found, in words; "" if there was no choice.
    """

    steps: Array
    lengths: NDArray[np.int64]
    targets: Array | None
    by_step: bool
    split: NDArray[np.int64] | None
    classes: tuple[str, ...] = ()
    alphabet: str = ""
    layout: Layout | None = None
    found: str = ""

    @property
    def features(self) -> int:
        """The number of features of a step, or of symbols."""
        return len(self.alphabet) if self.alphabet else int(self.steps.shape[1])

    @property
    def is_series(self) -> bool:
        """Whether this is one long series, which is cut into windows."""
        return len(self.lengths) == 1 and (self.by_step or self.targets is None)


def kind_of(raw: Raw) -> Kind:
    """Return what can be learnt from arrays: without targets a forecast, and otherwise by the type of the targets."""
    if raw.y is None:
        return "forecast"
    return "regression" if raw.y.dtype.kind == "f" else "classification"


def arrange(raw: Raw, kind: Kind, layout: Layout | None = None, targets: Targets | None = None) -> Sequences:
    """Return the sequences in arrays.

    Args:
        layout: which axis of x is time; None to find it by the shapes.
        targets: whether y is for sequences or for steps; None to find it by the shapes.

    Raises:
        UsageError: the arrays do not fit together, or cannot be trained on; one line with the fix.
    """
    if kind == "forecast":
        raw = replace(raw, y=None)
    elif raw.y is None:
        raise UsageError(f"it has no targets y, which {kind} needs: add them, or write forecast:FILE")
    if raw.x.size == 0:
        raise UsageError(f"x is empty, {list(raw.x.shape)}: give at least three sequences, or a series of many steps")
    _check_type("x", raw.x)
    if raw.is_packed:
        if layout is not None:
            raise UsageError(f"layout={layout}: only the arrays of a NumPy file have axes to choose: leave it out")
        assert raw.lengths is not None
        rows, lengths, found = raw.x, raw.lengths.astype(np.int64), ""
        y, by_step = targets_of_packed(raw.y, lengths, targets)
    else:
        rows, lengths, y, by_step, layout, found = _packed(raw, kind, layout, targets)
    steps = _steps(rows, lengths)
    coded, classes = (None, ()) if y is None else _coded(y, kind, lengths, by_step)
    split = None if raw.split is None else _parts(raw.split, len(lengths))
    return Sequences(steps, lengths, coded, by_step, split, classes, raw.alphabet, layout, found)


def targets_of_packed(
    y: Array | None, lengths: NDArray[np.int64], targets: Targets | None
) -> tuple[Array | None, bool]:
    """Return the targets of packed sequences, and whether they are for steps.

    Raises:
        UsageError: they should be for steps, and there is one for each sequence; or they should be for sequences, and
            differ within one.
    """
    if y is None:
        return None, False
    if len(y) == len(lengths) != lengths.sum():
        if targets == "step":
            raise UsageError("targets=step: it has one target for each sequence: leave targets out")
        return y, False
    first = y[lengths.cumsum() - lengths]
    is_one = len(lengths) > 1 and bool((y == first.repeat(lengths)).all())
    if targets == "sequence" and not is_one:
        raise UsageError("targets=sequence: y changes within a sequence: leave targets out")
    by_step = targets == "step" or not is_one
    return (y if by_step else first), by_step


def _check_type(name: str, values: Array) -> None:
    """Refuse values that are not numbers.

    Raises:
        UsageError: they are text, complex numbers, dates or objects.
    """
    if values.dtype.kind == "c":
        raise UsageError(f"{name} is {values.dtype}: give real and imaginary parts as features")
    if values.dtype.kind not in "fiub":
        raise UsageError(f"{name} is {values.dtype}, not numbers: convert it to float32")


def _packed(
    raw: Raw, kind: Kind, layout: Layout | None, targets: Targets | None
) -> tuple[Array, NDArray[np.int64], Array | None, bool, Layout | None, str]:
    """Return steps, lengths, targets, whether these are for steps, the layout, and how it was found.

    Raises:
        UsageError: the shapes do not fit together.
    """
    x, y = raw.x, raw.y
    if y is not None and y.ndim > 1 and y.shape[-1] == 1:
        y = y[..., 0]
    if not 1 <= x.ndim <= 3:
        raise UsageError(f"x is {_shape(x)}: give [sequences, time, features] or [time, sequences, features]")
    if y is None and layout is None and x.ndim < 3 and raw.lengths is None and raw.split is None:
        rows = x.reshape(len(x), -1)
        return rows, np.array([len(x)]), None, False, None, "one series, whose rows are its steps"
    if x.ndim == 1:
        raise UsageError(f"x is {_shape(x)}: with targets, give [sequences, time] or [sequences, time, features]")
    choices = list(_choices(x, y, raw, kind))
    fitting = [each for each in choices if layout in (None, each[0]) and targets in (None, each[1])]
    if not fitting:
        raise UsageError(_misfit(x, y, raw, kind, layout, targets, bool(choices)))
    chosen, what = fitting[0]
    if layout is not None:
        found = f"{_words(chosen)}, as layout={layout} says"
    elif {each for each, _ in fitting} == {chosen}:
        found = f"{_words(chosen)}, by the shapes"
    else:
        other: Layout = "time_first" if chosen == "batch_first" else "batch_first"
        found = f"taken as {_words(chosen)} because both axes fit; layout={other} changes it"
    by_step = y is not None and what == "step"
    if chosen == "time_first":
        x = x.swapaxes(0, 1)
        y = y.swapaxes(0, 1) if y is not None and by_step else y
    count, time = x.shape[:2]
    lengths = np.full(count, time) if raw.lengths is None else _checked_lengths(raw.lengths, time)
    valid = np.arange(time) < lengths[:, None]
    rows = x.reshape(count, time, -1)[valid]
    return rows, lengths, y[valid] if y is not None and by_step else y, by_step, chosen, found


def _choices(x: Array, y: Array | None, raw: Raw, kind: Kind) -> Iterator[tuple[Layout, Targets]]:
    """Yield the layouts and meanings of the targets that the shapes allow, the likeliest first."""
    layouts: tuple[tuple[Layout, int], ...] = (("batch_first", len(x)), ("time_first", x.shape[1]))
    for layout, count in layouts:
        if any(each is not None and each.shape != (count,) for each in (raw.lengths, raw.split)):
            continue
        if y is None:
            yield layout, "step"
            continue
        amounts = kind == "regression"
        if y.shape[:2] == x.shape[:2] and y.ndim <= 2 + amounts:
            yield layout, "step"
        if len(y) == count and y.ndim <= 1 + amounts:
            yield layout, "sequence"


def _misfit(
    x: Array, y: Array | None, raw: Raw, kind: Kind, layout: Layout | None, targets: Targets | None, fits: bool
) -> str:
    """Say in one line which shapes do not fit together."""
    given = {"y": y, "lengths": raw.lengths, "split": raw.split}
    shapes = ", ".join([f"x is {_shape(x)}", *(f"{name} {_shape(v)}" for name, v in given.items() if v is not None)])
    if fits:
        chosen = " and ".join(f"{n}={v}" for n, v in (("layout", layout), ("targets", targets)) if v is not None)
        return f"{chosen} does not fit the shapes: {shapes}: leave it out, or choose the other"
    per_step = "[sequences, time]" if kind == "classification" else "[sequences, time] or [sequences, time, p]"
    amounts = "" if kind == "classification" else " or [sequences, p]"
    return f"the shapes do not fit: {shapes}: y should be [sequences]{amounts} or, for each step, {per_step}"


def _shape(values: Array) -> str:
    return str(list(values.shape))


def _words(layout: Layout) -> str:
    return layout.replace("_", " ")


def _checked_lengths(lengths: Array, time: int) -> NDArray[np.int64]:
    """Return lengths as whole numbers within the steps.

    Raises:
        UsageError: a length is not a whole number from 1 to the number of steps.
    """
    _check_type("lengths", lengths)
    wrong = ~((lengths >= 1) & (lengths <= time) & (lengths == np.floor(lengths)))
    if wrong.any():
        at = int(wrong.argmax())
        raise UsageError(f"lengths[{at}]={lengths[at]} is not a whole number from 1 to the {time} steps of x")
    return lengths.astype(np.int64)


def _steps(rows: Array, lengths: NDArray[np.int64]) -> Array:
    """Return steps as float32, or symbols as int64.

    Raises:
        UsageError: a value is NaN, infinite or too large for float32.
    """
    if rows.ndim == 1:
        return rows.astype(np.int64)
    with np.errstate(over="ignore"):
        steps = rows.astype(np.float32)
    if not np.isfinite(steps).all():
        wrong = ~np.isfinite(steps)
        row, feature = (int(index) for index in np.argwhere(wrong)[0])
        number = int(np.searchsorted(lengths.cumsum(), row, side="right"))
        step = row - int(lengths[:number].sum())
        what = "NaN" if np.isnan(steps[row, feature]) else "infinite or beyond float32"
        where = f"sequence {number}, step {step}, feature {feature}"
        raise UsageError(f"x is {what} at {where}, {counted(int(wrong.sum()), 'value')} in all: fill or remove them")
    return steps


def _coded(y: Array, kind: Kind, lengths: NDArray[np.int64], by_step: bool) -> tuple[Array, tuple[str, ...]]:
    """Return targets as class numbers with their labels, or as amounts `[..., p]`.

    Raises:
        UsageError: there is one class alone, or too many, or an amount is not finite.
    """
    if kind == "regression":
        _check_type("y", y)
        amounts = y.reshape(len(y), -1).astype(np.float32)
        if not np.isfinite(amounts).all():
            row = int(np.argwhere(~np.isfinite(amounts))[0][0])
            raise UsageError(f"y[{row}] is not a finite number: remove {'the step' if by_step else 'the sequence'}")
        if (amounts == amounts[0]).all():
            raise UsageError(f"all targets y are {amounts[0, 0]:g}: there is nothing to learn")
        return amounts, ()
    if y.dtype.kind == "f":
        if not (y == np.floor(y)).all():
            raise UsageError("y has numbers that are not whole, so they are no classes: write regression:FILE")
        y = y.astype(np.int64)
    elif y.dtype.kind not in "iubU":
        raise UsageError(f"y is {y.dtype}, which names no classes: give whole numbers or text")
    labels, numbers = np.unique(y, return_inverse=True)
    classes = tuple(map(str, labels.tolist()))
    if len(classes) < 2:
        raise UsageError(f"all targets are of the one class {classes[0]}: give at least two classes")
    if not by_step and len(classes) > max(2, MOST_CLASSES * len(y)):
        amounts_hint = "; if they are amounts, write regression:FILE" if y.dtype.kind in "iu" else ""
        raise UsageError(f"y has {len(classes)} classes in {len(y)} sequences: give more of each{amounts_hint}")
    return numbers.reshape(-1).astype(np.int64), classes


def _parts(split: Array, count: int) -> NDArray[np.int64]:
    """Return the part of each sequence as a number.

    Raises:
        UsageError: a word is unknown, the number of entries is wrong, or training or test data is missing.
    """
    if split.shape != (count,):
        raise UsageError(f"split is {_shape(split)}: give a word for each of the {counted(count, 'sequence')}")
    words = [str(each).lower() for each in split.tolist()]
    if unknown := sorted(set(words) - PARTS.keys()):
        raise UsageError(f"split has '{unknown[0]:.40}': write train, validation or test")
    parts = np.array([PARTS[each] for each in words], np.int64)
    for name, number in (("train", 0), ("test", 2)):
        if number not in parts:
            raise UsageError(f"split has no sequence for {name}: both training and test need some")
    return parts
