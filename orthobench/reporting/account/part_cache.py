"""Keep the parts of a page that a server renews, so that a change of a run rebuilds only what shows this run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from orthobench.store import Run, Store

T = TypeVar("T")


class PartCache:
    """Parts of a page by name, with what each of them was built from.

    Attributes:
        built: the names of the parts that were built, in this order.
    """

    def __init__(self) -> None:
        self.built: list[str] = []
        self._parts: dict[str, tuple[Sequence[object], Any, Any]] = {}
        self._runs: dict[int, tuple[Any, Run | None]] = {}

    def __call__(self, name: str, objects: Sequence[object], values: Any, build: Callable[[], T]) -> T:
        """Return a part, built again unless these objects are the same and these values equal.

        Args:
            objects: what the part shows, such as a condition, which is replaced if one of its runs changes.
            values: whatever else the part depends on.
        """
        if self.has(name, objects, values):
            return cast(T, self._parts[name][2])
        part = build()
        self._parts[name] = (tuple(objects), values, part)
        self.built.append(name)
        return part

    def has(self, name: str, objects: Sequence[object], values: Any = None) -> bool:
        """Return whether a part is kept that was built from the same objects and equal values."""
        if (known := self._parts.get(name)) is None:
            return False
        before, equal, _ = known
        return bool(equal == values) and len(before) == len(objects) and all(map(_is, before, objects))

    def previous(self, name: str) -> Any:
        """Return a part as it was built last; None without one."""
        return self._parts[name][2] if name in self._parts else None

    def runs(self, store: Store, status_of: Callable[[Any], str]) -> list[Run]:
        """Return all runs with their current status. A run that has not changed is the same object as before.

        Args:
            status_of: returns the status of a run, in case the stored one is out of date.
        """
        stamps = {row.id: (row.key, status_of(row), *row) for row in store.stamps()}
        changed = [number for number, stamp in stamps.items() if self._runs.get(number, (None, None))[0] != stamp]
        keys = [stamps[number][0] for number in changed] if len(changed) < FEW else None
        fresh = {run.id: run for run in store.runs(keys=keys)} if changed else {}
        for number in changed:
            run = fresh.get(number)  # None for a run that cannot be read
            if run is not None:
                run.status = stamps[number][1]
            self._runs[number] = (stamps[number], run)
        for number in self._runs.keys() - stamps.keys():
            del self._runs[number]
        return [run for number in stamps if (run := self._runs[number][1]) is not None]

    def by_key(self) -> dict[str, Run]:
        """Return the runs that `runs` has read last, by key."""
        return {run.key: run for _, run in self._runs.values() if run is not None}


FEW = 1_000
"""Up to this number, changed runs are read by their keys; more of them are read with all runs."""


def _is(first: object, second: object) -> bool:
    return first is second
