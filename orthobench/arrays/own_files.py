"""Read the user's own data: NumPy files, tables as CSV or Parquet, and folders of labelled texts or recordings.

| file | content |
| --- | --- |
| `.npz` | `x`, and if known `y`, `lengths` and `split` |
| `.npy` | `x` alone: what a forecast needs |
| `.csv`, `.tsv`, `.parquet` | a table, see `from_table` |
| a folder | a subfolder for each label, with `.txt`, or `.wav` and `.flac` files; perhaps below `train` and `test` |

A file is data: nothing in it is run, so pickled objects are refused.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from orthobench.arrays.arrange import PARTS, Array, Raw
from orthobench.data.checksums import files_md5
from orthobench.data.ptb import read_text
from orthobench.data.speech import require_audio
from orthobench.data.visible_files import visible_files
from orthobench.errors import UsageError, unknown

if TYPE_CHECKING:
    import pandas as pd

ARRAYS = ("x", "y", "lengths", "split")
"""The names of the arrays in an .npz file."""
TARGET, SEQUENCE, TIME = ("y", "label", "target"), ("sequence", "id", "series"), ("time", "t")
"""The names of a table's columns that are not features; a fourth one is `split`."""
TEXTS, RECORDINGS = (".txt",), (".wav", ".flac")


def read_own_data(path: Path) -> Raw:
    """Return the arrays of a file or folder.

    Raises:
        UsageError: it does not exist, cannot be read, or is not of a known form; one line with the fix.
    """
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise UsageError("there is no such file: check its path")
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise UsageError(f"'{path.suffix or path.name}' is not known: give {', '.join(READERS)}, or a folder")
    try:
        if not path.stat().st_size:
            raise UsageError("it is empty: write it again")
        return READERS[suffix](path)
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise UsageError("its arrays do not fit into this machine's memory: give a part of them") from error


def checksum(path: Path) -> str:
    """Return the checksum of a file, or of the files of a folder that count.

    Raises:
        UsageError: a file cannot be read.
    """
    return files_md5(path, _labelled(path)) if path.is_dir() else files_md5(path.parent, [path])


def _npz(path: Path) -> Raw:
    try:
        with zipfile.ZipFile(path) as archive:
            _check_memory(sum(entry.file_size for entry in archive.infolist()))
        with np.load(path, allow_pickle=False) as file:
            if "x" not in file.files:
                raise UsageError(f"it has {', '.join(file.files) or 'no array'}: name the array of sequences x")
            if strange := [name for name in file.files if name not in ARRAYS]:
                raise unknown("array", strange[0], ARRAYS)
            return Raw(**{name: file[name] for name in file.files})
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise _damaged(error) from error


def _npy(path: Path) -> Raw:
    try:
        with path.open("rb") as stream:
            major, _ = np.lib.format.read_magic(stream)
            headers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
            if major in headers:
                shape, _, kind = headers[major](stream)
                _check_memory(math.prod(shape) * kind.itemsize)
        return Raw(np.load(path, allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise _damaged(error) from error


def _damaged(error: BaseException) -> UsageError:
    """Return the error for a file of NumPy that cannot be read."""
    if "allow_pickle" in str(error) or "pickled" in str(error):
        return UsageError("it holds Python objects, which a data file cannot: save plain arrays of numbers or text")
    return UsageError(f"it is damaged, or not a file of NumPy ({_short(error)}): save it again")


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:100]


def _check_memory(needed: int) -> None:
    """Refuse arrays larger than the machine's memory, which a damaged header may announce.

    Raises:
        UsageError: they are larger.
    """
    memory = psutil.virtual_memory().total
    if needed > memory:
        raise UsageError(f"its arrays take {needed / 2**30:.3g} GiB, and this machine has {memory / 2**30:.3g} GiB")


def _csv(path: Path) -> Raw:
    import pandas as pd

    def parse(**options: Any) -> pd.DataFrame:
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        frame: pd.DataFrame = pd.read_csv(io.BytesIO(path.read_bytes()), sep=separator, **options)
        return frame

    try:
        frame = parse()
        if all(map(_is_number, frame.columns)):  # the first row is data
            frame = parse(header=None)
    except ValueError as error:  # also what pandas' parser and a wrong encoding raise
        raise UsageError(
            f"it is not a table ({' '.join(str(error).split())[:100]}): write it again as UTF-8"
        ) from error
    return from_table(frame)


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(path: Path) -> Raw:
    import pandas as pd

    try:
        return from_table(pd.read_parquet(path, engine="pyarrow"))
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow: `pip install pyarrow`, or write CSV instead") from error
    except (ValueError, TypeError, OSError) as error:  # pyarrow's errors derive from these
        raise UsageError(
            f"it is not readable Parquet ({' '.join(str(error).split())[:100]}): write it again"
        ) from error


READERS: dict[str, Callable[[Path], Raw]] = {
    ".npz": _npz,
    ".npy": _npy,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
}


def from_table(frame: pd.DataFrame) -> Raw:
    """Return the arrays of a table.

    | columns | meaning |
    | --- | --- |
    | `sequence`, features, perhaps `y` | the rows of a sequence are its steps; y is for the sequence, or each step |
    | `time`, features, perhaps `y` | one series, whose rows are its steps |
    | `y`, others | each row is a sequence of one feature, with a column for each step |
    | features alone | one series |

    `label` and `target` also name y, `id` and `series` a sequence, and `t` the time. Steps are sorted by the time,
    which is not a feature. A column `split` says to which part a sequence belongs.

    Raises:
        UsageError: a column has text, gaps or no name, or two columns have the same role.
    """
    if frame.empty:
        raise UsageError("its table has no rows or no columns: write it again")
    for number, column in enumerate(frame.columns, start=1):
        if re.fullmatch(r"(Unnamed: \d+|__index_level_\d+__)?", str(column)):  # the names that pandas gives
            raise UsageError(
                f"column {number} has no name: write the table without its index (index=False), or name the column"
            )
    names = {role: _column(frame, role) for role in (TARGET, SEQUENCE, TIME, ("split",))}
    target, sequence, time, split = names.values()
    for column in frame.columns:
        if frame[column].isna().any() and column in names.values():
            row = int(frame[column].isna().to_numpy().argmax())
            raise UsageError(f"column {column} has no value in row {row + 1}: fill or remove the row")
    features = [column for column in frame.columns if column not in names.values()]
    if not features:
        raise UsageError(f"its columns are {', '.join(map(str, frame.columns))}: there is no feature among them")
    order = np.arange(len(frame))
    if time is not None:
        order = order[np.argsort(frame[time].to_numpy()[order], kind="stable")]
    numbers = np.zeros(len(frame), np.int64) if sequence is None else frame[sequence].factorize()[0]
    order = order[np.argsort(numbers[order], kind="stable")]
    frame, numbers = frame.iloc[order], numbers[order]
    x = np.stack([_numbers(frame, column) for column in features], 1)
    y = None if target is None else _values(frame, target)
    parts = None if split is None else _values(frame, split).astype(str)
    if y is not None and sequence is None and time is None:
        return Raw(x.reshape(-1, 1), y, np.full(len(x), len(features)), parts, is_packed=True)
    lengths = np.bincount(numbers)
    starts = lengths.cumsum() - lengths
    if parts is not None:
        parts = _one_each(parts, starts, numbers, "split")
    return Raw(x, y, lengths, parts, is_packed=True)


def _column(frame: pd.DataFrame, role: tuple[str, ...]) -> Any:
    """Return the column with one of these names; None if there is none.

    Raises:
        UsageError: there are several.
    """
    found = [column for column in frame.columns if str(column).lower() in role]
    if len(found) > 1:
        raise UsageError(f"columns {' and '.join(map(str, found))} both name {role[0]}: rename one of them")
    return found[0] if found else None


def _numbers(frame: pd.DataFrame, column: Any) -> Array:
    """Return a column of features.

    Raises:
        UsageError: it is not numeric.
    """
    values = frame[column].to_numpy()
    if values.dtype.kind not in "fiub":
        try:
            values = frame[column].to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            text = next((each for each in values if not _is_number_like(each)), values[0])
            if ";" in str(column):
                raise UsageError(
                    f"the columns '{column!s:.40}' are one, because they are not separated by commas: save the table "
                    "with commas, or with tabs as .tsv"
                ) from error
            raise UsageError(
                f"column {column} has '{text!s:.40}', which is not a number: encode it as numbers, or leave it out"
            ) from error
    numbers: Array = values.astype(np.float64)
    return numbers


def _is_number_like(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) or value is None


def _values(frame: pd.DataFrame, column: Any) -> Array:
    """Return a column of labels or amounts, with text for words of any type."""
    values = frame[column].to_numpy()
    return values if values.dtype.kind in "fiub" else np.array([str(each) for each in values])


def _one_each(values: Array, starts: Array, numbers: Array, name: str) -> Array:
    """Return the value of each sequence.

    Raises:
        UsageError: a sequence has several.
    """
    first = values[starts]
    if (differs := values != first[numbers]).any():
        raise UsageError(f"{name} changes within sequence {int(numbers[differs.argmax()])}: give each sequence one")
    return first


def _labelled(folder: Path) -> list[Path]:
    """Return the files of a folder that are examples: all its texts, or all its recordings.

    Raises:
        UsageError: the folder cannot be read, or has files of both kinds, or none.
    """
    by_kind = {kind: [f for f in visible_files(folder) if f.suffix.lower() in kind] for kind in (TEXTS, RECORDINGS)}
    texts, recordings = by_kind.values()
    if bool(texts) == bool(recordings):
        why = "both texts and recordings" if texts else "neither .txt nor .wav or .flac files"
        raise UsageError(f"the folder has {why}: give it subfolders, one for each label, with files of one kind")
    return sorted(texts or recordings)


def _folder(folder: Path) -> Raw:
    """Read a folder of labelled files.

    Raises:
        UsageError: a file lies outside of a label's folder, cannot be read, or is too short.
    """
    files = _labelled(folder)
    places = [file.relative_to(folder).parts[:-1] for file in files]
    has_parts = {place[0].lower() for place in places if place} <= PARTS.keys() and all(len(p) > 1 for p in places)
    for file, place in zip(files, places, strict=True):
        if len(place) < 1 + has_parts:
            raise UsageError(f"{file.name} is in no subfolder, which would be its label: move it into one")
    y = np.array([place[has_parts] for place in places])
    split = np.array([place[0].lower() for place in places]) if has_parts else None
    if files[0].suffix.lower() in RECORDINGS:
        from orthobench.data.features import speech_features  # with torch, which texts do not need here

        require_audio()
        frames, counts = speech_features(files)
        return Raw(frames[: int(counts.sum())].numpy(), y, counts.numpy(), split, is_packed=True)
    texts = list(map(read_text, files))
    letters = Counter(letter for text in texts for letter in text)
    alphabet = "".join(sorted(letters))
    known = np.frombuffer(alphabet.encode("utf-32-le"), np.uint32)
    read_letters = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    lengths = np.array([len(text) for text in texts])
    return Raw(np.searchsorted(known, read_letters), y, lengths, split, is_packed=True, alphabet=alphabet)
