"""Sweeps announce their runs, so that another command can tell a waiting run from an abandoned one."""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from orthobench.store.tables import utc_now
from orthobench.system.location import Location
from orthobench.system.strict_json import dump_json
from orthobench.training.locks import hold_shared

ANNOUNCEMENT = ".sweep"
"""The suffix of the file that lists the runs of a sweep."""


@contextmanager
def announced(root: Path | Location, runs: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Leave the list of a sweep's runs next to their locks until the context ends, for `running_sweeps`.

    There is none for checkpoints at a URL, or if the folder cannot be written, because nothing depends on the list.
    """
    if isinstance(root, Location):
        yield
        return
    file = root / f"{secrets.token_hex(8)}{ANNOUNCEMENT}"
    with ExitStack() as stack:
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            for old in root.glob(f"*{ANNOUNCEMENT}"):
                with suppress(BlockingIOError), hold_shared(old):  # its sweep was killed
                    old.unlink()
            opened = stack.enter_context(file.open("x", encoding="utf-8"))
            fcntl.flock(opened, fcntl.LOCK_EX)
            opened.write(dump_json({"began": utc_now().isoformat(), "runs": runs}))
            opened.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                file.unlink()


def running_sweeps(root: Path | Location) -> list[dict[str, Any]]:
    """Return the sweeps that train now: `began` in UTC, and `runs`, as `announced` got them."""
    sweeps = []
    for file in sorted(root.glob(f"*{ANNOUNCEMENT}")) if isinstance(root, Path) else ():
        with suppress(OSError, ValueError):  # the sweep may end meanwhile
            try:
                with hold_shared(file):
                    continue
            except BlockingIOError:
                sweeps.append(json.loads(file.read_text("utf-8")))
    return sweeps
