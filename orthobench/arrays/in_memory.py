"""Own data in memory, as a task."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from orthobench.arrays.arrange import Array, Raw, arrange, kind_of, targets_of_packed
from orthobench.arrays.own_files import from_table
from orthobench.arrays.words import ANY, KINDS, Kind
from orthobench.errors import UsageError, unknown
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
        name: str = "data",
    ) -> None:
        """Take arrays.

        Args:
            x: numbers `[sequences, time, features]`, `[time, sequences, features]` or `[sequences, time]`; a list of
                sequences `[time, features]`; a series `[time, features]`; or a table of pandas, as in a CSV file.
            y: labels or amounts, for each sequence or each step; None for a forecast.
            kind: what to learn; None: by the type of y.
            lengths: the number of steps of each sequence; later ones are padding.
            split: the part of each sequence, "train", "validation" or "test"; None to deal them.
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
        if hasattr(x, "columns"):  # a table of pandas
            frame = x.reset_index(drop=True)
            if y is not None:
                frame = frame.assign(y=np.asarray(y))
            raw = from_table(frame)
            x, y, lengths, split = raw.x, raw.y, raw.lengths, raw.split
            if raw.is_packed:
                x, y = _unpacked(raw)
        self.arrays: dict[str, Array] = {}
        if isinstance(x, (list, tuple)) and len({len(each) for each in x if np.ndim(each)}) > 1:
            if lengths is not None:
                raise UsageError("lengths: the sequences of a list have their own: leave lengths out")
            lengths = [len(each) for each in x]
            y = _padded("y", y) if y is not None and any(np.ndim(each) for each in y) else y
            x = _padded("x", x)
        for key, values in (("x", x), ("y", y), ("lengths", lengths), ("split", split)):
            if values is not None:
                self.arrays[key] = _array(key, values)
        given = self.arrays.get
        _check(Raw(self.arrays["x"], given("y"), given("lengths"), given("split")), kind)

    def task_word(self) -> str:
        """Write the data unless it is written, and return the word that names its task.

        Raises:
            StorageError: the data folder cannot be written.
        """
        import io

        total = hashlib.sha256()
        for key, values in self.arrays.items():
            total.update(f"{key} {values.dtype.str} {values.shape}\n".encode() + np.ascontiguousarray(values).tobytes())
        file = data_folder().absolute() / "own" / total.hexdigest()[:16] / f"{self.name}.npz"
        if not file.exists():
            content = io.BytesIO()
            np.savez(content, **self.arrays)  # type: ignore[arg-type]
            make_folder(file.parent)
            write_bytes(file, content.getvalue())
        return f"{self.kind or ANY}:{file}"

    def __repr__(self) -> str:
        shapes = ", ".join(f"{key} {list(values.shape)}" for key, values in self.arrays.items())
        return f"Data({self.name}: {shapes})"


def _check(raw: Raw, kind: Kind | None) -> None:
    """Refuse arrays that no layout makes fit together.

    Raises:
        UsageError: as for `arrange`.
    """
    chosen = kind or kind_of(raw)
    try:
        arrange(raw, chosen)
    except UsageError:
        try:
            arrange(raw, chosen, "time_first")  # a setting may still choose it
        except UsageError:
            pass
        else:
            return
        raise


def _array(name: str, values: Any) -> Array:
    """Return values as an array of numbers or text.

    Raises:
        UsageError: they are of other types, or sequences of different lengths.
    """
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu().numpy()
    elif hasattr(values, "to_numpy"):
        values = values.to_numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise UsageError(
            f"{name} is not an array ({' '.join(str(error).split())[:80]}): pad it, or give a list"
        ) from error
    if array.dtype.kind == "O":
        if not all(isinstance(each, str) for each in array.reshape(-1)):
            raise UsageError(f"{name} holds Python objects: give numbers, or text for labels")
        array = array.astype(str)
    return array


def _padded(name: str, sequences: Sequence[Any]) -> Array:
    """Return sequences of different lengths as one array, padded with zeros at the end.

    Raises:
        UsageError: they have different numbers of features, or are text.
    """
    arrays = [_array(f"{name}[{number}]", each) for number, each in enumerate(sequences)]
    shapes = {each.shape[1:] for each in arrays}
    if len(shapes) > 1 or any(each.ndim == 0 for each in arrays):
        raise UsageError(f"{name}: its sequences have shapes {', '.join(map(str, sorted(shapes)))} after the time axis")
    kind = np.result_type(*arrays)
    padded = np.zeros((len(arrays), max(map(len, arrays)), *shapes.pop()), kind)
    for row, each in zip(padded, arrays, strict=True):
        row[: len(each)] = each
    return padded


def _unpacked(raw: Raw) -> tuple[Array, Array | None]:
    """Return the steps of a table's sequences, and their targets, as padded arrays; a series stays one."""
    assert raw.lengths is not None
    ends = raw.lengths.cumsum()[:-1]
    x = _padded("x", np.split(raw.x, ends))
    y, by_step = targets_of_packed(raw.y, raw.lengths, None)
    return x, _padded("y", np.split(y, ends)) if y is not None and by_step else y
