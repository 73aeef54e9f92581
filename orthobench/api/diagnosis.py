"""Examine this installation, and measure its GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orthobench.data import use_data_folder
from orthobench.execution.arguments import checked

if TYPE_CHECKING:
    from orthobench.diagnosis import Diagnosis


@checked()
def doctor(db: str | Path | None = None, *, data_folder: Path | None = None, retest: bool = False) -> Diagnosis:
    """Examine versions, devices, compilers, caches, back ends, kernels, the data folder and the database.

    Kernels that were not compared with the reference yet are compared, which takes seconds on the CPU and some minutes
    on a new GPU.

    Args:
        db: the database; None for the default one.
        data_folder: the data folder; None for the default one.
        retest: compare all kernels again, also those that were compared before.

    Returns:
        The findings. Those of level "action" name a fix.
    """
    from orthobench.diagnosis import examine

    with use_data_folder(data_folder):
        return examine(None if db is None else str(db), retest)


def gpu_report(
    file: str | Path, *, minutes: float = 10.0, on_row: Callable[[Mapping[str, Any]], None] = lambda row: None
) -> int:
    """Measure the GPU row by row into a file of JSON lines; a report that was cut off is continued.

    Args:
        file: the report; it is written after every row.
        minutes: after these the measurement ends, and the same call continues it.
        on_row: receives every new row.

    Returns:
        The number of rows that are still missing.

    Raises:
        UsageError: there is no CUDA device, or the file is no report of this machine.
        StorageError: the file cannot be written.
    """
    from orthobench.diagnosis.gpu_report import measure_gpu

    return measure_gpu(Path(file), 60 * minutes, on_row)
