"""The sequences in the user's data, what each target belongs to, and what cannot be trained on.

Sequences follow each other in one table of steps, so that sequences of different lengths need no padding in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from orthobench.arrays.words import Kind
from orthobench.errors import UsageError, counted

Targets = Literal["sequence", "step"]
Missing = Literal["refuse", "mask", "forward"]
"""What to do about values of features that are missing, which are NaN."""
Array = NDArray[Any]

PARTS = {"train": 0, "validation": 1, "test": 2}
"""The words by which data may say to which part a sequence belongs."""


SAVED = {"steps", "lengths", "by_step", "columns", "target", "classes"}
"""The arrays by which a file that `Data` has written is recognised."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of steps with their targets, as they are read, or once `checked` has made them ready for training.

    Attributes:
        steps: the steps of all sequences, one sequence after the other: numbers `[steps, features]`, NaN if missing;
            float32 once checked.
        lengths: the number of steps of each sequence, int64 `[N]`.
        targets: labels or amounts, for each sequence or each step; None without. Once checked they are class numbers,
            int64, or amounts, float32 `[..., p]`.
        by_step: whether each step has a target.
        split: the part of each sequence, a key of `PARTS`, or its number once checked; None if it is not given.
        columns: the names of a table's features, or of the steps of its sequences if a row is one.
        target: the name of a table's column with the targets.
        rows: the row of a table in which each step is, from 1; None for other data.
        classes: the labels, by class number.
    """

    steps: Array
    lengths: NDArray[np.int64]
    targets: Array | None = None
    by_step: bool = False
    split: Array | None = None
    columns: tuple[str, ...] = ()
    target: str = ""
    rows: Array | None = None
    classes: tuple[str, ...] = ()

    @property
    def is_series(self) -> bool:
        """Whether this is one long series, which is cut into windows."""
        return len(self.lengths) == 1 and (self.by_step or self.targets is None)


def kind_of(y: Array | None) -> Kind:
    """Return what can be learnt with targets y: by their type, and without any a forecast."""
    if y is None:
        return "forecast"
    return "regression" if y.dtype.kind == "f" else "classification"


def of_arrays(
    x: Array,
    y: Array | None = None,
    lengths: Array | None = None,
    split: Array | None = None,
    *,
    kind: Kind | None = None,
    targets: Targets | None = None,
) -> Sequences:
    """Return the sequences in arrays `[sequences, time, ...]`.

    Args:
        kind: what is learnt; None: by the type of y.
        targets: whether y is for sequences or for steps; None: for steps if it has the first two axes of x.

    Raises:
        UsageError: the shapes do not fit together, or a length is not a whole number of steps.
    """
    _check_type("x", x)
    if x.size == 0:
        raise UsageError(f"x is empty, {list(x.shape)}: give at least three sequences, or a series of many steps")
    kind = kind or kind_of(y)
    y = None if kind == "forecast" else y
    if y is not None and y.ndim > 1 and y.shape[-1] == 1:
        y = y[..., 0]
    if x.ndim in (1, 2) and all(each is None for each in (y, lengths, split)):
        return Sequences(x.reshape(len(x), -1), np.array([len(x)]))
    if x.ndim not in (2, 3):
        raise UsageError(f"x is {list(x.shape)}: give [sequences, time], perhaps with features as a third axis")
    parts = 2 if kind == "regression" else 1  # the axes of a target for one sequence, with the parts of an amount
    by_step = y is not None and y.ndim <= 1 + parts and y.shape[:2] == x.shape[:2] and targets != "sequence"
    count, time = x.shape[:2]
    fits = y is None or by_step or (len(y) == count and y.ndim <= parts)
    if not fits or any(each is not None and each.shape != (count,) for each in (lengths, split)):
        given = {"x": x, "y": y, "lengths": lengths, "split": split}
        shapes = ", ".join(f"{name} is {list(values.shape)}" for name, values in given.items() if values is not None)
        is_one_hot = y is not None and not fits and y.shape[:-1] in ((count,), (count, time)) and _has_one_hot_rows(y)
        one_hot = "; y.argmax(-1) makes classes of one-hot rows" if is_one_hot else ""
        raise UsageError(
            f"the shapes do not fit: {shapes}: x should be [sequences, time, features], and y [sequences] or, "
            f"for each step, [sequences, time]; x.swapaxes(0, 1) exchanges the first two axes{one_hot}"
        )
    lengths = np.full(count, time) if lengths is None else lengths
    _check_type("lengths", lengths)
    if (wrong := ~((lengths >= 1) & (lengths <= time) & (lengths == np.floor(lengths)))).any():
        at = int(wrong.argmax())
        raise UsageError(f"lengths[{at}]={lengths[at]} is not a whole number from 1 to the {time} steps of x")
    lengths = lengths.astype(np.int64)
    valid = np.arange(time) < lengths[:, None]
    steps = x.reshape(count, time, -1)[valid]
    return Sequences(steps, lengths, y[valid] if y is not None and by_step else y, by_step, split)


def _has_one_hot_rows(y: Array) -> bool:
    return y.dtype.kind in "biu" and bool(((y == 0) | (y == 1)).all() and (y.sum(-1) == 1).all())


def to_save(found: Sequences) -> dict[str, Array]:
    """Return sequences as arrays for a file, from which `of_saved` makes them again; `SAVED` are always there."""
    return {name: np.asarray(value) for name, value in vars(found).items() if value is not None}


def of_saved(arrays: Mapping[str, Array]) -> Sequences:
    """Return the sequences that `to_save` has turned into arrays."""
    plain: dict[str, Any] = {name: arrays[name].tolist() for name in ("by_step", "target")}
    names = {name: tuple(arrays[name].tolist()) for name in ("columns", "classes")}
    return Sequences(**{**arrays, **plain, **names})


def checked(found: Sequences, kind: Kind, missing: Missing = "refuse") -> Sequences:
    """Return sequences that can be trained on.

    Args:
        missing: whether NaN is refused, stays, or becomes the value of the step before it.

    Raises:
        UsageError: there are no targets, or something cannot be trained on; one line with the fix.
    """
    if kind == "forecast":
        found = replace(found, targets=None, by_step=False)
    elif found.targets is None:
        raise UsageError(f"it has no targets y, which {kind} needs: add them, or write forecast:FILE")
    targets, classes = (None, ()) if found.targets is None else _coded(found.targets, kind, found.by_step)
    split = None if found.split is None else _parts(found.split)
    return replace(found, steps=_steps(found, missing), targets=targets, classes=classes, split=split)


def _check_type(name: str, values: Array) -> None:
    """Refuse values that are not numbers.

    Raises:
        UsageError: they are text, complex numbers, dates or objects.
    """
    if values.dtype.kind not in "fiub":
        fix = "give real and imaginary parts as features" if values.dtype.kind == "c" else "convert it to float32"
        raise UsageError(f"{name} is {values.dtype}, not real numbers: {fix}")


def _steps(found: Sequences, missing: Missing) -> Array:
    """Return steps as float32.

    Raises:
        UsageError: a value is infinite or too large for float32, or missing and cannot stay so.
    """
    lengths = found.lengths
    with np.errstate(over="ignore"):
        steps = found.steps.astype(np.float32)
    gaps = np.isnan(steps)
    _refuse(found, np.isinf(steps), "fill or remove it", "is infinite or beyond float32")
    if missing == "refuse":
        _refuse(found, gaps, "fill or remove it, or set missing=mask or missing=forward")
    elif missing == "mask":
        _refuse(found, gaps & gaps.all(0), "no step has one: leave this feature out")
    elif gaps.any():
        last = np.maximum.accumulate(np.where(gaps, -1, np.arange(len(steps))[:, None]), axis=0)
        begins = last < (lengths.cumsum() - lengths).repeat(lengths)[:, None]
        _refuse(found, begins, "no earlier step of its sequence has one: set missing=mask")
        return np.take_along_axis(steps, last, axis=0)
    return steps


def _refuse(found: Sequences, wrong: NDArray[np.bool_], fix: str, why: str = "is NaN") -> None:
    """Refuse the first of the wrong values, `[steps, features]`, with its place in the file.

    Raises:
        UsageError: there is one.
    """
    if not wrong.any():
        return
    row, feature = (int(index) for index in np.argwhere(wrong)[0])
    if found.rows is not None:
        column = found.columns[(row * wrong.shape[1] + feature) % len(found.columns)]
        what = f"column {column} {why.replace('is NaN', 'has no value')} in row {found.rows[row]}"
    else:
        number = int(np.searchsorted(found.lengths.cumsum(), row, side="right"))
        what = f"x {why} at sequence {number}, step {row - int(found.lengths[:number].sum())}, feature {feature}"
    raise UsageError(f"{what}, {counted(int(wrong.sum()), 'value')} in all: {fix}")


def _coded(y: Array, kind: Kind, by_step: bool) -> tuple[Array, tuple[str, ...]]:
    """Return targets as class numbers with their labels, or as amounts `[..., p]`.

    Raises:
        UsageError: there is one class alone, or too many, or an amount is not finite.
    """
    if kind == "regression":
        _check_type("y", y)
        amounts = y.reshape(len(y), -1).astype(np.float32)
        if not (finite := np.isfinite(amounts).all(1)).all():
            part = "step" if by_step else "sequence"
            raise UsageError(f"y[{finite.argmin()}] is not a finite number: remove the {part}")
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
    if not by_step and len(classes) > max(2, len(y) / 2):
        raise UsageError(f"y has {len(classes)} classes in {len(y)} sequences: for amounts write regression:FILE")
    return numbers.reshape(-1).astype(np.int64), classes


def _parts(split: Array) -> NDArray[np.int64]:
    """Return the part of each sequence as a number.

    Raises:
        UsageError: a word is unknown, or training or test data is missing.
    """
    words = [str(each).lower() for each in split.tolist()]
    if unknown := sorted(set(words) - PARTS.keys()):
        raise UsageError(f"split has '{unknown[0]:.40}': write train, validation or test")
    parts = np.array([PARTS[each] for each in words], np.int64)
    for name, number in (("train", 0), ("test", 2)):
        if number not in parts:
            raise UsageError(f"split has no sequence for {name}, but {', '.join(sorted(set(words)))}: both need some")
    return parts
