"""Devices and back ends of runs, and the trainer of a run on them, which also shows that a run can start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

import torch

from orthobench import seeds
from orthobench.arguments import BackendName, DeviceName
from orthobench.errors import OrthobenchError, UsageError, one_line
from orthobench.recurrence import BackendError, recurrence
from orthobench.recurrence.runtime import use_backend
from orthobench.spec import RunConfig
from orthobench.training.size import lacks_memory
from orthobench.training.trainer import Trainer


def pick_device(name: DeviceName) -> torch.device:
    """Return the device with this name; "auto" is CUDA if there is a CUDA device, or else the CPU.

    Raises:
        UsageError: there is no CUDA device.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no CUDA device here: use `device='cpu'`, or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def backend_problem(name: str, device: torch.device) -> str | None:
    """Return why a back end of the recurrence cannot run on this device, or None if it can.

    The check does not open a CUDA context, which would take memory in addition to the contexts of the worker processes.
    """
    if name == "auto":
        return None
    try:
        with use_backend(name):
            recurrence.chosen_backend(_Described((1, 1, 2), device), _Described((2, 2), device))
    except (BackendError, ValueError) as error:
        return str(error)
    return None


class _Described(torch.Tensor):
    """A float32 tensor that has a shape and a device but no memory."""

    @staticmethod
    def __new__(cls, shape: tuple[int, ...], device: torch.device) -> _Described:
        described: _Described = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32, device=device)
        return described

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"{func}: this tensor has no numbers")


def check_backend(name: BackendName, device: torch.device) -> None:
    """Refuse a back end of the recurrence that cannot run on this device.

    Raises:
        UsageError: the back end cannot run; the message gives the reason.
    """
    if problem := backend_problem(name, device):
        raise UsageError(f"`backend={name!r}`: {problem}; use `backend='auto'`")


_LOCK = Lock()
_OUTER: list[torch.dtype] = []
"""The program's default type, one entry for each open block of `plain_torch` in any thread."""


@contextmanager
def plain_torch() -> Iterator[None]:
    """Give torch the default type, device and autocast of a new process; at the end restore the program's own.

    With different defaults a run would produce different numbers under the same key.
    """
    with _LOCK:
        _OUTER.append(_OUTER[0] if _OUTER else torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
    try:
        with ExitStack() as stack:
            if torch.get_default_device().type != "cpu":
                stack.enter_context(torch.device("cpu"))
            for device in ("cpu", "cuda"):
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
            yield
    finally:
        with _LOCK:
            outer = _OUTER.pop()
            if not _OUTER:
                torch.set_default_dtype(outer)


def make_trainer(config: RunConfig, device: torch.device) -> Trainer:
    """Set torch's global state for a run, and return the run's trainer with its data.

    Raises:
        UsageError: the data is missing, the settings do not fit it, or data and model exceed the memory.
    """
    torch.set_flush_denormal(True)
    torch.manual_seed(seeds.derive(config.spec.seed, "global"))
    try:
        task = config.task_class(config.task_settings, config.spec.seed, device)
        return Trainer(config, task, device)
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        pair = f"{config.spec.task} and {config.spec.model}"
        raise UsageError(f"out of memory while building {pair}: choose smaller sizes ({one_line(error)})") from error


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
