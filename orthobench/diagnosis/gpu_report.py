"""The report on a GPU: rows of measurements in a file of JSON lines, each on the disk before the next begins.

The first line names the machine. A row has a line when it starts and one with its values. So a report that was cut off
stands, and the same command continues it. A row that ended its process is recorded as such, and not tried again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch

from orthobench import environment
from orthobench.diagnosis import gpu_rows
from orthobench.diagnosis.gpu_timing import Row
from orthobench.errors import UsageError, one_line
from orthobench.recurrence.cuda import verdicts
from orthobench.store.atomic import storage_error
from orthobench.store.strict_json import dumps

KIND = "orthobench GPU report"


def measure_gpu(file: Path, seconds: float, on_row: Callable[[Mapping[str, Any]], None]) -> int:
    """Write the report of the current CUDA device; the arguments are those of `orthobench.api.gpu_report`.

    Raises:
        UsageError: there is no CUDA device, or the file is no report of this machine.
        StorageError: the file cannot be written.
    """
    if not torch.cuda.is_available():
        raise UsageError("there is no CUDA device here: run --gpu-report on a machine with a GPU that torch sees")
    device = torch.device("cuda", torch.cuda.current_device())
    facts = environment.describe(device) | verdicts.machine(device)
    deadline = time.monotonic() + seconds
    return write_report(
        file, facts, list(gpu_rows.rows(device)), deadline, on_row, is_broken=lambda: verdicts.is_broken(device)
    )


def write_report(
    file: Path,
    facts: Mapping[str, Any],
    rows: Sequence[Row],
    deadline: float,
    on_row: Callable[[Mapping[str, Any]], None],
    clock: Callable[[], float] = time.monotonic,
    is_broken: Callable[[], bool] = lambda: False,
) -> int:
    """Measure the rows that a file lacks, in their order, and return the number of rows that are missing then.

    A row that raises has the error in place of its values. If it broke the device, the report ends there, and the same
    command continues it in a fresh process.

    Args:
        facts: the machine's facts.
        deadline: no row begins after this time of the clock.
        is_broken: whether an error has made the device useless for this process.

    Raises:
        UsageError: the file is no report, or that of another machine.
        StorageError: the file cannot be written.
    """
    same = {name: facts.get(name) for name in ("device", "driver", "torch", "code")}
    records, size = _read(file, same)
    finished = {record["row"] for record in records if "row" in record and "started" not in record}
    started = {record["row"] for record in records if "started" in record} - finished
    with _appending(file, size) as stream:
        if not records:
            _append(stream, {"report": KIND, "machine": dict(facts)})
        for name in sorted(started):
            record = {"row": name, "error": "the process ended in this row"}
            _append(stream, record)
            on_row(record)
        pending = [row for row in rows if row.name not in finished | started]
        for position, row in enumerate(pending):
            if clock() >= deadline:
                return len(pending) - position
            _append(stream, {"row": row.name, "started": True})
            record = {"row": row.name, **_measured(row)}
            _append(stream, record)
            on_row(record)
            if "error" in record and is_broken():
                return len(pending) - position - 1
    return 0


def line(record: Mapping[str, Any]) -> str:
    """Return a row as a line of text."""
    values = [f"{name} {_text(value)}" for name, value in record.items() if name != "row"]
    return f"{record['row']}: {', '.join(values)}"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({', '.join(f'{name} {_text(entry)}' for name, entry in value.items())})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _measured(row: Row) -> dict[str, Any]:
    try:
        return dict(row.measure())
    except Exception as error:  # one failure does not cost the other rows
        return {"error": one_line(error)}


def _read(file: Path, same: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Return the records of a report, and the bytes that they take; a last line that was cut off is left out.

    Raises:
        UsageError: the file is no report, or that of another machine.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}: name another file") from error
    whole = content[: content.rfind(b"\n") + 1]
    if not whole and content.startswith(b'{"report": "' + KIND.encode()):
        return [], 0
    try:
        records = [json.loads(text) for text in whole.splitlines()]
        if content and records[0]["report"] != KIND:
            raise ValueError(records[0]["report"])
        before = {name: records[0]["machine"].get(name) for name in same} if records else dict(same)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} exists and is no report of a GPU: name another file") from error
    if before != same:
        changed = ", ".join(f"{name} {before[name]}" for name in same if before[name] != same[name])
        raise UsageError(f"{file} is the report of other circumstances ({changed}): name another file")
    return records, len(whole)


@contextmanager
def _appending(file: Path, size: int) -> Iterator[TextIO]:
    """Open a file to append after its first `size` bytes.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        file.touch()
        os.truncate(file, size)
        with file.open("a", encoding="utf-8") as stream:
            yield stream
    except OSError as error:
        raise storage_error(file, error) from error


def _append(stream: TextIO, record: Mapping[str, Any]) -> None:
    stream.write(dumps(record, default=str) + "\n")
    stream.flush()
    os.fsync(stream.fileno())
