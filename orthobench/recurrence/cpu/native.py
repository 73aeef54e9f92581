"""The CPU back end: which calls it supports, and how it runs them."""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.kernels import find

SLOWER_WITHOUT = "up to seven times slower"
"""How much slower PyTorch is."""


def unsupported(call: Call) -> str | None:
    """Return the reason why this back end has no kernel for the call, or None."""
    x, kernel = call.x, find(call.operation, "cpu")
    if x.device.type != "cpu":
        return f"the tensors are on {x.device.type}"
    if kernel is None:
        return "the operation has no C kernel"
    if not isinstance(call.weight, Tensor):
        return "W is applied by a function, which has no C kernel"
    if x.dtype is not torch.float32:
        return f"the C kernels are for float32, not {x.dtype}".replace("torch.", "")
    return kernel.unsupported(call.parameters)


def unusable(call: Call) -> str | None:
    """Return the reason why the kernel of a supported call is not used on this machine, or None."""
    return call_c.missing()


def makes(call: Call) -> bool:
    """Return whether the call's kernel computes the inputs itself, from their projection or convolution."""
    kernel = find(call.operation, "cpu")
    return kernel is not None and not isinstance(call.x, Tensor) and kernel.makes(call.x, call.parameters)


def run(call: Call) -> Result:
    """Run all steps."""
    kernel = find(call.operation, "cpu")
    assert kernel is not None
    return kernel.run(call)
