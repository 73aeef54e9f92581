"""Build the trainer of a run, and see whether it fits before anything is written."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from orthobench.errors import OrthobenchError, UsageError, lacks_memory, one_line
from orthobench.isolation import seed_generators
from orthobench.spec.resolve import RunConfig
from orthobench.system.own_code import message_of
from orthobench.task import derive_seed
from orthobench.training.device import CPU
from orthobench.training.trainer import Trainer


def build_trainer(config: RunConfig, device: torch.device) -> Trainer:
    """Seed the random generators for a run, and return the run's trainer with its data; call it within `isolated`.

    Raises:
        UsageError: the data is missing, the settings do not fit it, or data and model exceed the memory.
    """
    seed_generators(derive_seed(config.spec.seed, "global"))
    try:
        task = config.task_class(config.task_settings, config.spec.seed, device)
        return Trainer(config, task, device)
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        pair = f"{config.spec.task} and {config.spec.model}"
        raise UsageError(f"out of memory while building {pair}: choose smaller sizes ({one_line(error)})") from error


def check_fit(configs: Iterable[RunConfig], device: torch.device = CPU) -> Trainer | None:
    """Check that at least one of the runs can start; a single run that cannot start does not end a sweep.

    The check builds the data and the model and trains nothing; call it within `isolated`. Runs that differ only in the
    seed count as one. If a plugin raises any other error, the run counts as able to start, and the database records the
    failure.

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
            return build_trainer(config, device)
        except OrthobenchError as error:
            refusal = refusal or error
        except ValueError as error:
            pair = f"{config.spec.task} and {config.spec.model}"
            refusal = refusal or UsageError(f"{pair} do not fit: {message_of(error)}")
        except Exception:  # a plugin may raise any error; the run raises it again and stores it
            return None
    if refusal is not None:
        raise refusal
    return None
