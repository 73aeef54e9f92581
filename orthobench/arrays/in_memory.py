"""Own data in memory, as a task."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from orthobench.arrays.arrange import Array, checked, kind_of, of_arrays, to_save
from orthobench.arrays.tables import Roles, has_index, of_table
from orthobench.arrays.words import ANY, KINDS, Kind
from orthobench.errors import UsageError, counted, unknown
from orthobench.options.data_folder import data_folder
from orthobench.system.files import make_folder, write_bytes


class Data:
    """Own data in memory: arrays, tensors, tables of pandas, or lists of sequences of different lengths.

        data = ob.Data(x, y, kind="classification", name="gestures")
        ob.run(data, "gru")

    Before the first run it is written to the data folder, under the hash of its content, because other processes train
    on it, too. The same content gives the same runs.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        kind: Kind | None = None,
        lengths: Any = None,
        split: Any = None,
        target: str | None = None,
        sequence: str | None = None,
        time: str | None = None,
        name: str = "data",
    ) -> None:
        """Take arrays.

        Args:
            x: numbers `[sequences, time, features]` or `[sequences, time]`; a list of sequences `[time, features]`; a
                series `[time, features]`; or a table of pandas, polars or pyarrow, with the columns of a CSV file. NaN
                is a missing value, for the setting `missing`.
            y: labels or amounts, for each sequence or each step; None for a forecast.
            kind: what to learn; None: by the type of y.
            lengths: the number of steps of each sequence; later ones are padding.
            split: the part of each sequence, "train", "validation" or "test"; None to deal them.
            target: the column of a table with the labels or amounts; None for `y`.
            sequence: the column with the sequence of each row; None for `sequence`.
            time: the column that orders the rows of a sequence; None for `time`.
            name: the name of the data in tables.

        Raises:
            UsageError: an argument is not an array of numbers or text, a name is not known, or the arrays do not fit
                together or cannot be trained on.
        """
        if kind is not None and kind not in KINDS:
            raise unknown("kind", str(kind), KINDS)
        if not name or not all(letter.isalnum() or letter in "-_." for letter in name) or name.startswith("."):
            raise UsageError(f"name='{name:.40}': give letters, digits, - and _, such as 'gestures'")
        self.kind, self.name = kind, name
        roles, given = Roles(target, sequence, time), {"x": x, "y": y, "lengths": lengths, "split": split}
        if hasattr(x, "columns"):  # a table of pandas, or one that becomes it, as those of pyarrow and polars
            table = _converted("x", x, lambda: x if hasattr(x, "iloc") else x.to_pandas())
            if y is not None:
                if "y" in table.columns or target is not None:
                    raise UsageError(f"x has the column {target or 'y'}, and `y` is given: leave one of them out")
                table = table.assign(y=_array("y", y))
            self.sequences = of_table(table, roles, kind=kind)
        elif any(roles):
            raise UsageError("`target`, `sequence` and `time` name columns of a table, which x is not: leave them out")
        else:
            if len(set(map(len, _sequences(x)))) > 1:
                if lengths is not None:
                    raise UsageError("lengths: the sequences of a list have their own: leave lengths out")
                given |= {key: _padded(key, given[key]) for key in ("x", "y") if _sequences(given[key])}
                given["lengths"] = list(map(len, x))
            arrays: dict[str, Any] = {
                key: _array(key, each) for key, each in given.items() if key == "x" or each is not None
            }
            self.sequences = of_arrays(**arrays, kind=kind)
        # A setting may still choose what becomes of missing values.
        checked(self.sequences, kind or kind_of(self.sequences.targets), missing="mask")

    def task_word(self) -> str:
        """Write the data unless it is written, and return the word that names its task.

        Raises:
            StorageError: the data folder cannot be written.
        """
        import io

        total, arrays = hashlib.sha256(), to_save(self.sequences)
        for key, values in arrays.items():
            total.update(f"{key} {values.dtype.str} {values.shape}\n".encode() + np.ascontiguousarray(values).tobytes())
        file = data_folder().absolute() / "own" / total.hexdigest()[:16] / f"{self.name}.npz"
        if not file.exists():
            content = io.BytesIO()
            np.savez(content, allow_pickle=False, **arrays)
            make_folder(file.parent)
            write_bytes(file, content.getvalue())
        return f"{self.kind or ANY}:{file}"

    def __repr__(self) -> str:
        steps, columns = self.sequences.steps, self.sequences.columns
        number = counted(len(self.sequences.lengths), "sequence")
        names = f": {', '.join(columns)}" if columns else ""
        return f"Data({self.name}: {number}, {len(steps)} steps, {counted(steps.shape[1], 'feature')}{names})"


def _sequences(values: Any) -> list[Any]:
    """Return the elements of a list that are lists or arrays themselves."""
    elements = values if isinstance(values, (list, tuple)) else []
    return [each for each in elements if isinstance(each, (list, tuple)) or getattr(each, "ndim", False)]


def _padded(name: str, values: Sequence[Any]) -> Array:
    """Return the sequences of a list as one array, with zeros after the shorter ones.

    Raises:
        UsageError: they have different numbers of features.
    """
    parts, lengths = [_array(name, each) for each in values], np.array([len(each) for each in values])
    rows = _converted(name, values, lambda: np.concatenate(parts))
    padded = np.zeros((len(parts), lengths.max(), *rows.shape[1:]), rows.dtype)
    padded[np.arange(lengths.max()) < lengths[:, None]] = rows
    return padded


def _array(name: str, values: Any) -> Array:
    """Return values as an array of numbers or text.

    Raises:
        UsageError: they are of other types, masked, with an index, or sequences of different lengths.
    """
    is_list = isinstance(values, (list, tuple))
    parts = values if is_list else [values]
    if any(map(np.ma.is_masked, parts)):
        raise UsageError(f"{name} has a mask: give {name}.filled(np.nan), and the setting missing=mask for features")
    if any(map(has_index, parts)):
        raise UsageError(f"{name} has an index, which would be lost: give its values, to_numpy(), or one table with it")
    array: Array = _converted(
        name, values, lambda: np.asarray(list(map(_of_tensor, values)) if is_list else _of_tensor(values))
    )
    if array.dtype.kind == "O":
        if not all(isinstance(each, str) for each in array.reshape(-1)):
            raise UsageError(f"{name} holds Python objects: give numbers, or text for labels")
        array = array.astype(str)
    return array


def _of_tensor(value: Any) -> Any:
    """Return a tensor as an array, and any other value as it is."""
    if not hasattr(value, "detach"):
        return value
    # NumPy lacks some of torch's types, such as bfloat16.
    is_known = hasattr(np, str(value.dtype).removeprefix("torch.")) or not value.dtype.is_floating_point
    return (value if is_known else value.float()).detach().cpu().numpy()


def _converted(name: str, values: Any, convert: Callable[[], Any]) -> Any:
    """Return what a conversion of values returns.

    Raises:
        UsageError: it fails, as for tensors that are sparse or nested, and for lists of different lengths.
    """
    try:
        return convert()
    except (ValueError, TypeError, RuntimeError, AttributeError, ImportError) as error:
        raise UsageError(
            f"{name} is a {type(values).__name__} that is not an array ({' '.join(str(error).split())[:80]}): give an "
            "array of NumPy, or a list of sequences"
        ) from error
