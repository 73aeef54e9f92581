"""Check, before anything is stored, that runs can start: their data is present, and data, model and settings fit."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from orthobench.errors import OrthobenchError, UsageError
from orthobench.spec import RunConfig
from orthobench.training.devices import make_trainer
from orthobench.training.trainer import Trainer

CPU = torch.device("cpu")


def check_fit(configs: Iterable[RunConfig], device: torch.device = CPU) -> Trainer | None:
    """Check that at least one of the runs can start; a single run that cannot start does not end a sweep.

    The check builds the data and the model and trains nothing. Runs that differ only in the seed count as one. If a
    plugin raises any other error, the run counts as able to start, and the database records the failure.

    Returns:
        The trainer of the first run that can start, or None if a plugin raised an error.

    Raises:
        UsageError: none of the runs can start; the message is the first run's.
    """
    refusal: OrthobenchError | None = None
    checked: set[str] = set()
    for config in configs:
        if config.spec.variant in checked:
            continue
        checked.add(config.spec.variant)
        try:
            return make_trainer(config, device)
        except OrthobenchError as error:
            refusal = refusal or error
        except ValueError as error:
            message = str(error).splitlines()[0] if str(error) else "an invalid value"
            refusal = refusal or UsageError(f"{config.spec.task} and {config.spec.model} do not fit: {message}")
        except Exception:  # a plugin may raise any error; the run raises it again and stores it
            return None
    if refusal is not None:
        raise refusal
    return None
