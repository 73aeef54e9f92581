"""The words by which users name their own data, such as `array:data.npz`, and data in memory.

| word | task |
| --- | --- |
| `array:FILE` | of the kind that the file's content allows |
| `classification:FILE`, `regression:FILE`, `forecast:FILE` | of this kind; runs are stored under this name |
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orthobench.arrays.files import read, table
from orthobench.arrays.sequences import KINDS, Array, Kind, Raw, kind_of, targets_of_packed
from orthobench.errors import UsageError, unknown
from orthobench.options.data_folder import data_folder
from orthobench.settings import whole_path
from orthobench.system.files import make_folder, write_bytes
from orthobench.system.location import from_home

ANY = "array"
"""The word for data whose kind follows from its content."""


@dataclass(frozen=True)
class Named:
    """A task of the user's own data: its name, its kind, and the path of the file, or "" if a setting gives it."""

    name: str
    kind: Kind
    path: str

    def load(self) -> Any:
        """Return the class of the task."""
        from orthobench.arrays.tasks import task_of  # with torch, which the names do not need

        return task_of(self.kind, self.name.partition(":")[2], self.path)


def is_own_data(word: str) -> bool:
    """Return whether a word names own data."""
    return word.partition(":")[0] in (ANY, *KINDS) and ":" in word


def find_data(word: str) -> Named:
    """Return the task that a user's word names.

    Raises:
        UsageError: the file does not exist or cannot be read, or has no name.
    """
    kind, _, place = word.partition(":")
    if not place.strip():
        raise UsageError(f"'{word}' names no file: write {kind}:data.npz, or {kind}:FOLDER")
    path = Path(from_home(place))
    name = path.name if path.name not in ("", "..") else Path(whole_path(place)).name
    if kind != ANY:
        return Named(f"{kind}:{name}", kind, whole_path(str(path)) if path.exists() else "")  # type: ignore[arg-type]
    try:
        found = "classification" if path.is_dir() else kind_of(read(path))
    except UsageError as error:
        raise UsageError(f"{word}: {error}") from error
    return Named(f"{found}:{name}", found, whole_path(str(path)))


def stored_data(name: str) -> Named:
    """Return the task of a stored run, whose settings give the file. Nothing is read."""
    return Named(name, name.partition(":")[0], "")  # type: ignore[arg-type]


def task_words(name: str) -> list[str]:
    """Return the words that select the runs of a task: its name, and for own data also the word without the kind."""
    return [name, f"{ANY}:{name.partition(':')[2]}"] if is_own_data(name) else [name]


def word_of(task: str, settings: Mapping[str, Any]) -> str:
    """Return the word for the task of a stored run in a command: own data by its path."""
    return f"{task.partition(':')[0]}:{settings['data']}" if is_own_data(task) and settings.get("data") else task


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
            UsageError: an argument is not an array of numbers or text, or a name is not known.
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
            raw = table(frame)
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
