"""The device and the back end that a run asks for."""

from __future__ import annotations

from typing import Any

import torch

from orthobench.errors import UsageError
from orthobench.options.arguments import BackendName, DeviceName
from orthobench.recurrence import BackendError, recurrence
from orthobench.recurrence.backends import use_backend


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
    if name == "cuda" and device.type != name:
        return "the run is on the CPU"
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


CPU = torch.device("cpu")
