"""Examine this installation."""

from __future__ import annotations

from orthobench.diagnosis import Diagnosis, examine
from orthobench.options.arguments import Database, File
from orthobench.options.checked import checked
from orthobench.options.data_folder import use_data_folder


@checked
def doctor(db: Database | None = None, *, data_folder: File | None = None, retest: bool = False) -> Diagnosis:
    """Examine versions, devices, compilers, caches, back ends, kernels, the data folder and the database.

    CUDA kernels that have not been compared with the reference on this device yet are compared now, which takes a few
    minutes on a new GPU.

    Args:
        db: the database; None for the default one.
        data_folder: the data folder; None for the default one.
        retest: compare all kernels with the reference, including CUDA kernels that were compared before.

    Returns:
        The findings. Findings of level "action" name a fix.
    """
    with use_data_folder(data_folder):
        return examine(db, retest)
