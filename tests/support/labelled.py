"""Tensors that are labelled "cuda" and live on the CPU: training takes CUDA's paths, with real numbers.

As on a GPU, a tensor with the label and a larger one without it do not meet, and reads of a value are noted.
"""

import contextlib
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Self
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from orthobench.recurrence import plain_tensors
from orthobench.recurrence.cuda import launch, persistent

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten
READS = {aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default, aten.masked_select.default}
INDEXED = ("index", "index_put_", "_index_put_impl_")  # may have indices of the CPU

reads: Counter[str] = Counter()


class Labelled(Tensor):
    """A tensor of the CPU, `bare`, whose device is cuda:0."""

    bare: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Labelled":
        labelled = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=CUDA,
        )
        labelled.bare = inner
        return labelled

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(func, args, kwargs or {})


def bare(tensor: Any) -> Any:
    """Return the tensor of the CPU; other values as they are."""
    return tensor.bare if isinstance(tensor, Labelled) else tensor


class _Labelling(TorchDispatchMode):
    """New tensors on "cuda" get the label. To torch it is a mode of fake tensors, with which it starts no CUDA."""

    _mode_key = torch._C._TorchDispatchModeKey.FAKE
    static_shapes, shape_env, allow_non_fake_inputs = True, None, True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    labelled = [tensor for tensor in tensors if isinstance(tensor, Labelled)]
    name = func.name().split("::")[1].split(".")[0]
    device = kwargs.get("device")
    is_labelled = bool(labelled) if device is None else torch.device(device).type == "cuda"
    if labelled and name not in ("copy_", "_to_copy", *INDEXED):
        others = [tensor for tensor in tensors if tensor.dim() and not isinstance(tensor, Labelled)]
        if others:
            raise RuntimeError(
                f"{name}: tensors on cuda:0 and on the CPU, of shapes {[tuple(o.shape) for o in others]}"
            )
    if labelled and (func in READS or not is_labelled):
        reads[name] += 1
    plain_args, options = tree_map(bare, (args, kwargs))
    if device is not None:
        options["device"] = torch.device("cpu")
    if name == "linalg_lu_factor_ex" and not options.pop("pivot", True):
        results: Any = _without_pivots(plain_args[0])
    else:
        results = func(*plain_args, **options)
    if results is None or not is_labelled or func in READS:
        return results
    known = {id(tensor.bare): tensor for tensor in labelled}

    def label(result: Any) -> Any:
        if not isinstance(result, Tensor) or isinstance(result, Labelled):
            return result
        if name == "_to_copy" and any(result is tensor for tensor in tensors):
            result = result.clone()
        if id(result) in known:
            return known[id(result)]
        return Labelled(result.resolve_conj().resolve_neg())  # the label has no mark of a lazy conjugate

    return tree_map(label, results)


def _without_pivots(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Factors by a literal elimination: torch has none without pivots on the CPU."""
    lu = matrix.detach().numpy().copy()
    for k in range(len(lu)):
        lu[k + 1 :, k] /= lu[k, k]
        lu[k + 1 :, k + 1 :] -= np.outer(lu[k + 1 :, k], lu[k, k + 1 :])
    pivots = torch.arange(1, len(lu) + 1, dtype=torch.int32)
    return torch.from_numpy(lu), pivots, torch.zeros((), dtype=torch.int32)


class _Kernels:
    """A module whose kernels run in Triton's interpreter on the tensors of the CPU."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self.module, name)

        class OnGrid:
            def __getitem__(self, grid: Any) -> Callable[..., None]:
                return lambda *args, **kwargs: kernel[grid](*map(bare, args), **kwargs)

        return OnGrid()


class _Event:
    """An event on a device that computes at once, as these tensors do."""

    def __init__(self, **_: Any) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Self) -> float:
        return 1000 * (end.at - self.at)


@contextlib.contextmanager
def cuda_of_labels() -> Iterator[None]:
    """Inside, "cuda" is a device of labelled tensors, and the back end's kernels are interpreted."""
    torch._C._ensureCUDADeviceGuardSet()
    from orthobench.recurrence.cuda import triton_row, triton_step

    modules = types.SimpleNamespace(row=_Kernels(triton_row), step=_Kernels(triton_step))
    properties = types.SimpleNamespace(multi_processor_count=132, major=9, minor=0)
    replaced: dict[str, Any] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "device": lambda device: contextlib.nullcontext(),
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: properties,
        "is_current_stream_capturing": lambda: False,
        "Event": _Event,  # because torch's own asks for the class that "device" replaces
    }
    keys = plain_tensors._keys
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    with contextlib.ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        # As on a GPU, no mode sees the operations, and the tensors are plain.
        stack.enter_context(mock.patch.object(plain_tensors, "count_modes", return_value=0))
        stack.enter_context(mock.patch.object(plain_tensors, "_keys", lambda tensor: keys(bare(tensor))))
        stack.enter_context(mock.patch.object(launch, "kernels", return_value=modules))
        stack.enter_context(mock.patch.object(launch, "triton_problem", return_value=None))
        # Triton's kernels alone, because nothing here can run compiled ones.
        stack.enter_context(mock.patch.object(persistent, "problem", return_value="compiled kernels are not emulated"))
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrites)
        stack.enter_context(_Labelling())
        yield
