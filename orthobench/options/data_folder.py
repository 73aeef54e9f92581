"""The folder of the data sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from orthobench.system.cache import user_cache_folder
from orthobench.system.location import from_home, variable

_chosen: ContextVar[Path | None] = ContextVar("data_folder", default=None)


def data_folder() -> Path:
    """Return the data folder: the one set by `use_data_folder`, else $ORTHOBENCH_DATA, else the user's cache folder."""
    if (chosen := _chosen.get()) is not None:
        return chosen
    if named := variable("ORTHOBENCH_DATA"):
        return Path(from_home(named))
    return Path(from_home(str(user_cache_folder()))) / "data"


@contextmanager
def use_data_folder(folder: Path | None) -> Iterator[None]:
    """Set the data folder inside the block; None keeps the current one."""
    token = _chosen.set(_chosen.get() if folder is None else Path(from_home(str(folder))))
    try:
        yield
    finally:
        _chosen.reset(token)
