"""Whether a call may leave PyTorch: plain tensors go to a kernel, anything else stays in PyTorch's own operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from orthobench.recurrence.backends import REFERENCE, chosen_backend

# Torch's own predicates, under names of this module because they are called many times in a training step.
_strided = torch.strided
_key_set, _key = torch._C.DispatchKeySet, torch._C.DispatchKey
_is_tracing: Callable[[], bool] = torch._C._is_tracing
_is_transforming: Callable[[], bool] = torch._C._are_functorch_transforms_active
count_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_is_included: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_included
_keys: Callable[[Tensor], Any] = torch._C._dispatch_keys


def _keys_of_plain_tensors() -> int:
    """Return the bits of the dispatch keys that a tensor may have if its numbers are in its memory."""
    keys = _key_set(_key.ADInplaceOrView)
    for backend in ("CPU", "CUDA"):
        for name in (backend, f"Autograd{backend}", f"Autocast{backend}"):
            keys = keys | _key_set(getattr(_key, name))
    bits: int = keys.raw_repr()
    return bits


_PLAIN = _keys_of_plain_tensors()
_USUAL = frozenset({Tensor, torch.nn.Parameter})
_NO_TENSORS = frozenset({type(None), int, float, bool})


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is nothing but dense memory, as kernels read it.

    All others are for torch's operations: those that wrap another tensor or have no memory, such as fake, functional
    and batched ones, sparse ones, and those with a negative bit.
    """
    bits: int = _keys(tensor).raw_repr()
    return bits | _PLAIN == _PLAIN


def are_plain(values: Iterable[Any]) -> bool:
    """Return whether all tensors among the values are plain, outside the transforms of `torch.func`.

    For torch's own two classes the layout and the negative bit suffice, which takes half the time.
    """
    for value in values:
        kind = type(value)
        if kind in _USUAL:
            if value.layout is not _strided or value.is_neg():
                return False
        elif kind not in _NO_TENSORS and isinstance(value, Tensor) and not is_plain(value):
            return False
    return True


def has_tangents() -> bool:
    """Return whether tensors may have tangents of forward-mode differentiation."""
    return forward_ad._current_level >= 0


def needs_torch() -> bool:
    """Return whether only torch's operations can run.

    This is so while a program is exported, traced or transformed by `torch.func`, during forward-mode differentiation,
    and inside dispatch modes, which have to see every operation: they compute with fake tensors, record programs
    (`make_fx`) or count (`FlopCounterMode`).
    """
    if torch.compiler.is_dynamo_compiling():  # it cannot trace the other predicates, and has no modes
        return torch.compiler.is_exporting() or torch._C._are_functorch_transforms_active()
    return (
        torch.compiler.is_exporting()
        or _is_tracing()
        or _is_transforming()
        or count_modes() > 0
        or _is_included(_key.PreDispatch)
        or forward_ad._current_level >= 0
    )


def in_torch() -> bool:
    """Return whether only torch's operations are used, because the user chose so or nothing else can run."""
    return needs_torch() or chosen_backend() == REFERENCE


def is_on_gpu(tensor: Tensor) -> bool:
    """Whether a tensor is on a GPU, where launches and waits of the host cost more than most arithmetic."""
    return tensor.is_cuda
