"""Choose the back end that runs a call.

`auto` selects the kernels for the call's device, C on the CPU and Triton on CUDA, in float32. `reference` runs all
other calls.
"""

from __future__ import annotations

import importlib
import logging
from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor

from orthobench.recurrence import backends, kernels, reference
from orthobench.recurrence.call import Call, Convolution, Inputs, Projection, Result
from orthobench.recurrence.kernels import Kernel
from orthobench.recurrence.projection import project

_logger = logging.getLogger("orthobench.recurrence")
_logged: set[str] = set()


def run(call: Call) -> Result:
    """Run a call on the chosen back end and record its name.

    Raises:
        BackendError: the back end cannot run the call.
    """
    name = choose(call)
    if not _is_of_sum(call):
        backends.record(name)
    kernel = kernel_of(call, name)
    call = replace(call, x=_resolved(call.x, kernel))
    if call.is_mapped and not kernel.makes_weights:
        assert isinstance(call.x, Tensor)
        assert isinstance(call.weight, Tensor)
        call = replace(call, weight=project(call.x, call.weight))
    result: Result = _module(name).run(call)
    return result


def kernel_of(call: Call, name: str) -> type[Kernel]:
    """Return the kernel that runs a call on a back end; the reference's kernel never computes inputs itself."""
    return kernels.find(call.operation, name) or Kernel


def _resolved(x: Inputs, kernel: type[Kernel]) -> Inputs:
    """Return the call's inputs, after computing what the kernel does not compute itself."""
    if isinstance(x, Tensor) or kernel.makes(x):
        return x
    if isinstance(x, Convolution):
        x = replace(x, source=resolved(x.source))
        return x if kernel.makes(x) else resolved(x)
    return resolved(x)


def resolved(x: Inputs) -> Tensor:
    """Return the inputs, computed from their projection or convolution."""
    if isinstance(x, Convolution):
        from orthobench.recurrence.convolution import short_convolution

        return short_convolution(resolved(x.source), x.weight, x.before, x.bias)
    return project(x.inputs, x.weight, x.bias) if isinstance(x, Projection) else x


def choose(call: Call) -> str:
    """Return the name of the back end for this call, one of BACKENDS.

    Raises:
        BackendError: the back end set by `use_backend` or `set_backend` cannot run the call.
    """
    if torch.compiler.is_exporting() or _is_of_sum(call):  # an exported program may only use torch's operations
        return backends.REFERENCE
    name = backends.chosen()
    if name != backends.AUTO:
        if reason := _unsupported(name, call) or _module(name).unusable(call):
            raise backends.BackendError(f"{call.operation.name}: back end {name} cannot serve this: {reason}")
        return name
    device = call.x.device.type
    if device not in backends.BACKENDS or call.x.dtype != torch.float32:
        return backends.REFERENCE
    if reason := _unsupported(device, call):
        _log_once(logging.INFO, f"{call.operation.name}: not on back end {device}: {reason}")
    elif reason := _module(device).unusable(call):
        slower = _module(device).SLOWER_WITHOUT
        consequence = f"the recurrences run in PyTorch instead, {slower} (back end {backends.REFERENCE})"
        _log_once(logging.WARNING, f"{reason}; {consequence}; orthobench doctor shows what to do")
    else:
        return device
    return backends.REFERENCE


def _is_of_sum(call: Call) -> bool:
    """Return whether a trace asks for something that only the reference records."""
    return call.trace is not None and call.trace.of_sum


def _unsupported(name: str, call: Call) -> str | None:
    try:
        reason: str | None = _module(name).unsupported(call)
    except ImportError as error:
        return f"it cannot be imported ({error})"
    return reason


def _module(name: str) -> ModuleType:
    """Import a back end's module, which has `run`, `unsupported` and `unusable`; the import may take seconds."""
    if name == backends.REFERENCE:
        return reference
    return importlib.import_module(f"orthobench.recurrence.{name}.backend")


def _log_once(level: int, message: str) -> None:
    if message not in _logged:
        _logged.add(message)
        _logger.log(level, "%s", message)
