"""Check before anything is stored that runs can start: their data is present, and data, model and settings fit."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from orthobench.errors import OrthobenchError, UsageError
from orthobench.spec import RunConfig
from orthobench.task import Task
from orthobench.training.trainer import Trainer


def check_fit(configs: Iterable[RunConfig]) -> None:
    """Check that at least one of the runs can start; a single run that cannot start does not end a sweep.

    The check makes the data and the model on the CPU and trains nothing. Runs that differ in the seed alone count as
    one. A plugin that raises another error can start: the database records the failure.

    Raises:
        UsageError: none of the runs can start; the line is that of the first.
    """
    refusal: OrthobenchError | None = None
    checked: set[str] = set()
    for config in configs:
        if config.spec.variant in checked:
            continue
        checked.add(config.spec.variant)
        try:
            _make(config)
        except OrthobenchError as error:
            refusal = refusal or error
        except ValueError as error:
            message = str(error).splitlines()[0] if str(error) else "an invalid value"
            refusal = refusal or UsageError(f"{config.spec.task} and {config.spec.model} do not fit: {message}")
        except Exception:  # code of plugins raises any error; the run raises it again and stores it
            return
        else:
            return
    if refusal is not None:
        raise refusal


def _make(config: RunConfig) -> None:
    device = torch.device("cpu")
    task: Task = config.task_class(config.task_settings, config.spec.seed, device)
    Trainer(config, task, device)
