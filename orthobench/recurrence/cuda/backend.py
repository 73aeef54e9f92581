"""The CUDA back end: kernels in CUDA C++ and Triton with a hand-written backward pass, and operations of PyTorch.

A CUDA graph should capture the launches of single steps together with the rest of a training step. Importing this
module needs neither Triton nor a GPU; `unsupported` returns what a call lacks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.recurrence import kernels
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cuda import launch, persistent, self_test

SLOWER_WITHOUT = "many times slower"
"""How much slower PyTorch is."""


def unsupported(call: Call) -> str | None:
    """Return the reason why this back end has no kernel for the call, or None."""
    if call.known.fits:
        return None
    reason = _misfit(call)
    call.known.fits = reason is None
    return reason


def _misfit(call: Call) -> str | None:
    op, x, weight, kernel = call.operation.name, call.x, call.weight, kernels.find(call.operation, "cuda")
    if kernel is None:
        return f"{op} has no CUDA kernels"
    if not isinstance(weight, Tensor):
        return "W is applied by a function, which has no CUDA kernel"
    if x.device.type != "cuda" or weight.device != x.device:
        return f"{op}: x is on {x.device} and the weight on {weight.device}, not on one CUDA device"
    if not issubclass(kernel, launch.TestedKernel):
        return None
    if x.dtype != torch.float32 or weight.dtype != torch.float32:
        return f"{op}: the kernels are float32, x is {x.dtype} and the weight {weight.dtype}"
    if issubclass(kernel, persistent.CompiledKernel):
        reason = kernel.misfit(call)
        if reason is None or kernel.other is None:
            return reason
        kernel = kernel.other
    if problem := launch.triton_problem():
        return problem
    if torch.cuda.get_device_capability(x.device) < (8, 0):
        return f"{torch.cuda.get_device_name(x.device)} has no TF32 tensor cores"
    return kernel.unsupported(call.parameters)


def unusable(call: Call) -> str | None:
    """Return the reason why the kernels of a supported call failed their self-test on its device, or None.

    A call without a state only asks which back end would run, so nothing is tested.
    """
    kernel = kernels.find(call.operation, "cuda")
    needs_test = kernel is not None and issubclass(kernel, launch.TestedKernel) and call.state
    return self_test.failure(call, run) if needs_test else None


def run(call: Call) -> Result:
    """Run all steps, with compiled kernels or PyTorch's."""
    kernel = kernels.find(call.operation, "cuda")
    assert kernel is not None
    device = call.x.device
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return kernel.run(call)
    with torch.cuda.device(device):  # on which kernels are launched
        return kernel.run(call)
