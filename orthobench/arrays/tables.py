"""Read tables: CSV, Parquet and pandas. `docs/data.md` has the roles of columns, and what tables mean.

A column is text until its role, or being a feature, decides. Rows are counted from 1, without the names.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from orthobench.arrays.arrange import Array, Sequences, Targets
from orthobench.arrays.words import Kind
from orthobench.errors import UsageError, counted, unknown

if TYPE_CHECKING:
    import pandas as pd

NO_NUMBER = ("", "na", "nan")
"""What a feature without a value may be written as, in any case; numbers leave no other meaning for these words."""
USUAL = {"target": "y", "sequence": "sequence", "time": "time", "split": "split"}
"""The name of the column with a role, in any case, unless a setting names it."""


class Roles(NamedTuple):
    """The columns that settings name for a role; None for the usual name."""

    target: str | None = None
    sequence: str | None = None
    time: str | None = None


NO_ROLES = Roles()


def check_memory(needed: int) -> None:
    """Refuse arrays larger than the machine's memory, to which a small file may unpack.

    Raises:
        UsageError: they are larger.
    """
    memory = psutil.virtual_memory().total
    if needed > memory:
        raise UsageError(f"its arrays take {needed / 2**30:.3g} GiB, and this machine has {memory / 2**30:.3g} GiB")


def read_csv(path: Path) -> pd.DataFrame:
    """Return the table in a CSV file, all text.

    Raises:
        UsageError: a row has another width than the first one, or this is not a row of names.
        csv.Error, UnicodeDecodeError: the file is not CSV in UTF-8.
    """
    import pandas as pd

    # Not by pandas, because it fills short rows, and takes a surplus first field of each row for an index.
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.reader(stream, strict=True))
    while rows and not rows[-1]:
        rows.pop()
    if not rows:
        raise UsageError("it is empty: write it again")
    names = rows[0]
    if len(names) == 1 and ";" in names[0]:
        raise UsageError("its columns are separated by semicolons: save it with commas and decimal points")
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise UsageError(
                f"row {number} has {counted(len(row), 'field')} and the row of names {len(names)}: write as "
                "many, with decimal points rather than commas"
            )
    return pd.DataFrame(rows[1:], columns=names, dtype=object)


def read_parquet(path: Path) -> pd.DataFrame:
    """Return the table in a Parquet file.

    Raises:
        UsageError: pyarrow is missing, or the table is larger than the machine's memory.
        Exception: one of pyarrow's, because the file is damaged.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow: `pip install pyarrow`, or write CSV instead") from error
    with pq.ParquetFile(path) as file:
        facts = file.metadata
        check_memory(8 * facts.num_rows * facts.num_columns)
        table: pd.DataFrame = file.read().to_pandas()
    return table


def of_table(
    table: pd.DataFrame, roles: Roles = NO_ROLES, *, kind: Kind | None = None, targets: Targets | None = None
) -> Sequences:
    """Return the sequences in a table.

    Args:
        kind: what the targets are for; None to see it in them.
        targets: whether they are for sequences or for steps; None: for steps if a sequence has several.

    Raises:
        UsageError: a column has no name, or its values do not fit its role; one line with row and column.
    """
    import pandas as pd

    if any(name is not None for name in table.index.names):  # a named index is a column
        table = table.reset_index()
    elif has_index(table):
        raise UsageError("its index has no name: name it, so that it is a column, or write reset_index(drop=True)")
    names = [str(name).strip() for name in table.columns]
    found = _roles(names, roles)
    columns = dict(zip(names, (table.iloc[:, number] for number in range(len(names))), strict=True))
    features = [name for name in names if name not in found.values()]
    if not features or not len(table):
        raise UsageError(f"its columns are {', '.join(names)}: there is no {'row' if features else 'feature'}")
    texts = {role: _texts(columns[name]) for role, name in found.items()}
    for role, values in texts.items():
        _refuse(found[role], values, values == "", "its role needs: fill it, or remove the row")
    is_wide = "target" in found and not {"sequence", "time"} & found.keys()  # each row is a sequence
    places = np.arange(len(table))
    numbers = places if is_wide else pd.factorize(texts.get("sequence", np.full(len(table), "")))[0]
    times = _times(found["time"], columns[found["time"]], texts["time"]) if "time" in found else places
    order = np.lexsort((times, numbers))
    equal = (np.diff(times[order]) == 0) & (np.diff(numbers[order]) == 0)
    if equal.any():
        first, second = np.sort(order[equal.argmax() :][:2]) + 1
        raise UsageError(
            f"column {found['time']} has equal times in rows {first} and {second}: name the column of the sequence, "
            "as in sequence=NAME, or remove one of the rows"
        )
    steps = np.stack([_features(name, columns[name])[order] for name in features], 1)
    lengths = np.bincount(numbers)
    first_rows = lengths.cumsum() - lengths
    split = texts["split"].astype(str)[order] if "split" in found else None
    if split is not None:
        differs = split != split[first_rows].repeat(lengths)
        _refuse(found["split"], split, differs, "differs from the row before in its sequence", order)
        split = split[first_rows]
    y = _targets(found["target"], columns[found["target"]], texts["target"], kind)[order] if "target" in found else None
    rows, by_step = order + 1, False
    if is_wide:
        lengths, rows = lengths * len(features), rows.repeat(len(features))
        steps = steps.reshape(-1, 1)
    elif y is not None:
        is_one = len(lengths) > 1 and bool((y == y[first_rows].repeat(lengths)).all())
        by_step = targets == "step" or not is_one
        y = y if by_step else y[first_rows]
    return Sequences(
        steps, lengths, y, by_step, split, columns=tuple(features), target=found.get("target", ""), rows=rows
    )


def has_index(values: Any) -> bool:
    """Return whether a table or column of pandas has an index other than the numbers of its rows."""
    return hasattr(values, "iloc") and not bool((values.index == np.arange(len(values))).all())


def _roles(names: Sequence[str], roles: Roles) -> dict[str, str]:
    """Return the name of the column with each role.

    Raises:
        UsageError: the names are numbers, one is missing or occurs twice, or there is none that a setting gives.
    """
    found = {role: name for role, name in roles._asdict().items() if name is not None}
    if strange := [name for name in found.values() if name not in names]:
        raise unknown("column", strange[0], names)
    if not found and names and not _parsed(names)[1].any():
        raise UsageError("its first row is numbers: write a row with the names of the columns above it")
    for role in USUAL.keys() - found.keys():
        fitting = [name for name in names if name.lower() == USUAL[role] and name not in found.values()]
        if len(fitting) > 1:
            raise UsageError(f"columns {' and '.join(fitting)} both name {USUAL[role]}: rename one of them")
        if fitting:
            found[role] = fitting[0]
    if "" in names:
        raise UsageError(f"column {names.index('') + 1} has no name: write the table without its index, or name it")
    if len(set(names)) < len(names):
        raise UsageError(f"two columns are called {Counter(names).most_common(1)[0][0]:.40}: rename one of them")
    return found


def on_one_line(text: str) -> str:
    """Return the start of a text from a file for a message."""
    return " ".join(text.split())[:40]


def _refuse(name: str, values: Array, wrong: NDArray[np.bool_], why: str, rows: Array | None = None) -> None:
    """Refuse the first wrong value of a column.

    Args:
        rows: the row of each value, from 0; None if they are in the file's order.

    Raises:
        UsageError: there is one.
    """
    if wrong.any():
        at = int(wrong.argmax())
        row = (at if rows is None else int(rows[at])) + 1
        text = on_one_line(str(values[at]))
        raise UsageError(f"column {name} has {repr(text) if text else 'no value'} in row {row}, which {why}")


def _texts(column: pd.Series[Any]) -> Array:
    """Return a column as it is written, "" where a value is missing."""
    return column.astype(object).where(column.notna(), "").map(str).str.strip().to_numpy(object)


def _parsed(texts: Any) -> tuple[Array, NDArray[np.bool_]]:
    """Return texts as numbers, int64 or float64 with NaN for missing values, and which of them are no numbers."""
    import pandas as pd

    numbers = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy()
    wrong = np.isnan(numbers)
    wrong[wrong] = [texts[row].lower() not in NO_NUMBER for row in np.flatnonzero(wrong).tolist()]
    return numbers, wrong


def _features(name: str, column: pd.Series[Any]) -> Array:
    """Return a column of features, float64, with NaN for missing values.

    Raises:
        UsageError: a value is not a number.
    """
    if column.dtype.kind in "fiub":
        return column.to_numpy(np.float64, na_value=np.nan)
    texts = _texts(column)
    numbers, wrong = _parsed(texts)
    roles = " or ".join(f"{role}={name}" for role in Roles._fields)
    _refuse(name, texts, wrong, f"is not a number: set {roles} if it is one of these, or leave it out")
    return numbers.astype(np.float64)


def _targets(name: str, column: pd.Series[Any], texts: Array, kind: Kind | None) -> Array:
    """Return targets as numbers if all are, and otherwise as text; 001 is text, because a number would lose zeros.

    Raises:
        UsageError: they are of another type, or amounts and words.
    """
    if column.dtype.kind in "fiub":
        return column.to_numpy()
    strange = np.array([not isinstance(value, (str, Number)) for value in column])
    _refuse(name, texts, strange, "is neither text nor a number: write it as one")
    numbers, _ = _parsed(texts)
    is_number = ~np.isnan(numbers)
    if kind == "regression":
        _refuse(name, texts, ~is_number, "is not a number: write classification:FILE for labels")
        return numbers.astype(np.float64)
    if all(map(re.compile(r"-?[1-9]\d*|0").fullmatch, texts)):
        return numbers
    is_whole = np.array([re.fullmatch(r"[+-]?\d+", text) is not None for text in texts])
    if is_number.all() and not is_whole.all():
        return numbers
    if kind is None and (is_number & ["." in text for text in texts]).any():
        fix = "write classification:FILE if all are labels, or regression:FILE without this row"
        _refuse(name, texts, ~is_number, f"is not a number, and others are: {fix}")
    return texts.astype(str)


def _times(name: str, column: pd.Series[Any], texts: Array) -> Array:
    """Return numbers by which times sort; a time without a zone is in UTC.

    Raises:
        UsageError: a time is neither a number nor ISO 8601.
    """
    import pandas as pd

    if column.dtype.kind in "fiub":
        return column.to_numpy()
    numbers, _ = _parsed(texts)
    if not np.isnan(numbers).any():
        return numbers
    # By the first one, so that the message names the one that differs. Times of one day have no date.
    of_day = re.match(r"T?\d\d:", texts[0]) is not None
    whole = [f"1970-01-01T{text.removeprefix('T')}" if of_day else text for text in texts]
    times = pd.to_datetime(whole, format="ISO8601", utc=True, errors="coerce")
    # pandas also reads words such as "now", and no time begins with a letter.
    begin = re.compile(r"T?\d\d:" if of_day else r"\d")
    wrong = [begin.match(text) is None for text in texts] | np.array(times.isna())
    _refuse(name, texts, wrong, "is neither a number nor a time of ISO 8601, such as 2024-01-31T09:30: write it so")
    return times.asi8
