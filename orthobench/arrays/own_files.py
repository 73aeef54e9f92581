"""Read the user's own data: NumPy files, tables, and folders of labelled recordings.

A file is data: nothing in it is run, so pickled objects are refused. `docs/data.md` has the forms.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from orthobench.arrays.arrange import PARTS, SAVED, Array, Sequences, Targets, of_arrays, of_saved
from orthobench.arrays.tables import NO_ROLES, Roles, check_memory, of_table, read_csv, read_parquet
from orthobench.arrays.words import Kind
from orthobench.data.checksums import files_md5
from orthobench.data.speech import require_audio
from orthobench.errors import UsageError, unknown
from orthobench.system.visible_files import visible_files

ARRAYS = ("x", "y", "lengths", "split")
"""The names of the arrays in an .npz file."""
RECORDINGS = (".wav", ".flac")


def read_own_data(
    path: Path,
    roles: Roles = NO_ROLES,
    kind: Kind | None = None,
    targets: Targets | None = None,
) -> Sequences:
    """Return the sequences in a file or folder.

    Args:
        roles: the columns of a table that settings name.
        kind: what is learnt; None if this is not known yet.
        targets: what has a target; None: as the data says.

    Raises:
        UsageError: it does not exist, cannot be read, or is not of a known form; one line with the fix.
    """
    suffix = path.suffix.lower()
    check_name(path)
    if not path.exists():
        raise UsageError("there is no such file: check its path")
    is_table = suffix in TABLES and not path.is_dir()
    if not is_table and (named := [f"{role}={name}" for role, name in roles._asdict().items() if name is not None]):
        raise UsageError(f"{named[0]}: only tables have columns with names: leave it out")
    if is_table:
        found = of_table(_loaded(TABLES[suffix], path), roles, kind=kind, targets=targets)
    elif path.is_dir():
        found = _folder(path)
    elif suffix == ".npz":
        arrays = _loaded(_npz, path)
        found = of_saved(arrays) if arrays.keys() >= SAVED else of_arrays(**arrays, kind=kind, targets=targets)
    else:
        known = ", ".join([".npz", *TABLES])
        raise UsageError(f"'{path.suffix or path.name}' is not known: give {known}, or a folder")
    if found.targets is not None and targets not in (None, "step" if found.by_step else "sequence"):
        raise UsageError(f"targets={targets} does not fit the data: leave it out")
    return found


def _loaded(load: Callable[[Path], Any], path: Path) -> Any:
    """Return what a file holds.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return load(path)
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise UsageError("its arrays do not fit into this machine's memory: give a part of them") from error
    except UnicodeDecodeError as error:
        raise UsageError("its text is not in UTF-8: save it as UTF-8") from error
    except Exception as error:  # because a damaged file may make its reader raise anything
        why = " ".join(str(error).split())[:100]
        is_pickle = "it holds Python objects, not data: save plain arrays of numbers or text"
        raise UsageError(is_pickle if "pickle" in why else f"it is damaged ({why}): save it again") from error


def check_name(path: Path) -> None:
    """Refuse a name that is not UTF-8, because the database records it.

    Raises:
        UsageError: with the name, its other bytes written out.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        written = str(path).encode(errors="backslashreplace").decode()
        raise UsageError(f"the name {written} is not UTF-8, which the database needs: rename it") from error


def checksum(path: Path) -> str:
    """Return the checksum of a file, or of the recordings in a folder.

    Raises:
        UsageError: a file cannot be read.
    """
    return files_md5(path, _recordings(path)) if path.is_dir() else files_md5(path.parent, [path])


def _npz(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        check_memory(sum(entry.file_size for entry in archive.infolist()))
    with np.load(path, allow_pickle=False) as file:
        if set(file.files) >= SAVED:
            return dict(file)
        if "x" not in file.files:
            raise UsageError(f"it has {', '.join(file.files) or 'no array'}: name the array of sequences x")
        if strange := [name for name in file.files if name not in ARRAYS]:
            raise unknown("array", strange[0], ARRAYS)
        return {name: np.asarray(file[name]) for name in file.files}


TABLES = {".csv": read_csv, ".parquet": read_parquet}


def _recordings(folder: Path) -> list[Path]:
    """Return the recordings in a folder.

    Raises:
        UsageError: there are none, one lies outside of a label's folder, or a name cannot be read.
    """
    files = [file for file in sorted(visible_files(folder)) if file.suffix.lower() in RECORDINGS]
    for file in files:
        check_name(file)
        if file.parent == folder:
            raise UsageError(f"{file.name} is in no subfolder, which would be its label: move it into one")
    if not files:
        raise UsageError("the folder has neither .wav nor .flac files: give it subfolders of them, one for each label")
    return files


def _folder(folder: Path) -> Sequences:
    """Read a folder of labelled recordings.

    Raises:
        UsageError: a file cannot be read, is too short, or is in none of the parts that the folder has.
    """
    from orthobench.data.features import speech_features  # with torch, which other data does not need here

    files = _recordings(folder)
    places = [file.relative_to(folder).parts[:-1] for file in files]
    is_part = [place[0].lower() in PARTS and len(place) > 1 for place in places]
    has_parts = any(place[0].lower() in PARTS for place in places)
    if has_parts and not all(is_part):
        strange = files[is_part.index(False)].relative_to(folder)
        raise UsageError(f"{strange} is in no label of train, validation or test, as others are: move it into one")
    split = np.array([place[0].lower() for place in places]) if has_parts else None
    require_audio()
    frames, counts = speech_features(files)
    labels = np.array([place[has_parts] for place in places])
    return Sequences(frames[: int(counts.sum())].numpy(), counts.numpy().astype(np.int64), labels, split=split)
