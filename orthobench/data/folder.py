"""The folder that contains the data sets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import platformdirs

_chosen: ContextVar[Path | None] = ContextVar("data_folder", default=None)


def data_folder() -> Path:
    """Return the data folder: the one set by `use_data_folder`, else $ORTHOBENCH_DATA, else the user's cache folder."""
    if (chosen := _chosen.get()) is not None:
        return chosen
    variable = os.environ.get("ORTHOBENCH_DATA")
    return Path(variable) if variable else platformdirs.user_cache_path("orthobench") / "data"


@contextmanager
def use_data_folder(folder: Path | None) -> Iterator[None]:
    """Set the data folder inside the block; None keeps the current one."""
    token = _chosen.set(folder or _chosen.get())
    try:
        yield
    finally:
        _chosen.reset(token)
