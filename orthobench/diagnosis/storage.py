"""The data folder and the database."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from orthobench.data.registry import datasets
from orthobench.diagnosis.findings import DoctorFinding, Level
from orthobench.errors import OrthobenchError, counted
from orthobench.options.data_folder import data_folder
from orthobench.store.describe import describe_database
from orthobench.store.open import HEAD, DatabaseNotFoundError, open_store
from orthobench.store.sqlite import is_protected, named_or_default
from orthobench.system.location import Location, Place
from orthobench.weights.weights_files import missing_weights, weights_folder

LITTLE_ROOM = 1 << 30


def data() -> Iterator[DoctorFinding]:
    """Yield findings on the data folder and its data sets."""
    section, folder = "data", data_folder()
    yield folder_finding(section, "folder", folder, "set $ORTHOBENCH_DATA, or give `data_folder`")
    for name, each in datasets().items():
        if each.present():
            yield DoctorFinding(section, name, f"in {each.folder()}")
        else:
            command = f"orthobench data {'get' if each.downloads else 'import'} {name}"
            fix = command if each.downloads else f"{command} PATH (it needs a licence: {each.home})"
            yield DoctorFinding(section, name, "not installed", Level.NOTE, f"to train on it: {fix}")


def database(db: Place | None) -> Iterator[DoctorFinding]:
    """Yield findings on a database; None is the default one."""
    section, location = "database", named_or_default(db, writes=False)
    shown, file = str(location), location.file
    if file is not None:
        yield folder_finding(section, "folder", file.absolute().parent, "name a database in another folder with `db`")
    try:
        description = describe_database(location)
    except DatabaseNotFoundError:
        yield DoctorFinding(section, shown, "does not exist yet: the first run creates it")
        return
    except OrthobenchError as error:
        yield DoctorFinding(section, shown, str(error), Level.ACTION, "restore a backup, or name another one with `db`")
        return
    size = "" if description.bytes is None else f", {description.bytes / 1e6:.1f} MB"
    text = f"{counted(len(description.runs), 'run')}, {description.kind}, schema {description.schema}{size}"
    if file is not None and is_protected(file):
        text += ", protected: new runs go to another file"
    yield DoctorFinding(section, shown, text)
    if description.schema < HEAD:
        fix = "nothing: the next command upgrades it, after a copy"
        yield DoctorFinding(section, "schema", f"{description.schema}, this version has {HEAD}", Level.NOTE, fix)
    elif not description.problems:
        yield from _weights(location)
    for problem in description.problems:
        yield DoctorFinding(section, "damage", problem, Level.ACTION, "restore a backup; see `orthobench db --help`")


def _weights(location: Location) -> Iterator[DoctorFinding]:
    """Yield findings on the kept weights: their place, size and missing files."""
    with open_store(location) as store:
        rows, keys = store.weights(), {run.id: run.key for run in store.runs(brief=True)}
    if not rows:
        return
    folder = weights_folder(location).root
    megabytes = sum(row.bytes for row in rows) / 1e6
    yield DoctorFinding(
        "database", "weights", f"{counted(len(rows), 'file')}, {megabytes:.1f} MB, by default in {folder}"
    )
    if missing := missing_weights(location, keys, rows):
        text = f"missing files: {len(missing)}, such as {missing[0].path}"
        fix = "move them back, or remove their records with orthobench db drop-weights"
        yield DoctorFinding("database", "weights", text, Level.NOTE, fix)


def folder_finding(section: str, subject: str, folder: Path, otherwise: str) -> DoctorFinding:
    """Return the finding on a folder to which commands write; it need not exist yet.

    Args:
        otherwise: what the user can do instead of making the folder writable.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        fix = f"make it writable, or {otherwise}"
        return DoctorFinding(section, subject, f"{existing} cannot be written", Level.ACTION, fix)
    free = shutil.disk_usage(existing).free
    text = f"{folder}{'' if folder.exists() else ' (not created yet)'}, {free / 1e9:.1f} GB free"
    if free < LITTLE_ROOM:
        return DoctorFinding(section, subject, text, Level.ACTION, f"make room there, or {otherwise}")
    return DoctorFinding(section, subject, text)
